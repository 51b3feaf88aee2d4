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
    ],
)
def test_refusals_name_place_and_kind(read: Any, value: object, description: str) -> None:
    """The description says what is wrong, the place says where."""
    with pytest.raises(InvalidRequest) as refused:
        read(value, "rows[3].id")
    [violation] = refused.value.violations
    assert (violation.field, violation.description) == ("rows[3].id", description)


def test_missing_keys_are_named() -> None:
    """With the place that lacks them."""
    assert forms.text_of({"id": "x"}, "id", "row") == "x"
    with pytest.raises(InvalidRequest, match=r"row\.id: is missing"):
        forms.text_of({}, "id", "row")
