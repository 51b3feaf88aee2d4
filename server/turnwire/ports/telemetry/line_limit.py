"""A limit on the log lines about things that strangers or libraries can cause at any rate."""

import time
from collections.abc import Callable

LINES_A_SECOND = 10
"""Maximum lines about rejected callers, and likewise about calls without credentials and of each library: enough to
find the cause, too few to fill a disk."""


class LineLimit:
    """Lets a few log lines pass in each second, and counts the others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, lines_a_second: int = LINES_A_SECOND) -> None:
        """Takes the clock, in seconds."""
        self._clock = clock
        self._lines_a_second = lines_a_second
        self._second = 0
        self._lines = 0
        self._unlogged = 0

    def take(self) -> int | None:
        """Returns the number of lines left out since the last one; None if this line is left out too."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._lines = second, 0
        if self._lines >= self._lines_a_second:
            self._unlogged += 1
            return None
        self._lines += 1
        unlogged, self._unlogged = self._unlogged, 0
        return unlogged
