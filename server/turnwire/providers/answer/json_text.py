"""JSON as providers write it: decoded fast when it is valid, leniently when it is not, and never when it is a bomb.

Some providers cut a surrogate pair between two deltas. Both halves are passed through as lone surrogates, which
msgspec refuses, and the receiver joins them.
"""

import json
from typing import Any

import msgspec

MAX_VALUES = 150_000
"""Of one text, about: what it has of commas and opening brackets. A value takes a hundred times the memory of the two
bytes that write it, and counting so many takes some ten milliseconds. Longest answers have about as many tokens."""

_MAX_LENIENT_BYTES = 256 * 1024
"""The slow decoder takes tens of milliseconds for this. Deltas are far smaller."""

_SMALL_BYTES = 64 * 1024
"""Cannot have so many values that counting them is worth it."""

_decode_fast = msgspec.json.Decoder().decode
_encode_fast = msgspec.json.Encoder().encode


def decode(data: bytes) -> Any:
    """Returns the value.

    Raises:
        ValueError: it is not JSON, or has too many values. Bytes that are not UTF-8 are replaced, not refused.
    """
    if len(data) > _SMALL_BYTES and _has_too_many_values(data):
        raise ValueError(f"more than {MAX_VALUES} values")
    try:
        return _decode_fast(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if len(data) > _MAX_LENIENT_BYTES:
            raise ValueError("not JSON") from error
        return json.loads(data.decode("utf-8", "replace"))


def encode(value: object) -> str:
    """Returns compact JSON text that is valid UTF-8: lone surrogates are written as escapes."""
    try:
        return _encode_fast(value).decode()
    except (UnicodeEncodeError, msgspec.EncodeError):
        return json.dumps(value, separators=(",", ":"), default=_unpacked)


def packed(value: object) -> object:
    """Returns a value that is kept for `encode` with little memory: lists and objects as their text."""
    return msgspec.Raw(encode(value).encode()) if isinstance(value, list | dict) else value


def raw_member(data: bytes, name: str) -> str | None:
    """Returns the exact text of one member of a JSON object; None when it is absent or holds a lone surrogate."""
    try:
        members = _decode_members(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    raw = members.get(name)
    return None if raw is None else bytes(raw).decode()


def _has_too_many_values(data: bytes) -> bool:
    """Counts up to the limit. Finding is far faster than `bytes.count` in what is mostly one long text."""
    left = MAX_VALUES
    for sign in (b",", b"[", b"{"):
        place = data.find(sign)
        while place >= 0 and left >= 0:
            left -= 1
            place = data.find(sign, place + 1)
    return left < 0


def _unpacked(value: object) -> object:
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    raise TypeError(f"not of JSON: {type(value).__name__}")


_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
