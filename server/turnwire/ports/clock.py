"""Time, injected so that tests choose it."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]
"""Returns the present moment as an aware datetime in UTC."""


def utc_now() -> datetime:
    """The real clock."""
    return datetime.now(UTC)


def elapsed_seconds() -> float:
    """Returns seconds since some moment: never jumps, and counts while the machine sleeps where the system can tell."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class PatientClock:
    """The time of day for the removal of old data: a clock that jumps ahead makes nothing old at once.

    After a jump this clock continues from the time before, and believes the new time only once it has lasted as long as
    anything is kept: by then what was there before the jump has become old in its own time. A clock that is set back is
    believed at once, because that only keeps things longer. Whether the clock was right at the start cannot be known.
    Used by one task or thread.
    """

    TOLERANCE = timedelta(minutes=5)
    """Between two readings; clocks are set by little all the time."""

    def __init__(self, clock: Clock, patience: timedelta, elapsed: Callable[[], float] = elapsed_seconds) -> None:
        """Args:
        clock: The time of day.
        patience: How long things are kept.
        elapsed: A clock in seconds that never jumps.
        """
        self._clock = clock
        self._patience = patience
        self._elapsed = elapsed
        self._time, self._read_at = clock(), elapsed()
        self._ahead_since: float | None = None

    def __call__(self) -> datetime:
        """Returns the time, which is never later than that of the clock."""
        now, elapsed = self._clock(), self._elapsed()
        expected = self._time + timedelta(seconds=elapsed - self._read_at)
        if now <= expected + self.TOLERANCE:
            self._ahead_since = None
        elif self._ahead_since is None:
            self._ahead_since = elapsed
        is_believed = self._ahead_since is None or elapsed - self._ahead_since >= self._patience.total_seconds()
        if is_believed:
            self._ahead_since = None
        self._time, self._read_at = now if is_believed else expected, elapsed
        return self._time
