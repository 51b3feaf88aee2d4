"""Large answers that are made when there is a place for them, so that whoever waits for one has no copy of it."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

LARGE_BYTES = 16 * 1024
"""Smaller answers are made at once: most are, and a copy of one is nothing."""


class Unmade(Struct, frozen=True):
    """An answer that is still to be made."""

    answer_bytes: int
    """What it will take, about. It keeps as much in memory until then."""
    make: Callable[[], bytes]
    """Returns the answer. Callable on any thread, once."""
    shared: object = None
    """What of that memory others have too: those with the same object keep it once. None: they have nothing of it."""


def joined(pieces: Sequence[bytes], *, are_shared: bool) -> bytes | Unmade:
    """Returns pieces as one answer.

    Args:
        pieces: In their order.
        are_shared: Whether other answers have the same large ones.
    """
    size = sum(map(len, pieces))
    if size <= LARGE_BYTES:
        return b"".join(pieces)
    return Unmade(size, partial(b"".join, tuple(pieces)), max(pieces, key=len) if are_shared else None)
