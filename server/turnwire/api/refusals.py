"""Refused callers: their log lines, and the delay for those that are refused often."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable

import structlog

from turnwire.ports.telemetry.line_limit import LineLimit

CANCELLED_LINES_A_SECOND = 100
"""Lines about calls that ended with CANCELLED, of callers who are known."""

PROMPT_PER_SECOND = 20
"""Refusals of one address or tenant in a second that are answered immediately. A person with a wrong token makes
fewer."""

HOLD_SECONDS = 1.0
"""Shortest time that a further refusal waits, on average. A client that waits for answers sends no more meanwhile."""

HELD_PER_SECOND = 200
"""Refusals that are held back and then answered, in a second, on average: the more there are, the longer each waits."""

MAX_HELD = 1_000
"""Refusals that are held back at the same time; beyond this they are answered immediately. Each takes some kilobytes,
over HTTP/1.1 up to 320, and does not notice that its client has left, for eight seconds at most."""

log = structlog.get_logger()


class Refusals:
    """Logs and slows down the refusals of one server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Takes the clock, in seconds."""
        self._lines = LineLimit(clock)
        self._clock = clock
        self._second = 0
        self._counts: Counter[str] = Counter()
        self._held = 0

    def log(self, method: str, code: str, cause: str, address: str) -> None:
        """Logs a refusal whose caller may know at once; at most a few lines in each second. For the rest see `note`."""
        unlogged = self._lines.take()
        if unlogged is None:
            return
        log.warning(
            "caller_refused", method=method, code=code, cause=cause, address=address, refused_since_last_line=unlogged
        )

    async def note(self, method: str, code: str, cause: str, address: str, *, of: str) -> None:
        """Logs a refusal and returns when its caller may know. Safe to cancel.

        Admitted callers never wait here, whatever others at the same address or of the same tenant do.

        Args:
            method: The called method.
            code: The status.
            cause: Why it was refused; never any part of a credential.
            address: Where the call came from.
            of: The key under which refusals are counted.
        """
        self.log(method, code, cause, address)
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._counts.clear()
        self._counts[of] += 1
        if self._counts[of] <= PROMPT_PER_SECOND or self._held >= MAX_HELD:
            return
        self._held += 1
        try:
            # spread: what was held together must not come back together
            await asyncio.sleep(max(HOLD_SECONDS, self._held / HELD_PER_SECOND) * random.uniform(0.5, 1.5))
        finally:
            self._held -= 1
