"""Defaults of settings in the words of a document, and filled into those that are written by hand."""

import re

from msgspec.structs import fields

from turnwire.config.sections import SECTIONS, TABLES

_UNITS = {
    "bytes": ((2**20, "MiB"), (2**10, "KiB"), (1, "bytes")),
    "seconds": ((3600, "hours"), (60, "minutes"), (1, "seconds")),
}
_FILLED_IN = re.compile(
    r"(?P<value>\d[\d,.]*(?: (?:MiB|KiB|bytes?|hours?|minutes?|seconds?))?)"
    r"(?P<between>[^|\n(]*\(`)(?P<key>[a-z]+\.[A-Za-z_.]+)`"
)
"""A value, a few words, and its key in brackets: "32 MiB (`limits.max_message_bytes`)"."""


def in_words(key: str, value: object) -> str:
    """Returns a number for people: "32 MiB" or "10,000"; the unit is the end of the key. "" for what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    unit_of_key = key.rpartition("_")[2]
    for factor, unit in _UNITS.get(unit_of_key, ()):
        if value > factor and value % factor == 0:
            return f"{value // factor:,.0f} {unit}"
    if unit_of_key == "seconds":
        return "1 second" if value == 1 else f"{value:,} seconds"
    return f"{value:,}"


def with_defaults(text: str) -> str:
    """Returns a text in which every value that its key follows in brackets is the key's default.

    Raises:
        KeyError: there is no such key.
    """
    return _FILLED_IN.sub(
        lambda found: f"{in_words(found['key'], default(found['key']))}{found['between']}{found['key']}`", text
    )


def default(path: str) -> object:
    """Returns the default of a key such as "limits.max_steps" or "mcp.NAME.timeout_seconds". Raises KeyError."""
    section, *_, key = path.split(".")
    return {field.encode_name: field.default for field in fields({**SECTIONS, **TABLES}[section])}[key]
