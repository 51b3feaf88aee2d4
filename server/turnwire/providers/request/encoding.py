"""JSON as it goes over the wire, in pieces: a large file is encoded a bit at a time."""

import json
import secrets
from base64 import b64encode
from typing import Any

from msgspec import Struct

from turnwire.domain.incremental.slices import Sliced

_FORM: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
"""As both SDKs write JSON."""

_encode = json.JSONEncoder(**_FORM).encode

_MARK = f"<{secrets.token_hex(16)}>"
"""Stands for a file while the JSON around it is made. Drawn by chance, so that no text can have it."""

_FILE_BYTES = 3 * 2**17
"""Of a file, encoded between two interruptions: takes less than half a millisecond. Divisible by 3, as base64 wants."""


class Base64File(Struct, frozen=True):
    """A value of JSON: bytes as a base64 string."""

    before: str
    """Comes before the base64 text in the string; needs no escapes."""
    data: bytes


def encoded(value: object) -> bytes:
    """Returns a value without files as JSON."""
    return _encode(value).encode()


def encoded_in_pieces(value: object) -> Sliced[list[bytes]]:
    """Returns a value as JSON: one piece, or several when it has files. None is empty."""
    files: list[Base64File] = []

    def marked(file: object) -> str:
        if not isinstance(file, Base64File):
            raise TypeError(f"{type(file).__name__} has no form in JSON")
        files.append(file)
        return _MARK

    texts = json.JSONEncoder(**_FORM, default=marked).encode(value).encode().split(_MARK.encode())
    pieces = [texts[0]]
    for file, text in zip(files, texts[1:], strict=True):
        pieces[-1] += file.before.encode()
        for start in range(0, len(file.data), _FILE_BYTES):
            pieces.append(b64encode(file.data[start : start + _FILE_BYTES]))
            yield
        pieces.append(text)
    return pieces
