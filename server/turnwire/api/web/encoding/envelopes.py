"""Envelopes: how messages follow each other in a body. A byte of flags, four bytes of length, and the message."""

from collections.abc import Iterator
from typing import NamedTuple

COMPRESSED = 0x01
"""Flag: the message is compressed by the encoding that the headers name."""

HEADER_BYTES = 5


class BrokenEnvelope(Exception):
    """A body does not consist of whole envelopes."""


class Envelope(NamedTuple):
    """One message as it travels."""

    flags: int
    data: bytes


def envelope(flags: int, data: bytes) -> bytes:
    """Returns a message with its flags and length before it."""
    return bytes((flags,)) + len(data).to_bytes(4, "big") + data


def envelopes(body: bytes) -> Iterator[Envelope]:
    """Yields the messages of a whole body in order. Raises BrokenEnvelope."""
    position = 0
    while position < len(body):
        start = position + HEADER_BYTES
        if len(body) < start:
            raise BrokenEnvelope(f"{len(body) - position} bytes are too few for an envelope")
        length = int.from_bytes(body[position + 1 : start], "big")
        if len(body) < start + length:
            raise BrokenEnvelope(f"an envelope announces {length} bytes and has {len(body) - start}")
        yield Envelope(body[position], body[start : start + length])
        position = start + length
