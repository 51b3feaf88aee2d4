"""Long computations in small pieces, so that others can work between the pieces.

Such a computation is a generator that yields wherever it may be interrupted. It knows nothing of an event loop:
`core/slices.py` runs it there, and `at_once` runs it where nobody waits.
"""

from collections.abc import Generator, Iterator, Sequence
from operator import is_
from typing import TypeVar

T = TypeVar("T")

Sliced = Generator[None, None, T]
"""A computation with a result of this type. Closing it ends it early."""

TEXT_CHARACTERS = 2**16
"""Of a text, between two interruptions: counted, digested or encoded in less than half a millisecond."""

_BLOCK = 1024
"""Values compared between two interruptions: about 20 microseconds."""


def at_once(work: Sliced[T]) -> T:
    """Runs a computation to its end without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result


def pieces_of(text: str) -> Iterator[str]:
    """Yields a long text in pieces, in their order; none of an empty one."""
    for start in range(0, len(text), TEXT_CHARACTERS):
        yield text[start : start + TEXT_CHARACTERS]


def common_length(before: Sequence[object], now: Sequence[object]) -> Sliced[int]:
    """Returns how many of the first values are the same objects in both."""
    shorter = min(len(before), len(now))
    for start in range(0, shorter, _BLOCK):
        pair = before[start : start + _BLOCK], now[start : start + _BLOCK]
        if not all(map(is_, *pair)):
            return start + [one is other for one, other in zip(*pair, strict=False)].index(False)
        yield
    return shorter
