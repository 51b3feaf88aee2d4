"""Reads Claude's data export."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import BinaryIO

from turnwire.domain.archive.records import ImportProblem, Record
from turnwire.domain.conversation.messages import MessageType, ModelRun
from turnwire.domain.conversation.sessions import Session
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.archive.branches import branch_to, newest_leaf
from turnwire.interop.archive.conversation import ConversationBuilder, ImportedMessage, conversations_of, nothing_else
from turnwire.interop.archive.values import id_at, moment_at, objects, text_at
from turnwire.interop.archive.zipped import Export
from turnwire.interop.claude.blocks import Blocks
from turnwire.interop.forms import Json, refuse
from turnwire.ports.clock import Clock

TYPES = {"human": MessageType.USER, "assistant": MessageType.ASSISTANT}
"""Senders and their message types here."""

_BEFORE_ALL = "00000000-0000-4000-8000-000000000000"
"""The parent of a first message."""


class ClaudeReader:
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
        source_id = id_at(value, "uuid", "")
        if not source_id:
            refuse("uuid", "is missing")
        if not isinstance(value.get("chat_messages"), list):
            refuse("chat_messages", "is missing" if "chat_messages" not in value else "must be an array")
        conversation = ConversationBuilder(source_id, self._bounds)
        at = moment_at(value, "created_at", "") or self._clock()
        model = text_at(value, "model", "")
        run = ModelRun(provider_id="anthropic", model_requested=model) if model else None
        blocks = Blocks(export, conversation, self._bounds)
        time = at
        for message, place in _shown(value, conversation):
            time = moment_at(message, "created_at", place) or time
            draft = _draft(message, place, time, conversation, run)
            if draft is not None:
                lost = blocks.fill(draft, message, place)
                for found in (draft, *lost):
                    conversation.add(found)
        session = Session(
            session_id=source_id,
            created_at=at,
            updated_at=max(at, moment_at(value, "updated_at", "") or at),
            title=conversation.title(text_at(value, "name", ""), "name"),
        )
        return conversation, session


def _draft(
    message: Json, place: str, at: datetime, conversation: ConversationBuilder, run: ModelRun | None
) -> ImportedMessage | None:
    sender = text_at(message, "sender", place)
    if sender not in TYPES:
        conversation.count("UNKNOWN_CONTENT", "Left out: messages of a sender that is not known", f"{place}.sender")
        return None
    is_answer = TYPES[sender] is MessageType.ASSISTANT
    return ImportedMessage(id_at(message, "uuid", place), TYPES[sender], at, model_run=run if is_answer else None)


def _shown(value: Json, conversation: ConversationBuilder) -> list[tuple[Json, str]]:
    """Returns the messages of the branch that is shown. Older exports have no parents; all messages are shown then."""
    messages = objects(value, "chat_messages", "")
    by_id = {id_at(message, "uuid", place): (message, place) for message, place in messages}
    parents = {key: _parent(*found) for key, found in by_id.items()}
    if not any(parents.values()) or len(by_id) < len(messages):
        return messages
    leaf = id_at(value, "current_leaf_message_uuid", "")
    ids, is_cut = branch_to(leaf if leaf in parents else newest_leaf(parents), parents, "chat_messages")
    if is_cut:
        place = by_id[ids[0]][1]
        conversation.problem(
            "MISSING_MESSAGE", "A message before this one is not there; all are taken as listed.", place
        )
        return messages
    if len(ids) < len(messages):
        others = len(messages) - len(ids)
        conversation.problem(
            "OTHER_BRANCHES", f"Left out: messages of branches that are not shown ({others}).", "chat_messages"
        )
    return [by_id[key] for key in ids]


def _parent(message: Json, place: str) -> str:
    parent = id_at(message, "parent_message_uuid", place)
    return "" if parent == _BEFORE_ALL else parent
