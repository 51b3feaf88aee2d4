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
    """Returns the seconds since some moment. Never jumps; counts the sleep of the machine, where it can."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class PatientClock:
    """Time of day for the removal of old data: a clock that jumps ahead does not make everything old at once.

    After a jump ahead, this clock continues from the time before the jump. It accepts the new time once the jump has
    lasted as long as anything is kept: by then everything from before the jump is old by either clock. A clock that is
    set back is accepted at once, because that only keeps data longer. Whether the clock was right at the start cannot
    be known. Used by one task or thread.
    """

    TOLERANCE = timedelta(minutes=5)
    """Lead over the expected time that is no jump yet; small corrections of a clock are normal."""

    def __init__(self, clock: Clock, patience: timedelta, elapsed: Callable[[], float] = elapsed_seconds) -> None:
        """Args:
        clock: The time of day.
        patience: Time for which data is kept; a jump has to last this long to be accepted.
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
