"""The fields of a form, and the values that are typed."""

import json
from typing import Any

import pytest

from turnwire.cli.chat.asking.forms import Field, FormProblemError, fields_of, shown, value_of

SIZES = {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large, hot"}]}


def field(schema: dict[str, Any], *, required: bool = True) -> Field:
    """Returns the only field of a form."""
    form = {"type": "object", "properties": {"x": schema}, "required": ["x"] if required else []}
    (only,) = fields_of(json.dumps(form)) or ()
    return only


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, "any, text", "any, text"),
        ({"type": "integer"}, " -12 ", -12),
        ({"type": "number"}, "3", 3),
        ({"type": "number"}, "2.5e1", 25.0),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "string", "enum": ["red", "blue"]}, "BLUE", "blue"),
        ({"type": "string", "enum": ["red", "blue"]}, "2", "blue"),
        ({"type": "string", "enum": ["10", "1"]}, "1", "1"),
        ({"type": "string", "enum": ["r", "b"], "enumNames": ["Red", "Blue"]}, "blue", "b"),
        (SIZES, "Large, hot", "l"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}, "c, 1, a", ["c", "a"]),
        ({"type": "array", "items": {"anyOf": SIZES["oneOf"]}}, "Large, hot", ["l"]),
    ],
)
def test_what_is_typed_becomes_a_value_of_its_kind(schema: dict[str, Any], typed: str, value: Any) -> None:
    """Choices are named by title, value or place; by place only where that is no other one's value."""
    found = value_of(field(schema), typed)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "typed", "why"),
    [
        ({"type": "integer"}, "1.5", "whole number"),
        ({"type": "integer"}, "1_000", "whole number"),
        ({"type": "integer"}, "9" * 5000, "whole number"),
        ({"type": "integer", "minimum": 3}, "2", "at least 3"),
        ({"type": "number"}, "nan", "not a number"),
        ({"type": "number"}, "1e999", "not a number"),
        ({"type": "number", "maximum": 1.5}, "2", "at most 1.5"),
        ({"type": "boolean"}, "perhaps", "neither yes nor no"),
        ({"type": "string", "maxLength": 3}, "four", "at most 3 characters"),
        ({"type": "string"}, "x" * 70_000, "longer"),
        ({"type": "string", "enum": ["a", "b"]}, "3", "not one of the choices"),
        ({"type": "string", "enum": ["a", "A"], "enumNames": ["One", "one"]}, "ONE", "not one of the choices"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 1}, "a,b", "at most 1 of them"),
    ],
)
def test_what_is_no_value_is_told(schema: dict[str, Any], typed: str, why: str) -> None:
    """In words for the person, before anything is sent."""
    with pytest.raises(FormProblemError, match=why):
        value_of(field(schema), typed)


def test_a_field_says_what_it_expects() -> None:
    """Its title or name, its kind with bounds, and whether it may be left out."""
    coats = field({"type": "integer", "title": "Coats", "description": "How many", "minimum": 1}, required=False)
    assert (coats.title, coats.description) == ("Coats", "How many")
    assert coats.expects == "whole number, at least 1, optional"
    assert (field({"type": "string", "title": 7}).title, field(SIZES).expects) == ("x", "one of the choices")


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "[]",
        "{",
        '{"properties": []}',
        '{"properties": {"x": {"type": "object"}}}',
        '{"properties": {"x": {"type": ["string"]}}}',
        '{"properties": {"x": 7}}',
        '{"properties": {"x": {"type": "array", "items": {"type": "object"}}}}',
        '{"properties": {"x": {"type": "string", "oneOf": [{}]}}}',
    ],
)
def test_a_form_of_a_newer_kind_cannot_be_shown(schema: str) -> None:
    """Instead of asking for something else than the tool wants."""
    assert fields_of(schema) is None


def test_values_are_shown_in_the_words_of_the_form() -> None:
    """With the titles of choices."""
    assert shown(field(SIZES), "l") == "Large, hot"
    assert shown(field({"type": "boolean"}), False) == "no"
    assert shown(field({"type": "array", "items": {"enum": ["a", "b"]}}), ["a", "b"]) == "a, b"
    assert shown(field({"type": "number"}), 2.5) == "2.5"
