"""Display forms in pieces, so that what is stored of them needs no copy of the texts.

A DisplayMessage is its fields in any order. The header comes first; each part adds one field, whose text is its end.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from opencode.message.message_pb2 import DisplayMessage
from opencode.tool.tool_pb2 import ToolCallState
from turnwire.api.wire.answers.files import file
from turnwire.api.wire.answers.messages import display_header
from turnwire.api.wire.answers.tools import tool_call
from turnwire.api.wire.framing import FRAME_TAG, tag_of, varint
from turnwire.domain.conversation import messages as m
from turnwire.domain.conversation.display import is_shown
from turnwire.domain.conversation.texts import texts_of
from turnwire.domain.text import utf8_bytes
from turnwire.ports.codec import DisplayForm, ShownPart

_TEXT, _REASONING, _CALL, _FILE = (
    tag_of(DisplayMessage.DESCRIPTOR.fields_by_name[name].number)
    for name in ("text_parts", "reasoning_parts", "tool_calls", "files")
)
_INPUT, _OUTPUT = (tag_of(ToolCallState.DESCRIPTOR.fields_by_name[name].number) for name in ("input_json", "output"))


MANY_PARTS = 16
"""Of a message whose parts are kept: a step with a thousand calls writes its message for each result."""
MAX_KEPT = 8
"""Messages whose encoded parts are kept."""


class Encoded(NamedTuple):
    """A part and what it adds to a display form."""

    part: m.Part
    shown: ShownPart
    size_bytes: int
    """With its texts."""


class DisplayForms:
    """Makes display forms, and of messages with many parts only what is another part than the last time.

    Used on several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[Encoded, ...]] = OrderedDict()  # by message, the last used at the end

    def form(self, message: m.Message, before: Mapping[int, int] = {}) -> DisplayForm:
        """Returns the display form of a message; see `ports.codec.Codec.display_form`."""
        if len(message.parts) < MANY_PARTS or before or not is_shown(message):
            return display_form(message, before)
        with self._lock:
            kept = self._kept.pop(message.message_id, ())
        encoded = tuple(
            kept[n] if n < len(kept) and kept[n].part is part else _encoded(part)
            for n, part in enumerate(message.parts)
        )
        with self._lock:
            self._kept[message.message_id] = encoded
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return _joined(message, encoded)


def display_form(message: m.Message, before: Mapping[int, int] = {}) -> DisplayForm:
    """Returns the display form of a message; see `ports.codec.Codec.display_form`."""
    if not is_shown(message):
        return DisplayForm(b"", (ShownPart(),) * len(message.parts), 0)
    return _joined(message, tuple(_encoded(part, before.get(part.index, 0)) for part in message.parts))


def _joined(message: m.Message, parts: tuple[Encoded, ...]) -> DisplayForm:
    header = display_header(message).SerializeToString()
    size = len(header) + sum(part.size_bytes for part in parts)
    prefix = FRAME_TAG + varint(size)
    return DisplayForm(prefix + header, tuple(part.shown for part in parts), len(prefix) + size)


def _encoded(part: m.Part, before: int = 0) -> Encoded:
    return Encoded(part, *_shown_part(part, before))


def encoded_display(message: m.Message) -> bytes:
    """Returns the whole display form as a frame; empty when there is none."""
    form = display_form(message)
    if not form.head:
        return b""
    pieces = [form.head]
    for part, shown in zip(message.parts, form.parts, strict=True):
        if shown.before:
            text, output = texts_of(part)
            pieces += (shown.before, (text or "").encode(), shown.between, (output or "").encode())
    return b"".join(pieces)


def _shown_part(part: m.Part, before: int) -> tuple[ShownPart, int]:
    """Returns what a part adds, and how many bytes that is with its texts and those `before` the end that it has."""
    match part.content:
        case m.Text(text) | m.Refusal(text) | m.ToolResult(output=text):
            return _field(_TEXT, text, before)
        case m.Reasoning(text):
            return _field(_REASONING, text, before) if text or before else (ShownPart(), 0)
        case m.ToolUse() as call:
            return _call(part.part_id, call, before)
        case m.File() as reference:
            encoded = file(reference).SerializeToString()
            field = _FILE + varint(len(encoded)) + encoded
            return ShownPart(field), len(field)
        case _:
            return ShownPart(), 0


def _field(tag: bytes, text: str, before: int = 0) -> tuple[ShownPart, int]:
    size = before + utf8_bytes(text)
    head = tag + varint(size)
    return ShownPart(head), len(head) + size


def _call(part_id: str, call: m.ToolUse, before: int) -> tuple[ShownPart, int]:
    rest = tool_call(part_id, msgspec.structs.replace(call, input_json="", output=None)).SerializeToString()
    arguments, input_size = _field(_INPUT, call.input_json, before)
    output, output_size = (ShownPart(), 0) if call.output is None else _field(_OUTPUT, call.output)
    size = len(rest) + input_size + output_size
    prefix = _CALL + varint(size)
    return ShownPart(prefix + rest + arguments.before, output.before), len(prefix) + size
