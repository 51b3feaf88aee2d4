"""Sealed text opens with its key and its context only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.core.watches.seal import MAX_CONTENT_BYTES, TAG_BYTES, Seal

SEAL = Seal(bytes(32))


@given(st.text(max_size=20), st.binary(min_size=1, max_size=MAX_CONTENT_BYTES))
def test_what_is_sealed_opens(context: str, content: bytes) -> None:
    """Sealed again it is the same, so that many callers share one text."""
    sealed = SEAL.close(context, content)
    assert SEAL.open(context, sealed) == content
    assert SEAL.close(context, content) == sealed
    assert len(sealed) == len(content) + TAG_BYTES


@given(st.binary(min_size=1, max_size=MAX_CONTENT_BYTES), st.integers(0, 10_000))
def test_no_changed_bit_opens(content: bytes, place: int) -> None:
    """Wherever it is."""
    sealed = bytearray(SEAL.close("one", content))
    sealed[place % len(sealed)] ^= 1 << place % 8
    assert SEAL.open("one", bytes(sealed)) is None


def test_another_key_or_context_does_not_open() -> None:
    """A context is not joined with the content either."""
    sealed = SEAL.close("one", b"content")
    assert SEAL.open("two", sealed) is None
    assert Seal(bytes(31) + b"\1").open("one", sealed) is None
    assert SEAL.close("onec", b"ontent")[:TAG_BYTES] != sealed[:TAG_BYTES]


@pytest.mark.parametrize("sealed", [b"", bytes(TAG_BYTES), bytes(TAG_BYTES + MAX_CONTENT_BYTES + 1)])
def test_what_was_never_sealed_does_not_open(sealed: bytes) -> None:
    """Too short, or too long."""
    assert SEAL.open("one", sealed) is None
