"""Blocks of Claude's messages. There is no published schema, so the text of unknown types is kept, and they are
reported.
"""

from datetime import datetime

from turnwire.domain.conversation.messages import MessageType, Reasoning, Text, ToolResult, ToolUse
from turnwire.interop.archive.attachments import Attachment, from_base64, from_text
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.archive.conversation import ConversationBuilder, ImportedCall, ImportedMessage
from turnwire.interop.archive.values import an_object_at, array, compact, flag_at, id_at, objects, text_at, within
from turnwire.interop.archive.zipped import Export
from turnwire.interop.forms import Json, a_text

SILENT = frozenset({"token_budget"})
"""Types without content for people or models."""

_UNKNOWN = "Left out: blocks of a type that is not known, except for their text"


class Blocks:
    """Reads the messages of one conversation."""

    def __init__(self, export: Export, conversation: ConversationBuilder, bounds: ArchiveLimits) -> None:
        """Takes the source of the files, the conversation that gets the problems and messages, and the
        limits on files.
        """
        self._export = export
        self._conversation = conversation
        self._most = bounds.file_bytes
        self._by_id: dict[str, ImportedCall] = {}
        self._by_name: dict[str, list[ImportedCall]] = {}

    def fill(self, draft: ImportedMessage, message: Json, place: str) -> list[ImportedMessage]:
        """Adds the parts of a message. Returns results that belong to no call, as messages of their own.

        Raises:
            InvalidRequest: a value has another type than in Claude's exports.
        """
        draft.parts += self._files(message, place)
        lost: list[ImportedMessage] = []
        for block, at in objects(message, "content", place):
            match text_at(block, "type", at):
                case "text":
                    draft.parts += _text(text_at(block, "text", at))
                    if array(block, "citations", at):
                        self._conversation.count("REFERENCES", "Left out: lists of citations", f"{at}.citations")
                case "thinking":
                    draft.parts += [Reasoning(words)] if (words := text_at(block, "thinking", at)) else []
                case "tool_use":
                    draft.parts.append(self._call(block, at))
                case "tool_result":
                    lost += self._result(block, at, draft.at)
                case kind if kind not in SILENT:
                    self._conversation.count("UNKNOWN_CONTENT", _UNKNOWN, at)
                    draft.parts += _text(text_at(block, "text", at))
        if not array(message, "content", place):
            draft.parts += _text(text_at(message, "text", place))
        return lost

    def _files(self, message: Json, place: str) -> list[Attachment]:
        """Returns the attachments of a message. The text that Claude extracted from a file becomes a text file of the
        same name.
        """
        found = []
        for item, at in objects(message, "attachments", place):
            name, text = text_at(item, "file_name", at), text_at(item, "extracted_content", at)
            if text:
                found.append(from_text(text, self._most, filename=name, place=at))
            else:
                found.append(self._export.attachment(id_at(item, "id", at), filename=name, place=at))
        key = "files" if message.get("files") else "files_v2"  # the second list has the same files
        for item, at in objects(message, key, place):
            file_id, name = id_at(item, "file_uuid", at) or id_at(item, "uuid", at), text_at(item, "file_name", at)
            found.append(self._export.attachment(file_id, filename=name, place=at))
        return found

    def _call(self, block: Json, place: str) -> ImportedCall:
        given = an_object_at(block, "input", place)
        use = ToolUse(name=text_at(block, "name", place), call_id=id_at(block, "id", place), input_json=compact(given))
        call = ImportedCall(use)
        self._by_id[use.call_id] = call
        self._by_name.setdefault(use.name, []).append(call)
        return call

    def _result(self, block: Json, place: str, at: datetime) -> list[ImportedMessage]:
        """Adds a result to its call, by id or otherwise by name: older exports have no ids."""
        call_id, name = id_at(block, "tool_use_id", place), text_at(block, "name", place)
        output, files = self._output(block, place)
        is_error = flag_at(block, "is_error", place)
        call = self._by_id.get(call_id) if call_id else self._newest(name)
        if call is not None and not call.settled:
            call.add(output, at, is_error=is_error)
            call.files += files
            return []
        result = ToolResult(call_id=call_id, output=output, is_error=is_error)
        return [ImportedMessage("", MessageType.TOOL_RESULT, at, [result, *files])]

    def _newest(self, name: str) -> ImportedCall | None:
        """Returns the newest call of a tool that has no result."""
        waiting = self._by_name.get(name, [])
        while waiting and waiting[-1].settled:
            waiting.pop()
        return waiting[-1] if waiting else None

    def _output(self, block: Json, place: str) -> tuple[str, list[Attachment]]:
        if isinstance(block.get("content"), str):
            return a_text(block["content"], within(place, "content")), []
        texts: list[str] = []
        files: list[Attachment] = []
        for item, at in objects(block, "content", place):
            match text_at(item, "type", at):
                case "text":
                    texts.append(text_at(item, "text", at))
                case "knowledge":
                    texts.append("\n".join(filter(None, (text_at(item, key, at) for key in ("title", "url", "text")))))
                case "image":
                    files.append(self._image(item, at))
                case _:
                    self._conversation.count("UNKNOWN_CONTENT", _UNKNOWN, at)
                    texts.append(text_at(item, "text", at))
        return "\n".join(filter(None, texts)), files

    def _image(self, item: Json, place: str) -> Attachment:
        source, at = an_object_at(item, "source", place), f"{place}.source"
        if text_at(source, "type", at) == "base64":
            return from_base64(
                text_at(source, "data", at), self._most, mime=text_at(source, "media_type", at), place=place
            )
        return self._export.attachment(id_at(item, "file_uuid", place), place=place)


def _text(words: str) -> list[Text]:
    return [Text(words)] if words else []
