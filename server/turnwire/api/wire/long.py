"""Long requests and answers: converted and encoded without holding up the event loop, and without needless copies.

A large request is converted on a thread. A long list is encoded a few elements at a time. In an answer with long
messages each text is encoded once and joined once: protobuf copies a text each time its message is put into another
one, and once more to measure it.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import Message

from opencode.message import content_pb2 as content
from turnwire.api.wire.answers import messages
from turnwire.api.wire.framing import frame, tag_of, varint
from turnwire.core.watches.unmade import Unmade
from turnwire.domain.conversation import messages as m
from turnwire.domain.conversation.messages import texts_of, without_texts
from turnwire.domain.text import text_bytes, utf8_bytes

LARGE_BYTES = 256 * 1024
"""Size from which a request is converted on a worker thread: its texts are read, and digested when it has a name."""

ELEMENTS_AT_ONCE = 32
"""Converting one takes 10 to 50 microseconds."""

BYTES_AT_ONCE = 256 * 1024
"""Size of encoded elements after which the event loop runs other tasks; one alone may be larger."""

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

R = TypeVar("R", bound=Message)
T = TypeVar("T")


async def converted(convert: Callable[[R], T], request: R) -> T:
    """Returns the values of a request; those of a large one are made on a thread. Raises what `convert` raises."""
    if request.ByteSize() > LARGE_BYTES:
        return await asyncio.to_thread(convert, request)
    return convert(request)


async def framed(values: Iterable[T], convert: Callable[[T], Message], rest: Message) -> bytes:
    """Returns a response: the values as the elements of a repeated field 1, and the other fields from `rest`.

    The event loop runs other tasks between a few elements. Safe to cancel.
    """
    frames: list[bytes] = []
    count, size = 0, 0
    for value in values:
        frames.append(frame(convert(value).SerializeToString()))
        count, size = count + 1, size + len(frames[-1])
        if count >= ELEMENTS_AT_ONCE or size >= BYTES_AT_ONCE:
            await asyncio.sleep(0)
            count, size = 0, 0
    frames.append(rest.SerializeToString())
    return b"".join(frames)


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
