"""The clock of whoever removes what is old."""

from datetime import UTC, datetime, timedelta

import pytest

from turnwire.ports.clock import PatientClock

START = datetime(2030, 1, 1, tzinfo=UTC)
DAY, YEAR = timedelta(days=1), timedelta(days=365)


class Times:
    """A clock that is set, and one that is not."""

    def __init__(self) -> None:
        self.ahead = timedelta()
        self.gone = timedelta()
        self.clock = PatientClock(lambda: START + self.gone + self.ahead, 3 * DAY, self._elapsed)

    def _elapsed(self) -> float:
        return self.gone.total_seconds()

    def after(self, time: timedelta) -> timedelta:
        """Lets time go by, with a reading each hour; returns what the patient clock shows since the start."""
        end = self.gone + time
        while self.gone < end:
            self.gone = min(end, self.gone + timedelta(hours=1))
            self.clock()
        return self.clock() - START


def test_a_clock_that_is_right_is_believed() -> None:
    """Also where it is set by seconds."""
    times = Times()
    assert times.after(DAY) == DAY
    times.ahead = timedelta(seconds=50)
    assert times.after(timedelta(hours=1)) == timedelta(hours=25, seconds=50)


def test_a_clock_that_jumps_ahead_is_believed_when_it_has_lasted() -> None:
    """Entries from before have become old by then."""
    times = Times()
    times.ahead = YEAR
    assert times.after(2 * DAY) == 2 * DAY
    assert times.after(2 * DAY) == YEAR + 4 * DAY
    assert times.after(DAY) == YEAR + 5 * DAY


def test_a_jump_that_is_taken_back_was_none() -> None:
    """The patience begins anew with the next one."""
    times = Times()
    times.ahead = YEAR
    times.after(2 * DAY)
    times.ahead = timedelta()
    assert times.after(DAY) == 3 * DAY
    times.ahead = YEAR
    assert times.after(2 * DAY) == 5 * DAY


@pytest.mark.parametrize("back", [timedelta(hours=2), YEAR])
def test_a_clock_that_is_set_back_is_believed_at_once(back: timedelta) -> None:
    """Things are kept longer by as much."""
    times = Times()
    times.ahead = -back
    assert times.after(DAY) == DAY - back
