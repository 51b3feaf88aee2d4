"""Reads ChatGPT's data export."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import BinaryIO

from msgspec import Struct

from turnwire.domain.archive.records import ImportProblem, Record
from turnwire.domain.conversation.messages import (
    FinishReason,
    MessageStatus,
    MessageType,
    ModelRun,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)
from turnwire.domain.conversation.sessions import Session
from turnwire.interop.archive.attachments import Attachment
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.archive.branches import branch_to, newest_leaf
from turnwire.interop.archive.conversation import (
    ConversationBuilder,
    ImportedCall,
    ImportedMessage,
    conversations_of,
    nothing_else,
)
from turnwire.interop.archive.values import MAX_ID_CHARS, an_object_at, flag_at, id_at, seconds_at, text_at, within
from turnwire.interop.archive.zipped import Export
from turnwire.interop.chatgpt.contents import ContentReader, Found
from turnwire.interop.forms import Json, an_object, refuse
from turnwire.ports.clock import Clock

TYPES = {
    "user": MessageType.USER,
    "assistant": MessageType.ASSISTANT,
    "system": MessageType.SYSTEM,
    "tool": MessageType.TOOL_RESULT,
}
"""Roles of authors and their message types here."""

_FINISH = {"stop": FinishReason.STOP, "max_tokens": FinishReason.LENGTH, "interrupted": FinishReason.ABORTED}
_INSTRUCTIONS = ("user_profile", "user_instructions")
"""Keys of "user_editable_context": what a person wants ChatGPT to remember."""
_CONTEXTS = ("user_editable_context", "model_editable_context")


class _Node(Struct, frozen=True):
    """A message of the branch that is shown."""

    role: str
    name: str
    message: Json
    metadata: Json
    place: str


class ChatGPTReader:
    """Reads `conversations.json`, or the ZIP that has it."""

    keeps_ids = False

    def __init__(self, clock: Clock, bounds: ArchiveLimits) -> None:
        """Args:
        clock: The time of conversations without one.
        bounds: Limits on the archive.
        """
        self._clock = clock
        self._bounds = bounds

    def read(self, source: BinaryIO, options: Mapping[str, str]) -> Iterator[Record | ImportProblem]:
        """As `ArchiveReader.read`. There are no options."""
        nothing_else(options)
        export = Export(source, self._bounds)
        yield from conversations_of(export.documents(), lambda value: self._conversation(value, export))

    def _conversation(self, value: Json, export: Export) -> tuple[ConversationBuilder, Session]:
        source_id = id_at(value, "conversation_id", "") or id_at(value, "id", "")
        if not source_id:
            refuse("id", "is missing")
        conversation = ConversationBuilder(source_id, self._bounds)
        at = seconds_at(value, "create_time", "") or seconds_at(value, "update_time", "") or self._clock()
        branch = _Branch(conversation, ContentReader(export, conversation), at)
        if not isinstance(value.get("mapping"), dict):
            refuse("mapping", "is missing" if "mapping" not in value else "must be an object")
        for node in _shown(value, conversation):
            branch.add(node)
        updated_at = max(at, seconds_at(value, "update_time", "") or at)
        session = Session(
            session_id=source_id,
            created_at=at,
            updated_at=updated_at,
            archived_at=updated_at if value.get("is_archived") is True else None,
            title=conversation.title(text_at(value, "title", ""), "title"),
            system=conversation.system(branch.instructions, "mapping"),
        )
        return conversation, session


def _shown(value: Json, conversation: ConversationBuilder) -> Iterator[_Node]:
    """Yields the messages of the branch that is shown, and reports the number of the others."""
    mapping = an_object_at(value, "mapping", "")
    nodes = {key: an_object(node, within("mapping", key)) for key, node in mapping.items()}
    parents = {key: id_at(node, "parent", within("mapping", key)) for key, node in nodes.items()}
    if any(len(key) > MAX_ID_CHARS for key in nodes):
        refuse("mapping", f"has an id with more than {MAX_ID_CHARS} characters")
    leaf = id_at(value, "current_node", "")
    if leaf and leaf not in nodes:
        conversation.problem(
            "MISSING_MESSAGE", "The newest message is not there; the last one is taken.", "current_node"
        )
        leaf = ""
    ids, is_cut = branch_to(leaf or newest_leaf(parents), parents, "mapping")
    if is_cut:
        place = within("mapping", ids[0])
        conversation.problem("MISSING_MESSAGE", "A message before this one is missing.", f"{place}.parent")
    shown = set(ids)
    others = sum(node.get("message") is not None for key, node in nodes.items() if key not in shown)
    if others:
        conversation.problem(
            "OTHER_BRANCHES", f"Left out: messages of branches that are not shown ({others}).", "mapping"
        )
    for key in ids:
        place = f"{within('mapping', key)}.message"
        if nodes[key].get("message") is not None:
            message = an_object(nodes[key]["message"], place)
            author, metadata = an_object_at(message, "author", place), an_object_at(message, "metadata", place)
            role, name = text_at(author, "role", f"{place}.author"), text_at(author, "name", f"{place}.author")
            yield _Node(role, name, message, metadata, place)


class _Branch:
    """Makes messages from the nodes of a branch."""

    def __init__(self, conversation: ConversationBuilder, contents: ContentReader, at: datetime) -> None:
        self.instructions = ""
        self._conversation = conversation
        self._contents = contents
        self._at = at
        self._calls: dict[str, ImportedCall] = {}  # the newest call of each tool, by the first word of its name

    def add(self, node: _Node) -> None:
        """Appends what a node has: a message, a result of a call, custom instructions, or nothing."""
        content = an_object_at(node.message, "content", node.place)
        at = f"{node.place}.content"
        kind = text_at(content, "content_type", at)
        if kind == "user_editable_context":
            self._instruct(content, at)
            return
        if node.role not in TYPES:
            self._conversation.count(
                "UNKNOWN_CONTENT", "Left out: messages of a role that is not known", f"{node.place}.author"
            )
            return
        parts = self._contents.of(content, at, node.metadata, f"{node.place}.metadata") if kind not in _CONTEXTS else []
        called = node.role == "assistant" and (text_at(node.message, "recipient", node.place) or "all") != "all"
        is_hidden = flag_at(node.metadata, "is_visually_hidden_from_conversation", f"{node.place}.metadata")
        spoken = [part for part in parts if not isinstance(part, Reasoning)]
        if kind in _CONTEXTS or (is_hidden and spoken and not called and node.role != "tool"):
            self._conversation.count("HIDDEN_MESSAGE", "Left out: messages that ChatGPT hides", node.place)
            return
        for key in ("citations", "content_references"):
            if node.metadata.get(key):
                self._conversation.count("REFERENCES", f"Left out: lists of {key}", f"{node.place}.metadata.{key}")
        self._append(node, kind, parts, called)

    def _append(self, node: _Node, kind: str, parts: list[Found], called: bool) -> None:
        draft = ImportedMessage(id_at(node.message, "id", node.place), TYPES[node.role], self._time(node))
        if node.role == "tool":
            self._result(draft, node.name, parts, kind == "system_error")
            return
        if called:
            self._call(draft, text_at(node.message, "recipient", node.place), parts)
        elif kind == "code":
            language = text_at(an_object_at(node.message, "content", node.place), "language", node.place)
            draft.parts += [
                Text(f"```{_language(language)}\n{part.text}\n```") for part in parts if isinstance(part, Text)
            ]
        else:
            draft.parts += parts
        if node.role == "assistant":
            slug = text_at(node.metadata, "model_slug", f"{node.place}.metadata")
            draft.model_run = ModelRun(provider_id="openai", model_requested=slug) if slug else None
            draft.more |= _ending(node, called)
        self._conversation.add(draft)

    def _call(self, draft: ImportedMessage, name: str, parts: list[Found]) -> None:
        """Makes a call from what the model sent to a tool. Its arguments are kept unchanged where they are JSON."""
        words = "".join(part.text for part in parts if isinstance(part, Text))
        call = ImportedCall(ToolUse(name=name, call_id=draft.message_id, input_json=_arguments(words)))
        self._calls[name.partition(".")[0]] = call
        draft.parts += [part for part in parts if not isinstance(part, Text)]
        draft.parts.append(call)

    def _result(self, draft: ImportedMessage, name: str, parts: list[Found], is_error: bool) -> None:
        """Adds a result to the newest call of that tool; without such a call it becomes a message."""
        output = "\n".join(part.text for part in parts if isinstance(part, Text | Reasoning))
        files = [part for part in parts if isinstance(part, Attachment)]
        if (call := self._calls.get(name.partition(".")[0])) is not None:
            call.add(output, draft.at, is_error=is_error)
            call.files += files
            return
        if output or files:
            draft.parts += [ToolResult(call_id="", output=output, is_error=is_error), *files]
            self._conversation.add(draft)

    def _instruct(self, content: Json, place: str) -> None:
        words = "\n\n".join(filter(None, (text_at(content, key, place) for key in _INSTRUCTIONS)))
        if words and self.instructions and words != self.instructions:
            self._conversation.count("INSTRUCTIONS", "Left out: earlier custom instructions", place)
        self.instructions = words or self.instructions

    def _time(self, node: _Node) -> datetime:
        self._at = seconds_at(node.message, "create_time", node.place) or self._at
        return self._at


def _ending(node: _Node, called: bool) -> dict[str, object]:
    """Returns the end of an answer as fields of `Message`."""
    details = an_object_at(node.metadata, "finish_details", f"{node.place}.metadata")
    word = text_at(details, "type", f"{node.place}.metadata.finish_details")
    cut = word == "interrupted" or text_at(node.message, "status", node.place) == "in_progress"
    found: dict[str, object] = {"provider_finish_reason": word} if word else {}
    if cut:
        return {**found, "status": MessageStatus.INTERRUPTED, "finish_reason": FinishReason.ABORTED}
    return {**found, "finish_reason": _FINISH[word]} if word in _FINISH and not called else found


def _arguments(words: str) -> str:
    try:
        if isinstance(json.loads(words), dict):
            return words
    except (ValueError, RecursionError):
        pass
    return json.dumps({"input": words}, ensure_ascii=False)


def _language(name: str) -> str:
    return name if name.isalnum() and len(name) < 20 and name != "unknown" else ""
