"""JSON of providers."""

import json

import pytest

from turnwire.providers.answer import json_text


def test_half_a_surrogate_pair_is_passed_through() -> None:
    """The receiver joins the halves."""
    assert json_text.decode(b'{"a":"\\ud83d"}') == {"a": "\ud83d"}
    assert json.loads(json_text.encode({"a": "\ud83d"})) == {"a": "\ud83d"}


def test_nesting_is_an_error() -> None:
    """However deep."""
    with pytest.raises(Exception):  # noqa: B017 - of any kind: the stream calls it data that cannot be decoded
        json_text.decode(b"[" * 200_000)
