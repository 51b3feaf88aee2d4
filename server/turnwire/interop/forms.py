"""Reads JSON of other systems strictly: each refusal names the place and what is wrong there."""

from collections.abc import Collection, Mapping
from typing import Any, NoReturn

import msgspec

from turnwire.domain.errors import InvalidRequest

Json = dict[str, Any]
"""A JSON object as `json.loads` returns it."""

MAX_WHOLE_NUMBER = 2**53 - 1
"""Largest whole number that JSON readers in all languages keep exactly."""


def refuse(place: str, description: str) -> NoReturn:
    """Raises InvalidRequest for a place such as `messages[3].content`."""
    raise InvalidRequest.of(place, description)


def an_object(value: object, place: str) -> Json:
    """Returns a JSON object, or raises InvalidRequest."""
    if not isinstance(value, dict):
        refuse(place, f"must be an object, not {kind_of(value)}")
    return value


def only_keys(value: Mapping[str, object], known: Collection[str], place: str) -> None:
    """Raises InvalidRequest for a key that would be lost. A key without a value (null) says nothing and is taken."""
    for key in value:
        if key not in known and value[key] is not None:
            refuse(f"{place}.{key}", f"is not one of {', '.join(known)}")


def a_text(value: object, place: str) -> str:
    """Returns a text, or raises InvalidRequest."""
    if not isinstance(value, str):
        refuse(place, f"must be text, not {kind_of(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        refuse(place, "has half of a surrogate pair")
    return value


def text_of(value: Mapping[str, object], key: str, place: str) -> str:
    """Returns the text at a key, or raises InvalidRequest when there is no such key or no text."""
    if key not in value:
        refuse(f"{place}.{key}", "is missing")
    return a_text(value[key], f"{place}.{key}")


def a_count(value: object, place: str) -> int:
    """Returns a whole number from 0 to 2^53 - 1, or raises InvalidRequest."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_WHOLE_NUMBER:
        refuse(place, "must be a whole number from 0 to 2^53 - 1")
    return value


def is_readable(text: str) -> bool:
    """Returns whether text is JSON that readers in all languages take.

    False for numbers that are none or too large, for half of a surrogate pair, and for nesting that is too deep.
    """
    try:
        msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def kind_of(value: object) -> str:
    """Returns what a JSON value is, for people."""
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "an array"
        case _:
            return "an object"
