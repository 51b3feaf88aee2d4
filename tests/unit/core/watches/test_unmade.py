"""Answers that are made when there is a place for them."""

from turnwire.core.watches.unmade import LARGE_BYTES, joined


def test_small_pieces_are_joined_at_once() -> None:
    """They are sent as they are."""
    assert joined([b"a", b"b"]) == b"ab"


def test_large_pieces_are_joined_later() -> None:
    """They tell what they will take, and what they share."""
    pieces = [b"a" * LARGE_BYTES, b"b"]
    answer = joined(pieces)
    assert answer.shared is pieces[0]
    assert (answer.answer_bytes, answer.make()) == (LARGE_BYTES + 1, b"".join(pieces))
