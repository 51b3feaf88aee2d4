"""Reads JSON of other systems strictly: each error names the position and the problem."""

from collections.abc import Mapping
from typing import Any, NoReturn

from turnwire.domain.errors import InvalidRequest

Json = dict[str, Any]
"""A JSON object as `json.loads` returns it."""

MAX_WHOLE_NUMBER = 2**53 - 1
"""Largest whole number that JSON readers in all languages read exactly."""


def refuse(place: str, description: str) -> NoReturn:
    """Raises InvalidRequest for a position such as `messages[3].content`."""
    raise InvalidRequest.of(place, description)


def an_object(value: object, place: str) -> Json:
    """Returns a JSON object, or raises InvalidRequest."""
    if not isinstance(value, dict):
        refuse(place, f"must be an object, not {kind_of(value)}")
    return value


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
    """Returns the text at a key. Raises InvalidRequest when the key is missing or its value is not a text."""
    if key not in value:
        refuse(f"{place}.{key}", "is missing")
    return a_text(value[key], f"{place}.{key}")


def kind_of(value: object) -> str:
    """Returns the kind of a JSON value, for people."""
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
