"""Deadlines in the form of each protocol."""

import pytest

from turnwire.api.web.encoding.deadlines import BadTimeout, connect_timeout, grpc_timeout


@pytest.mark.parametrize(
    ("text", "seconds"), [(None, None), ("0", 0), ("1500", 1.5), ("0000000001", 0.001), ("9999999999", None)]
)
def test_connect_counts_milliseconds(text: str | None, seconds: float | None) -> None:
    """A deadline of months is none."""
    assert connect_timeout(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("2H", 7200),
        ("1M", 60),
        ("3S", 3),
        ("250m", 0.25),
        ("5u", 5e-6),
        ("7n", 7e-9),
        ("99999999H", None),
    ],
)
def test_grpc_has_units(text: str | None, seconds: float | None) -> None:
    """From hours to nanoseconds."""
    assert grpc_timeout(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("text", ["", "-1", "1.5", "soon", "12345678901", "١"])
def test_what_is_no_number_is_refused(text: str) -> None:
    """Nor does a number of another script count."""
    with pytest.raises(BadTimeout):
        connect_timeout(text)
    with pytest.raises(BadTimeout):
        grpc_timeout(text)
