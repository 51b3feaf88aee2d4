"""Counts the values of a request, before it is parsed.

A value takes two bytes on the wire and more than a hundred in memory, and the parsers keep the interpreter while they
read. Here counting ends at the bound.
"""

import re
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from turnwire.domain.errors import InvalidRequest

MAX_VALUES = 20_000
"""Fields of a request with those of its messages, elements of lists, or values of JSON. A message has 1,000 parts of
some fields and 128 tools at most."""

MAX_DEPTH = 100
"""Messages within messages; as many as the parser takes."""

COUNTED_BYTES = 4096
"""Shorter requests are not counted: their values are few."""

MAX_JSON_BYTES = 8 * 2**20
"""Maximum size of a request in JSON. Its texts are read character by character, and nothing else runs meanwhile. The
same request in protobuf may have any size."""

_PIECES = re.compile(rb'[^"\\]{1,65536}|(?:\\.?){1,1000}|"', re.DOTALL)
"""Pieces of JSON: a quote, escapes, or the text between them. Each is short, so that other tasks can run between
them."""

_NUMBER, _BYTES = 0, 2
"""Forms of a field on the wire: a number, or a length and as many bytes."""

_SIZES = {1: 8, 5: 4, 3: 0, 4: 0}
"""Bytes of the other forms; those of groups have none of their own."""

_OF_VALUES = (b",", b"[", b"{")
"""The bytes before a value in JSON."""


def counted(kind: type[Message]) -> Callable[[bytes], Message]:
    """Returns a function that reads messages of a kind.

    It raises InvalidRequest for one with too many values, and DecodeError for what is none.
    """
    descriptor, parse = kind.DESCRIPTOR, kind.FromString

    def parsed(data: bytes) -> Message:
        if len(data) >= COUNTED_BYTES:
            check_fields(descriptor, data)
        return parse(data)

    return parsed


def check_fields(descriptor: Any, data: bytes) -> None:
    """Counts the fields of an encoded message. Raises InvalidRequest: there are too many; DecodeError: it is broken.

    Args:
        descriptor: The descriptor of the message.
        data: Its bytes.
    """
    left, place, end = MAX_VALUES, 0, len(data)
    outer: list[tuple[int, Any]] = []
    try:
        while place < end or outer:
            if place >= end:
                end, descriptor = outer.pop()
                continue
            left -= 1
            tag, place = _varint(data, place)
            if tag & 7 == _NUMBER:
                _, place = _varint(data, place)
            elif tag & 7 == _BYTES:
                length, place = _varint(data, place)
                message, elements = _within(descriptor, tag >> 3, length)
                left -= elements
                if message is None:
                    place += length
                else:
                    outer.append((end, descriptor))
                    descriptor, end = message, _inner_end(place + length, end, len(outer))
            else:
                place += _SIZES[tag & 7]
            if left < 0:
                raise _too_many()
    except (IndexError, KeyError):
        raise DecodeError("a field is cut, or of no known form") from None


def _within(descriptor: Any, number: int, length: int) -> tuple[Any, int]:
    """Returns the type of the message that a field with a length is, or None; and how many elements it may have."""
    field = descriptor.fields_by_number.get(number)
    if field is None or field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return None, 0
    return (None, length) if field.message_type is None else (field.message_type, 0)


def _inner_end(end: int, outer_end: int, depth: int) -> int:
    if end > outer_end or depth > MAX_DEPTH:
        raise DecodeError("a message is cut, or too deep")
    return end


def check_json(data: bytes) -> None:
    """Counts the values of JSON, at most. Raises InvalidRequest: there are too many, or it is too long."""
    if len(data) > MAX_JSON_BYTES:
        limit = str(MAX_JSON_BYTES)
        raise InvalidRequest.of("request", f"is larger than {limit} bytes as JSON", "TOO_LONG", limitValue=limit)
    if sum(map(data.count, _OF_VALUES)) <= MAX_VALUES:
        return
    left, is_text = MAX_VALUES, False
    for piece in _PIECES.finditer(data):
        found = piece[0]
        if found == b'"':
            is_text = not is_text
        elif not is_text:
            left -= sum(map(found.count, _OF_VALUES))
            if left < 0:
                raise _too_many()


def _too_many() -> InvalidRequest:
    limit = str(MAX_VALUES)
    return InvalidRequest.of("request", f"has more than {limit} values", "TOO_MANY", limitValue=limit)


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Returns a number and where it ends. Raises IndexError."""
    byte = data[place]
    if byte < 0x80:
        return byte, place + 1
    value, shift = byte & 0x7F, 7
    while True:
        place += 1
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
        if shift > 63:
            raise IndexError
