"""Encodes JSON in pieces: a large file or text is encoded in steps, between which other tasks run."""

import json
import secrets
from base64 import b64encode
from typing import Any

from msgspec import Struct

from turnwire.domain.text import TEXT_CHARACTERS, pieces_of

_FORM: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
"""Options with which both SDKs write JSON."""

_encode = json.JSONEncoder(**_FORM).encode

_MARK = f"<{secrets.token_hex(16)}>"
"""Stands for a file or a long text while the JSON around it is made. Random, so that no text contains it."""

_FILE_BYTES = 3 * 2**17
"""Bytes of a file that one call encodes; it holds the interpreter for less than half a millisecond. Divisible by 3, as
base64 requires."""


class Base64File(Struct, frozen=True):
    """A JSON value: bytes as a base64 string."""

    before: str
    """Precedes the base64 text in the string; needs no escapes."""
    data: bytes


def encoded(value: object) -> bytes:
    """Returns a value without files as JSON."""
    return _encode(value).encode()


class _LongText(Struct, frozen=True):
    """A JSON value: a text."""

    text: str


def encoded_in_pieces(value: object) -> list[bytes]:
    """Returns a value as JSON: one piece, or several when it has files or long texts. No piece is empty."""
    found: list[Base64File | _LongText] = []

    def marked(one: object) -> str:
        if not isinstance(one, Base64File | _LongText):
            raise TypeError(f"{type(one).__name__} has no form in JSON")
        found.append(one)
        return _MARK

    texts = json.JSONEncoder(**_FORM, default=marked).encode(_with_long_texts(value)).encode().split(_MARK.encode())
    pieces = [texts[0]]
    for one, text in zip(found, texts[1:], strict=True):
        if isinstance(one, Base64File):
            pieces[-1] += one.before.encode()
            for start in range(0, len(one.data), _FILE_BYTES):
                pieces.append(b64encode(one.data[start : start + _FILE_BYTES]))
        else:
            for some in pieces_of(one.text):
                pieces.append(encoded(some)[1:-1])  # without its quotes
        pieces.append(text)
    return pieces


def _with_long_texts(value: object) -> object:
    """Returns a value whose long texts are marked."""
    match value:
        case str() if len(value) > TEXT_CHARACTERS:
            return _LongText(value)
        case dict():
            return {key: _with_long_texts(one) for key, one in value.items()}
        case list() | tuple():
            return [_with_long_texts(one) for one in value]
        case _:
            return value
