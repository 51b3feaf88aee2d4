"""Strict reading of JSON."""

from typing import Any

import pytest

from turnwire.domain.errors import InvalidRequest
from turnwire.interop import forms


@pytest.mark.parametrize(
    ("read", "value", "description"),
    [
        (forms.an_object, [], "must be an object, not an array"),
        (forms.an_object, None, "must be an object, not null"),
        (forms.a_text, {}, "must be text, not an object"),
        (forms.a_text, 7, "must be text, not a number"),
        (forms.a_text, "\ud800", "has half of a surrogate pair"),
        (forms.a_count, True, "must be a whole number from 0 to 2^53 - 1"),
        (forms.a_count, -1, "must be a whole number from 0 to 2^53 - 1"),
        (forms.a_count, 2**53, "must be a whole number from 0 to 2^53 - 1"),
        (forms.a_count, 1.0, "must be a whole number from 0 to 2^53 - 1"),
    ],
)
def test_refusals_name_place_and_kind(read: Any, value: object, description: str) -> None:
    """What is wrong stands beside where."""
    with pytest.raises(InvalidRequest) as refused:
        read(value, "rows[3].id")
    [violation] = refused.value.violations
    assert (violation.field, violation.description) == ("rows[3].id", description)


def test_unknown_keys_are_refused_unless_they_say_nothing() -> None:
    """A key would be lost; null is the same as no key."""
    forms.only_keys({"a": 1, "b": None}, ("a",), "row")
    with pytest.raises(InvalidRequest, match=r"row\.b: is not one of a"):
        forms.only_keys({"a": 1, "b": 2}, ("a",), "row")


def test_missing_keys_are_named() -> None:
    """With the place that lacks them."""
    assert forms.text_of({"id": "x"}, "id", "row") == "x"
    with pytest.raises(InvalidRequest, match=r"row\.id: is missing"):
        forms.text_of({}, "id", "row")
