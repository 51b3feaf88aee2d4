"""Decodes JSON as providers write it: fast when it is valid, and leniently when it is not.

Some providers cut a surrogate pair between two deltas. Both halves are passed through as lone surrogates, which msgspec
rejects, and the receiver joins them.
"""

import json
from typing import Any

import msgspec

_decode_fast = msgspec.json.Decoder().decode
_encode_fast = msgspec.json.Encoder().encode


def decode(data: bytes) -> Any:
    """Returns the value.

    Raises:
        ValueError: it is not JSON. Bytes that are not UTF-8 are replaced, not rejected.
    """
    try:
        return _decode_fast(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data.decode("utf-8", "replace"))


def encode(value: object) -> str:
    """Returns compact JSON text that is valid UTF-8: lone surrogates are written as escapes."""
    try:
        return _encode_fast(value).decode()
    except (UnicodeEncodeError, msgspec.EncodeError):
        return json.dumps(value, separators=(",", ":"))


def raw_member(data: bytes, name: str) -> str | None:
    """Returns the exact text of one member of a JSON object; None when it is absent or has a lone surrogate."""
    try:
        members = _decode_members(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    raw = members.get(name)
    return None if raw is None else bytes(raw).decode()


_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
