"""The pace at which a server is read: what it sends faster waits in its own pipe, and slows it down."""

import asyncio

PER_SECOND = 500
"""Units of work, each of which costs up to a third of a millisecond: a message, or `UNIT_BYTES`."""

AT_ONCE = 1_000
"""Units that are not spread over time: answers and progress come in bursts."""

UNIT_BYTES = 64 * 1024
"""At the pace above 32 MiB a second, and 64 MiB at once."""

IN_A_ROW = 32
"""Units after which others have their turn, even when a whole burst has arrived already."""


class Pace:
    """Counts what one server sends. Used by one task, or by several on one event loop.

    `_due` is when the units so far would be done at the pace; it is at most `AT_ONCE` units behind the clock.
    """

    def __init__(self, per_second: float = PER_SECOND, at_once: float = AT_ONCE) -> None:
        """Args:
        per_second: Units, in the long run.
        at_once: Units that need not wait.
        """
        self._seconds = 1 / per_second
        self._spread = at_once / per_second
        self._due = 0.0
        self._in_a_row = 0.0

    async def take(self, messages: float, size_bytes: int = 0) -> None:
        """Counts messages and bytes; returns when more may be read. Safe to cancel."""
        units = messages + size_bytes / UNIT_BYTES
        now = asyncio.get_running_loop().time()
        self._due = max(self._due, now - self._spread) + units * self._seconds
        self._in_a_row += units
        if self._due > now:
            self._in_a_row = 0.0
            await asyncio.sleep(self._due - now)
        elif self._in_a_row >= IN_A_ROW:
            self._in_a_row = 0.0
            await asyncio.sleep(0)
