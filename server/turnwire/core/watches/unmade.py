"""Large responses that are rendered once the sending budget has memory for them, so that waiting ones take none."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

LARGE_BYTES = 16 * 1024
"""Size up to which a response is rendered at once: most are smaller, and copying one costs almost nothing."""


class Unmade(Struct, frozen=True):
    """A response that is still to be rendered."""

    answer_bytes: int
    """Approximate size when rendered. It holds as much memory until then."""
    make: Callable[[], bytes]
    """Returns the response. Callable on any thread, once."""
    shared: object = None
    """An object that several responses share in memory: it is counted once for all of them. None: they share none."""


def joined(pieces: Sequence[bytes]) -> bytes | Unmade:
    """Returns pieces, joined in their order, as one response."""
    size = sum(map(len, pieces))
    if size <= LARGE_BYTES:
        return b"".join(pieces)
    return Unmade(size, partial(b"".join, tuple(pieces)), max(pieces, key=len))
