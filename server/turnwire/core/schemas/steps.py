"""Counts the steps of a check, so that none takes for ever."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MAX_DEPTH = 180
"""Keywords inside each other. Each takes some frames of the interpreter, which has 1,000; a schema that allows itself
inside itself needs some for each level of the value."""


class TooCostlyError(Exception):
    """The check exceeded its steps."""


class TooDeepError(Exception):
    """The check went deeper than the interpreter can."""


class Steps:
    """The steps of one check. A step is about ten microseconds."""

    def __init__(self, most: int) -> None:
        """Takes how many there may be."""
        self._most = most
        self._left = most
        self._depth = 0

    @property
    def used(self) -> int:
        """How many there were; more than there may be when they were exceeded."""
        return self._most - self._left

    def spend(self, count: int) -> None:
        """Counts steps. Raises TooCostlyError."""
        self._left -= count
        if self._left < 0:
            raise TooCostlyError

    def enter(self) -> None:
        """Counts a keyword inside another one, until `leave`. Raises TooDeepError, and counts nothing then."""
        if self._depth >= MAX_DEPTH:
            raise TooDeepError
        self._depth += 1

    def leave(self) -> None:
        """Ends the innermost keyword."""
        self._depth -= 1


current: ContextVar[Steps] = ContextVar("steps")
"""Of the check that runs on this thread: the library passes nothing of ours to keywords."""


@contextmanager
def counting(steps: Steps) -> Iterator[None]:
    """Counts what happens in the block."""
    token = current.set(steps)
    try:
        yield
    finally:
        current.reset(token)
