"""Reads values of foreign JSON. Null counts as missing; a value of another type is rejected with its position."""

import json
from datetime import UTC, datetime
from typing import Any

from turnwire.domain.text import one_line
from turnwire.interop.forms import Json, a_text, an_object, kind_of, refuse

_NO_MOMENT = "is not a moment from 1970 to 9998"
MAX_ID_CHARS = 256
"""Ids of the five systems have at most 60."""


def objects(value: Json, key: str, place: str) -> list[tuple[Json, str]]:
    """Returns the objects of the array at a key with their positions; [] for none."""
    at = within(place, key)
    items = enumerate(array(value, key, place))
    return [(an_object(item, f"{at}[{index}]"), f"{at}[{index}]") for index, item in items]


def array(value: Json, key: str, place: str) -> list[Any]:
    """Returns the array at a key; [] for none."""
    found = value.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        refuse(within(place, key), f"must be an array, not {kind_of(found)}")
    return found


def an_object_at(value: Json, key: str, place: str) -> Json:
    """Returns the object at a key; {} for none."""
    found = value.get(key)
    return {} if found is None else an_object(found, within(place, key))


def text_at(value: Json, key: str, place: str) -> str:
    """Returns the text at a key; "" for none."""
    found = value.get(key)
    if isinstance(found, str) and found.isascii():
        return found  # nearly all are, and computing a position costs more than the rest
    return "" if found is None else a_text(found, within(place, key))


def id_at(value: Json, key: str, place: str) -> str:
    """Returns the id at a key; "" for none."""
    found = text_at(value, key, place)
    if len(found) > MAX_ID_CHARS:
        refuse(within(place, key), f"is an id with more than {MAX_ID_CHARS} characters")
    return found


def flag_at(value: Json, key: str, place: str) -> bool:
    """Returns the truth value at a key; False for none."""
    found = value.get(key)
    if found is not None and not isinstance(found, bool):
        refuse(within(place, key), f"must be true or false, not {kind_of(found)}")
    return found is True


def number_at(value: Json, key: str, place: str) -> float | int | None:
    """Returns the number at a key; None for none."""
    found = value.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        refuse(within(place, key), f"must be a number, not {kind_of(found)}")
    return found


def seconds_at(value: Json, key: str, place: str, per_second: int = 1) -> datetime | None:
    """Returns the time at a key, a number since 1970 in seconds or parts of them; None for none."""
    found = number_at(value, key, place)
    if found is None:
        return None
    try:
        moment = datetime.fromtimestamp(found / per_second, UTC)
    except (ValueError, OverflowError, OSError):
        refuse(within(place, key), _NO_MOMENT)
    return _possible(moment, within(place, key))


def moment_at(value: Json, key: str, place: str) -> datetime | None:
    """Returns the time at a key, a text such as "2024-05-01T12:00:00Z"; None for none. Without a zone it is UTC."""
    found = text_at(value, key, place)
    if not found:
        return None
    try:
        moment = datetime.fromisoformat(found)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        refuse(within(place, key), "is not a date and time such as 2024-05-01T12:00:00Z")
    return _possible(moment, within(place, key))


def _possible(moment: datetime, place: str) -> datetime:
    if not 1970 <= moment.year <= 9998:
        refuse(place, _NO_MOMENT)
    return moment


def within(place: str, key: str) -> str:
    """Returns the position of a key; a foreign key is truncated."""
    shown = one_line(key, 64)
    return f"{place}.{shown}" if place else shown


def compact(value: Json) -> str:
    """Returns an object as JSON text, in the form in which arguments of calls are stored."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
