"""Answers with long messages, as bytes: each text is encoded once and joined once.

Protobuf copies a text each time its message is put into another one, and once more to measure it.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from google.protobuf.message import Message

from opencode.message import content_pb2 as content
from turnwire.api.wire.answers import messages
from turnwire.api.wire.framing import tag_of, varint
from turnwire.core.watches.unmade import Unmade
from turnwire.domain.conversation import messages as m
from turnwire.domain.conversation.messages import texts_of, without_texts
from turnwire.domain.text import text_bytes, utf8_bytes

LONG_CHARACTERS = 64 * 1024
"""Length of a message's texts up to which protobuf encodes it, which is quicker with those."""

LongAnswer = Message | bytes | Unmade
"""The return types of methods whose responses may be long."""

_PARTS = tag_of(content.SessionMessage.DESCRIPTOR.fields_by_name["parts"].number)
_CONTENT = {
    m.Text: "text",
    m.Reasoning: "reasoning",
    m.Refusal: "refusal",
    m.ToolUse: "tool_use",
    m.ToolResult: "tool_result",
}
"""The field of a part by its kind of content."""

_TEXTS = {"tool_use": ("input_json", "output"), "tool_result": ("output",)}
"""The fields of the texts of a content that is no text itself."""


def text_length(values: Iterable[m.Message]) -> int:
    """Returns about how many bytes the texts of messages have; costs nothing for long ones."""
    return sum(text_bytes(text) for value in values for part in value.parts for text in texts_of(part))


def encoded(value: m.Message) -> bytes:
    """Returns a message as `answers.messages.message` gives it, encoded."""
    return b"".join(_pieces(value))


def with_messages(values: Sequence[m.Message], rest: Message, field: str = "messages") -> Message | Unmade:
    """Returns an answer with messages; if they are long, one that is still to be made.

    Args:
        values: The messages.
        rest: The answer without them. Changed.
        field: Its field of messages, or of one.
    """
    described = rest.DESCRIPTOR.fields_by_name[field]
    if (size := text_length(values)) > LONG_CHARACTERS:
        return Unmade(size, partial(_joined, tuple(values), tag_of(described.number), rest))
    converted = map(messages.message, values)
    if described.is_repeated:
        getattr(rest, field).extend(converted)
    else:
        getattr(rest, field).CopyFrom(next(converted))
    return rest


def _joined(values: Iterable[m.Message], tag: bytes, rest: Message) -> bytes:
    pieces: list[bytes] = []
    for value in values:
        pieces += _field(tag, _pieces(value))
    return b"".join([*pieces, rest.SerializeToString()])


def _field(tag: bytes, pieces: list[bytes]) -> list[bytes]:
    return [tag + varint(sum(map(len, pieces))), *pieces]


def _pieces(value: m.Message) -> list[bytes]:
    if text_length((value,)) <= LONG_CHARACTERS:
        return [messages.message(value).SerializeToString()]
    pieces = [messages.message(msgspec.structs.replace(value, parts=())).SerializeToString()]
    for part in value.parts:
        pieces += _field(_PARTS, _pieces_of_part(part))
    return pieces


def _pieces_of_part(value: m.Part) -> list[bytes]:
    """Returns a part whose content, its last field, ends with its texts."""
    if (field := _CONTENT.get(type(value.content))) is None:
        return [messages.part(value).SerializeToString()]
    head = messages.part(without_texts(value))
    held: Any = getattr(head, field)
    text, output = texts_of(value)
    if not isinstance(value.content, m.ToolResult):
        head.content_bytes = utf8_bytes(text or "")
    pieces: list[bytes] = [held.SerializeToString()]
    for name, one in zip(_TEXTS.get(field, ("text",)), (text, output), strict=False):
        pieces += _text(held, name, one)
    head.ClearField(field)  # type: ignore[arg-type]
    number = head.DESCRIPTOR.fields_by_name[field].number
    return [head.SerializeToString(), *_field(tag_of(number), pieces)]


def _text(held: Message, name: str, text: str | None) -> list[bytes]:
    if text is None:
        return []
    return _field(tag_of(held.DESCRIPTOR.fields_by_name[name].number), [text.encode()])
