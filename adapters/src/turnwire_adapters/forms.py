"""Reads JSON of other systems: each refusal names the place and what is wrong there."""

import json
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

Json = dict[str, Any]
"""A JSON object as `json.loads` returns it."""

MAX_WHOLE_NUMBER = 2**53 - 1
"""Largest whole number that JSON readers in all languages keep exactly."""


MAX_NESTING = 500
"""Levels of a value, half of what Python reads: it is written again within other objects, and from deeper calls."""


class WrongJson(ValueError):
    """JSON of another form than was asked for."""

    def __init__(self, place: str, description: str) -> None:
        """Takes a place such as `messages[3].content`, and what is wrong there."""
        super().__init__(f"{place}: {description}")
        self.place = place
        self.description = description


def refuse(place: str, description: str) -> NoReturn:
    """Raises WrongJson."""
    raise WrongJson(place, description)


def an_object(value: object, place: str) -> Json:
    """Returns a JSON object, or raises WrongJson."""
    if not isinstance(value, dict):
        refuse(place, f"must be an object, not {kind_of(value)}")
    return value


def an_array(value: object, place: str) -> list[Any]:
    """Returns a JSON array, or raises WrongJson."""
    if not isinstance(value, list):
        refuse(place, f"must be an array, not {kind_of(value)}")
    return value


def only_keys(value: Mapping[str, object], known: Collection[str], place: str) -> None:
    """Raises WrongJson for a key that would be lost. A key without a value (null) says nothing and is taken."""
    for key in value:
        if key not in known and value[key] is not None:
            refuse(f"{place}.{key}", f"is not one of {', '.join(known)}")


def a_text(value: object, place: str) -> str:
    """Returns a text, or raises WrongJson."""
    if not isinstance(value, str):
        refuse(place, f"must be text, not {kind_of(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        refuse(place, "has half of a surrogate pair")
    return value


def text_at(value: Mapping[str, object], key: str, place: str) -> str:
    """Returns the text at a key, or raises WrongJson when there is no such key or no text."""
    if key not in value:
        refuse(f"{place}.{key}", "is missing")
    return a_text(value[key], f"{place}.{key}")


def only_whole_texts(value: Any) -> None:
    """Raises WrongJson with the place of a text, or of an object with a key, that has half of a surrogate pair."""
    left: list[tuple[str, Any]] = [("", value)]
    while left:  # without recursion: a body may be nested as deep as it can be read
        place, one = left.pop()
        if isinstance(one, dict):
            for key in one:
                a_text(key, place)
            left += [(f"{place}.{key}" if place else key, within) for key, within in one.items()]
        elif isinstance(one, list):
            left += [(f"{place}[{index}]", within) for index, within in enumerate(one)]
        elif isinstance(one, str):
            a_text(one, place)


def a_count(value: object, place: str) -> int:
    """Returns a whole number from 0 to 2^53 - 1, or raises WrongJson."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_WHOLE_NUMBER:
        refuse(place, "must be a whole number from 0 to 2^53 - 1")
    return value


def read_json(text: str | bytes, place: str) -> Any:
    """Returns the value of JSON text, or raises WrongJson."""
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # also a number of too many digits
        refuse(place, f"is not JSON: {error}")
    if _is_deep(value):
        refuse(place, f"has more than {MAX_NESTING} levels")
    return value


def is_readable(text: str) -> bool:
    """Returns whether text is JSON that readers in all languages take.

    False for numbers that are none or too large, for half of a surrogate pair, and for nesting that is too deep.
    """
    try:
        value = json.loads(text, parse_constant=_no_number)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return not _is_deep(value)


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


def _is_deep(value: object) -> bool:
    level: list[Any] = [[value]]
    for _ in range(MAX_NESTING + 1):
        within = (child for one in level for child in (one.values() if isinstance(one, dict) else one))
        level = [child for child in within if isinstance(child, dict | list)]
    return bool(level)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
