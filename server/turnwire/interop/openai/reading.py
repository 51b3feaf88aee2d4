"""Reads conversations of OpenAI's chat form."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, BinaryIO

from turnwire.domain.archive.records import ImportProblem, Record
from turnwire.domain.conversation.messages import MessageType, Text, ToolUse
from turnwire.domain.conversation.messages import Refusal as RefusalContent
from turnwire.domain.conversation.messages import ToolResult as ResultContent
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import ArchiveInvalid
from turnwire.interop.archive.attachments import Attachment, from_base64, from_url
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.archive.conversation import (
    ConversationBuilder,
    ImportedCall,
    ImportedMessage,
    conversations_of,
    nothing_else,
)
from turnwire.interop.archive.documents import anything
from turnwire.interop.archive.values import array, id_at, objects, seconds_at, text_at, within
from turnwire.interop.forms import Json, a_text, an_object, kind_of, refuse, text_of
from turnwire.ports.clock import Clock

ROLES = {
    "system": MessageType.SYSTEM,
    "developer": MessageType.SYSTEM,
    "user": MessageType.USER,
    "assistant": MessageType.ASSISTANT,
    "tool": MessageType.TOOL_RESULT,
    "function": MessageType.TOOL_RESULT,
}
"""Roles and their message types here: "developer" is the newer name of "system", "function" an older one of "tool"."""

AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}
"""Formats of `input_audio`."""


class OpenAIReader:
    """Reads one JSON array of messages, one object with `messages`, an array of such objects, or JSON Lines of them."""

    keeps_ids = False

    def __init__(self, clock: Clock, bounds: ArchiveLimits) -> None:
        """Args:
        clock: The time of conversations without `created`; messages have no times.
        bounds: Limits on the archive.
        """
        self._clock = clock
        self._bounds = bounds

    def read(self, source: BinaryIO, options: Mapping[str, str]) -> Iterator[Record | ImportProblem]:
        """As `ArchiveReader.read`. There are no options."""
        nothing_else(options)
        for number, (line, place, value) in enumerate(self._conversations(source), 1):
            yield from conversations_of([(place, value)], partial(self._conversation, line=line, number=number), line)

    def _conversations(self, source: BinaryIO) -> Iterator[tuple[int, str, Json]]:
        """Yields line (0 for none), position and value of each conversation."""
        messages: list[Json] = []
        for line, place, value in anything(source, self._bounds):
            item = an_item(value, place)
            if place and "role" in item:
                messages.append(item)
                if source.tell() > self._bounds.conversation_bytes or len(messages) > self._bounds.messages:
                    raise ArchiveInvalid.at("is one conversation, and is too long", place=place)
            elif messages:
                raise ArchiveInvalid.at("is not a message, unlike those before it", place=place)
            else:
                yield line, place, item
        if messages:
            yield 0, "", {"messages": messages}

    def _conversation(self, value: Json, line: int, number: int) -> tuple[ConversationBuilder, Session]:
        if not isinstance(value.get("messages"), list):
            refuse("messages", "is missing" if "messages" not in value else "must be an array")
        at = seconds_at(value, "created", "") or self._clock()
        source_id = id_at(value, "id", "") or _made_id(value, number)
        conversation = ConversationBuilder(source_id, self._bounds, line)
        for message, place in objects(value, "messages", ""):
            self._add(conversation, message, place, at)
        title = conversation.title(text_at(value, "title", ""), "title")
        return conversation, Session(session_id=source_id, title=title, created_at=at, updated_at=at)

    def _add(self, conversation: ConversationBuilder, message: Json, place: str, at: datetime) -> None:
        role = text_of(message, "role", place)
        if role not in ROLES:
            refuse(f"{place}.role", f"must be one of {', '.join(ROLES)}")
        draft = ImportedMessage(id_at(message, "id", place), ROLES[role], at)
        if draft.type is MessageType.TOOL_RESULT:
            self._add_result(conversation, draft, message, place)
            return
        draft.parts += self._content(conversation, message, place)
        if draft.type is MessageType.USER:
            draft.more["sender_name"] = text_at(message, "name", place)
        if draft.type is MessageType.ASSISTANT:
            draft.parts += self._answer(conversation, message, place)
        conversation.add(draft)

    def _add_result(self, conversation: ConversationBuilder, draft: ImportedMessage, message: Json, place: str) -> None:
        """Adds a result to its call. A result of an unknown or settled call becomes a message."""
        call_id = text_at(message, "tool_call_id", place) or text_at(message, "name", place)
        parts = self._content(conversation, message, place)
        output = "".join(part.text for part in parts if isinstance(part, Text))
        files = [part for part in parts if isinstance(part, Attachment)]
        call = conversation.call(call_id)
        if call is None or call.settled:
            result = ResultContent(call_id=call_id, output=output)
            draft.parts += [result, *files]
            conversation.add(draft)
            return
        call.add(output, draft.at)
        call.files += files

    def _answer(
        self, conversation: ConversationBuilder, message: Json, place: str
    ) -> Iterator[RefusalContent | ImportedCall]:
        if refusal := text_at(message, "refusal", place):
            yield RefusalContent(refusal)
        for call, at in objects(message, "tool_calls", place):
            kind = text_at(call, "type", at) or "function"
            if kind == "function":
                yield ImportedCall(_call(an_object(call.get("function"), f"{at}.function"), id_at(call, "id", at), at))
            elif kind == "custom":
                given = an_object(call.get("custom"), f"{at}.custom")
                name, words = text_of(given, "name", f"{at}.custom"), text_at(given, "input", f"{at}.custom")
                arguments = json.dumps({"input": words}, ensure_ascii=False)
                yield ImportedCall(ToolUse(name=name, call_id=id_at(call, "id", at), input_json=arguments))
            else:
                conversation.count("UNKNOWN_CONTENT", "Left out: tool calls of a kind that is not known", at)
        if (old := message.get("function_call")) is not None:
            given = an_object(old, f"{place}.function_call")
            yield ImportedCall(_call(given, text_of(given, "name", f"{place}.function_call"), place))

    def _content(self, conversation: ConversationBuilder, message: Json, place: str) -> list[Any]:
        content, at = message.get("content"), within(place, "content")
        if content is None:
            return []
        if isinstance(content, str):
            return [Text(a_text(content, at))] if content else []
        if not isinstance(content, list):
            refuse(at, f"must be text or an array, not {kind_of(content)}")
        found = []
        for index, _ in enumerate(array(message, "content", place)):
            part, where = an_object(content[index], f"{at}[{index}]"), f"{at}[{index}]"
            value = self._part(part, where)
            if value is None:
                conversation.count("UNKNOWN_CONTENT", "Left out: parts of a type that is not known", where)
            else:
                found.append(value)
        return found

    def _part(self, part: Json, place: str) -> Text | RefusalContent | Attachment | None:
        most = self._bounds.file_bytes
        match text_of(part, "type", place):
            case "text" | "input_text" | "output_text":
                return Text(text_of(part, "text", place))
            case "refusal":
                return RefusalContent(text_of(part, "refusal", place))
            case "image_url":
                image = an_object(part.get("image_url"), f"{place}.image_url")
                return from_url(text_of(image, "url", f"{place}.image_url"), most, place=place)
            case "input_audio":
                audio, at = an_object(part.get("input_audio"), f"{place}.input_audio"), f"{place}.input_audio"
                mime = AUDIO.get(text_at(audio, "format", at), "")
                return from_base64(text_of(audio, "data", at), most, mime=mime, place=place)
            case "file":
                file, at = an_object(part.get("file"), f"{place}.file"), f"{place}.file"
                url = text_at(file, "file_data", at) or f"file_id {text_at(file, 'file_id', at)}"
                return from_url(url, most, filename=text_at(file, "filename", at), place=place)
            case _:
                return None


def an_item(value: object, place: str) -> Json:
    """Returns the object at a top-level position, or raises ArchiveInvalid."""
    if not isinstance(value, dict):
        raise ArchiveInvalid.at(f"must be an object, not {kind_of(value)}", place=place)
    return value


def _call(function: Json, call_id: str, place: str) -> ToolUse:
    at = f"{place}.function"
    return ToolUse(name=text_of(function, "name", at), call_id=call_id, input_json=text_at(function, "arguments", at))


def _made_id(value: Json, number: int) -> str:
    """Returns an id that is the same when the archive is read again, even if more was appended to it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return f"{hashlib.sha256(text.encode()).hexdigest()[:32]}-{number}"
