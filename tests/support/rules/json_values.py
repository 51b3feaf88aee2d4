"""Rules of JSON itself, of names and of files, which the APIs share."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names of tools, and Anthropic's ids."""

MAX_NESTING = 512
"""Deeper JSON is refused by parsers in front of the APIs, and breaks the SDKs' own encoders."""

FIRST_BYTES: Mapping[str, Callable[[bytes], bool]] = {
    "image/png": lambda data: data.startswith(b"\x89PNG"),
    "image/jpeg": lambda data: data.startswith(b"\xff\xd8\xff"),
    "image/gif": lambda data: data.startswith((b"GIF87a", b"GIF89a")),
    "image/webp": lambda data: data[:4] == b"RIFF" and data[8:12] == b"WEBP",
    "application/pdf": lambda data: b"%PDF" in data[:1024],
}
"""By media type, whether content is of it: the APIs look, and refuse what was said to be something else."""


def json_violations(body: Mapping[str, Any]) -> Iterator[str]:
    """Yields why the body cannot be sent as JSON: NaN and infinity, lone surrogates, too deep nesting."""
    try:
        json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        yield f"body: is no JSON: {error}"
        return
    if nesting(body) > MAX_NESTING:
        yield f"body: is nested deeper than {MAX_NESTING}"


def nesting(value: object) -> int:
    """Returns how deep lists and objects are nested; 0 for neither."""
    depth, level = 0, [value]
    while level := [child for item in level for child in _children(item)]:
        depth += 1
    return depth + isinstance(value, dict | list)


def _children(value: object) -> list[object]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [child for child in inner if isinstance(child, dict | list)]


def is_object_text(text: object) -> bool:
    """Tells whether text is a JSON object, strictly: no NaN, no infinity, no lone surrogate, not too deep."""
    if not isinstance(text, str):
        return False
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and not any(json_violations(value))


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)


def is_blank(text: object) -> bool:
    """Tells whether this is no text, or text of white space only."""
    return not isinstance(text, str) or not text.strip()


def base64_violation(media_type: str, text: object) -> str | None:
    """Returns why a file's base64 text would be refused."""
    try:
        data = base64.b64decode(text if isinstance(text, str) else "", validate=True)
    except binascii.Error as error:
        return f"is no base64: {error}"
    if not data:
        return "is empty"
    is_of_type = FIRST_BYTES.get(media_type)
    if is_of_type is None:
        return f"has media type {media_type!r}"
    return None if is_of_type(data) else f"is not {media_type}"


def data_url_violation(url: object) -> str | None:
    """Returns why the data URL of a file would be refused."""
    match = re.fullmatch(r"data:([^;,]*);base64,(.*)", url if isinstance(url, str) else "", re.DOTALL)
    return base64_violation(match[1], match[2]) if match else "is no base64 data URL"


def schema_violations(place: str, schema: object) -> Iterator[str]:
    """Yields what is wrong with the schema of a tool's arguments."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield f"{place}: the schema is not of type object"


def name_violations(place: str, names: list[Any]) -> Iterator[str]:
    """Yields what is wrong with the names of declared tools."""
    for index, name in enumerate(names):
        if not isinstance(name, str) or not NAME.fullmatch(name):
            yield f"{place}[{index}]: the name {name!r} is not [A-Za-z0-9_-]{{1,64}}"
        elif name in names[:index]:
            yield f"{place}[{index}]: the name {name!r} is taken"
