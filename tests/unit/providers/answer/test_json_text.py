"""JSON of providers."""

import json

import msgspec
import pytest

from turnwire.providers.answer import json_text


def test_half_a_surrogate_pair_is_passed_through() -> None:
    """In what is small: deltas are."""
    assert json_text.decode(b'{"a":"\\ud83d"}') == {"a": "\ud83d"}
    assert json.loads(json_text.encode({"a": "\ud83d"})) == {"a": "\ud83d"}
    with pytest.raises(ValueError, match="not JSON"):
        json_text.decode(b'{"a":"\\ud83d' + b"x" * 300_000 + b'"}')


@pytest.mark.parametrize("piece", [b"[],", b"1,", b'{"a":{}},'])
def test_values_are_counted_before_they_are_made(piece: bytes) -> None:
    """A text of many small values is refused; one long text is not."""
    with pytest.raises(ValueError, match="values"):
        json_text.decode(b"[" + piece * 300_000 + b"0]")
    assert json_text.decode(b'"' + b"x" * 5_000_000 + b'"') == "x" * 5_000_000


def test_nesting_is_an_error() -> None:
    """However deep."""
    with pytest.raises(Exception):  # noqa: B017 - of any kind: the stream calls it data that cannot be decoded
        json_text.decode(b"[" * 200_000)


def test_packed_values_are_written_as_they_were() -> None:
    """Beside half a surrogate pair too."""
    value = {"b": [1, {"c": "\u00e9"}], "a": None}
    assert isinstance(json_text.packed(value), msgspec.Raw)
    assert (json_text.packed("x"), json_text.packed(None)) == ("x", None)
    whole = {"odd": "\ud83d", "packed": json_text.packed(value), "list": [json_text.packed([])]}
    assert json.loads(json_text.encode(whole)) == {"odd": "\ud83d", "packed": value, "list": [[]]}
