"""Answers that are made when there is a place for them."""

from turnwire.core.watches.unmade import LARGE_BYTES, Unmade, joined


def test_small_pieces_are_joined_at_once() -> None:
    """They are sent as they are."""
    assert joined([b"a", b"b"], are_shared=False) == b"ab"


def test_large_pieces_are_joined_later() -> None:
    """They tell what they will take, and what they share."""
    pieces = [b"a" * LARGE_BYTES, b"b"]
    for are_shared, shared in ((True, pieces[0]), (False, None)):
        answer = joined(pieces, are_shared=are_shared)
        assert isinstance(answer, Unmade)
        assert (answer.answer_bytes, answer.shared) == (LARGE_BYTES + 1, shared)
        assert answer.make() == b"".join(pieces)
