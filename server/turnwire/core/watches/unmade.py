"""Large responses that are rendered once the sending budget has memory for them, so that waiting ones take none."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

LARGE_BYTES = 16 * 1024
"""Smaller answers are made at once: most are, and a copy of one is nothing."""


class Unmade(Struct, frozen=True):
    """An answer that is still to be made."""

    answer_bytes: int
    """Approximate size when rendered. It holds as much memory until then."""
    make: Callable[[], bytes]
    """Returns the answer. Callable on any thread, once."""
    shared: object = None
    """An object that several responses share in memory: those with the same one count it once. None: they share
    none."""


def joined(pieces: Sequence[bytes]) -> bytes | Unmade:
    """Returns pieces, in their order, as one answer."""
    size = sum(map(len, pieces))
    if size <= LARGE_BYTES:
        return b"".join(pieces)
    return Unmade(size, partial(b"".join, tuple(pieces)), max(pieces, key=len))
