"""Answers that are made when there is a place for them."""

from turnwire.core.watches.unmade import LARGE_BYTES, Unmade, joined


def test_small_pieces_are_joined_at_once() -> None:
    """They are sent as they are."""
    assert joined([b"a", b"b"], are_shared=False) == b"ab"


def test_large_pieces_are_joined_later() -> None:
    """They tell what they will take, and what they take already."""
    pieces = [b"a" * LARGE_BYTES, b"b"]
    for are_shared, own_bytes in ((True, 0), (False, LARGE_BYTES + 1)):
        answer = joined(pieces, are_shared=are_shared)
        assert isinstance(answer, Unmade)
        assert (answer.answer_bytes, answer.own_bytes) == (LARGE_BYTES + 1, own_bytes)
        assert answer.make() == b"".join(pieces)
