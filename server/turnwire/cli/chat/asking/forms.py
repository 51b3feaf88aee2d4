"""The form of a question: its fields, and how what a person types becomes the value of one.

The schema and all its texts come from a tool: they are shown, never trusted. What is not checked here, a pattern or a
format, the server or the tool checks.
"""

import json
import math
import re
from typing import Any, NamedTuple

MAX_TYPED_CHARS = 64 * 1024
"""What the server takes of a whole form."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?")
_WORDS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "yes or no", "array": "choices"}
_BOUNDS = (
    *(("minimum", "at least {}"), ("maximum", "at most {}")),
    *(("minLength", "at least {} characters"), ("maxLength", "at most {} characters")),
    *(("minItems", "at least {} of them"), ("maxItems", "at most {} of them"), ("format", "{}"), ("pattern", "as {}")),
)


class FormProblemError(Exception):
    """What was typed is no value of the field; its text says why, for the person."""


class Choice(NamedTuple):
    """One of the values of a field."""

    value: str
    title: str
    """What to show; the value where the tool gives no title."""


class Field(NamedTuple):
    """One field of a form."""

    name: str
    kind: str
    """As in JSON Schema: string, integer, number, boolean, or array for several choices."""
    schema: dict[str, Any]
    choices: tuple[Choice, ...]
    required: bool

    @property
    def title(self) -> str:
        """What to call it."""
        return _text(self.schema.get("title")) or self.name

    @property
    def description(self) -> str:
        """What the tool says about it; "" for nothing."""
        return _text(self.schema.get("description"))

    @property
    def has_default(self) -> bool:
        """Whether an empty line gives a value."""
        return "default" in self.schema

    @property
    def has_numbers(self) -> bool:
        """Whether a choice can be named by its place: not where that could be another one's value."""
        return not any(word.strip().isdecimal() for choice in self.choices for word in choice)

    @property
    def expects(self) -> str:
        """The kind of value and its bounds in words."""
        kind = "one of the choices" if self.choices and self.kind == "string" else _KINDS[self.kind]
        bounds = (words.format(self.schema[key]) for key, words in _BOUNDS if key in self.schema)
        return ", ".join([kind, *bounds, *(() if self.required else ("optional",))])


def fields_of(schema_json: str) -> tuple[Field, ...] | None:
    """Returns the fields of a form in order; None when this chat cannot show it: it may be of a newer server."""
    try:
        schema = json.loads(schema_json)
        required = schema.get("required", [])
        return tuple(_field(name, value, name in required) for name, value in schema.get("properties", {}).items())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def value_of(field: Field, typed: str) -> Any:
    """Returns the value that was typed, which is not empty. Raises FormProblemError when it is none."""
    if len(typed) > MAX_TYPED_CHARS:
        raise FormProblemError(f"is longer than {MAX_TYPED_CHARS} characters")
    value = _read(field, typed)
    low, high = _limits(field)
    measured = value if field.kind in ("integer", "number") else len(value) if isinstance(value, str | list) else 0
    if (low is not None and measured < low) or (high is not None and measured > high):
        raise FormProblemError(f"is not allowed: {field.expects}")
    return value


def shown(field: Field, value: Any) -> str:
    """Returns a value in the words of the form."""
    match value:
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(shown(field, one) for one in value)
        case str():
            return next((choice.title for choice in field.choices if choice.value == value), value)
    return json.dumps(value, ensure_ascii=False)


def _field(name: str, schema: dict[str, Any], required: bool) -> Field:
    kind = schema["type"]
    listed = schema.get("items", {}) if kind == "array" else schema
    choices = _choices(listed)
    if kind not in _KINDS or (kind == "array" and not choices):
        raise KeyError(kind)
    return Field(name, kind, schema, choices, required)


def _choices(schema: dict[str, Any]) -> tuple[Choice, ...]:
    titled = schema.get("oneOf") or schema.get("anyOf") or []
    if titled:
        return tuple(Choice(one["const"], _text(one.get("title")) or one["const"]) for one in titled)
    values, titles = schema.get("enum") or [], schema.get("enumNames")
    if not isinstance(titles, list) or len(titles) != len(values):
        titles = values
    return tuple(Choice(value, _text(title) or value) for value, title in zip(values, titles, strict=True))


def _limits(field: Field) -> tuple[float | None, float | None]:
    suffix = {"string": "Length", "array": "Items", "integer": "imum", "number": "imum"}.get(field.kind, "")
    low, high = field.schema.get(f"min{suffix}"), field.schema.get(f"max{suffix}")
    return low if isinstance(low, int | float) else None, high if isinstance(high, int | float) else None


def _read(field: Field, typed: str) -> Any:
    word = typed.strip()
    match field.kind:
        case "boolean":
            if word.lower() not in _WORDS:
                raise FormProblemError("is neither yes nor no")
            return _WORDS[word.lower()]
        case "integer":
            if not _INTEGER.fullmatch(word):
                raise FormProblemError("is not a whole number")
            return int(word)
        case "number":
            if _INTEGER.fullmatch(word):
                return int(word)
            if not _NUMBER.fullmatch(word) or not math.isfinite(float(word)):
                raise FormProblemError("is not a number")
            return float(word)
        case "array":
            return _several(field, word)
    return _chosen(field, word) if field.choices else typed


def _several(field: Field, typed: str) -> list[str]:
    try:
        return [_chosen(field, typed)]  # it may have a comma
    except FormProblemError:
        chosen = [_chosen(field, word.strip()) for word in typed.split(",") if word.strip()]
        return list(dict.fromkeys(chosen))


def _chosen(field: Field, word: str) -> str:
    for choice in field.choices:
        if word in choice:
            return choice.value
    if field.has_numbers and re.fullmatch("[0-9]{1,4}", word) and 0 < int(word) <= len(field.choices):
        return field.choices[int(word) - 1].value
    found = {choice.value for choice in field.choices if word.lower() in (choice.value.lower(), choice.title.lower())}
    if len(found) != 1:
        raise FormProblemError(f"{word[:50]!r} is not one of the choices")
    return found.pop()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
