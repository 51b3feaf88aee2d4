"""Long computations on the event loop."""

import asyncio

import pytest

from turnwire.core import slices
from turnwire.core.slices import Slices
from turnwire.domain.incremental.slices import Sliced


class Clock:
    """A clock that only moves when a piece of work is done."""

    def __init__(self) -> None:
        """Starts at 0."""
        self.now = 0.0

    def perf_counter(self) -> float:
        """Returns the time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that slices are measured with."""
    clock = Clock()
    monkeypatch.setattr(slices, "time", clock)
    return clock


def working(clock: Clock, name: str, pieces: int, told: list[str]) -> Sliced[str]:
    """Works for half a slice in each piece."""
    for _ in range(pieces):
        clock.now += slices.SLICE_SECONDS / 2
        told.append(name)
        yield
    return name


async def test_computations_take_turns(clock: Clock) -> None:
    """A slice of each, so that a short one does not wait for the end of a long one."""
    told = list[str]()
    shared = Slices()
    long = asyncio.create_task(shared.run(working(clock, "long", 8, told)))
    short = asyncio.create_task(shared.run(working(clock, "short", 2, told)))
    assert await asyncio.gather(long, short) == ["long", "short"]
    assert told == ["long", "long", "short", "short", *["long"] * 6]


async def test_others_run_between_slices_of_many(clock: Clock) -> None:
    """However many there are, the loop has a round after each slice."""
    told = list[str]()
    shared = Slices()
    works = [asyncio.create_task(shared.run(working(clock, "work", 10, told))) for _ in range(20)]
    longest = before = 0
    while not all(work.done() for work in works):
        await asyncio.sleep(0)
        longest, before = max(longest, len(told) - before), len(told)
    assert (longest, len(told)) == (2, 200)


async def test_cancelling_ends_a_computation(clock: Clock) -> None:
    """It is closed, and others go on."""
    told = list[str]()
    shared = Slices()
    work = working(clock, "first", 100, told)
    first = asyncio.create_task(shared.run(work))
    second = asyncio.create_task(shared.run(working(clock, "second", 3, told)))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "second"
    with pytest.raises(asyncio.CancelledError):
        await first
    with pytest.raises(StopIteration):
        next(work)


async def test_an_error_reaches_the_caller(clock: Clock) -> None:
    """And the turn goes on to others."""

    def failing() -> Sliced[None]:
        yield
        raise ValueError("no")

    shared = Slices()
    with pytest.raises(ValueError, match="no"):
        await shared.run(failing())
    assert await shared.run(working(clock, "next", 1, [])) == "next"


async def test_work_without_pieces_has_rounds_of_its_own() -> None:
    """Others run between two that came at once."""
    shared, rounds, worked_in = Slices(), 0, list[int]()

    async def work() -> None:
        await shared.turn()
        worked_in.append(rounds)

    blocks = asyncio.gather(*(work() for _ in range(5)))
    while not blocks.done():
        await asyncio.sleep(0)
        rounds += 1
    assert len(set(worked_in)) == 5
