"""Times of pynchy. What is made of whole files is tested end to end, because they are files."""

import math

import pytest

from turnwire.interop.pynchy.conversations import instant


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1970-01-01T00:00:01.000Z", 1_000_000),
        ("1970-01-01T00:00:01+00:00", 1_000_000),
        ("1970-01-01T02:00:01.5+02:00", 1_500_000),
        ("1970-01-01 00:00:01", 1_000_000),
        ("not a time", math.inf),
        ("", math.inf),
        ("0001-01-01T00:00:00+14:00", -62135647200 * 1_000_000),
    ],
)
def test_both_formats_name_one_moment(text: str, microseconds: float) -> None:
    """An offset counts, none is UTC; what is no time sorts last."""
    assert instant(text.encode()) == microseconds


def test_no_time_is_none() -> None:
    """And text that is not valid is no time."""
    assert (instant(None), instant(b"\xff")) == (None, math.inf)
