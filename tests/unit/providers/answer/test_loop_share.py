"""The streams of all providers together take a bounded share of each turn of the event loop."""

import asyncio
import contextlib
from collections import Counter
from datetime import timedelta

import pytest

from tests.support.fakes.loop import elapse, settled
from turnwire.providers.answer.loop_share import READS_AT_ONCE, READS_PER_SECOND, REST_OF_LONG_READS, LoopShare


class Turns:
    """Counts the turns of the loop, as somebody else who shares it does."""

    def __init__(self) -> None:
        """Begins to count."""
        self.number = 0
        self._step()

    def _step(self) -> None:
        self.number += 1
        self._handle = asyncio.get_running_loop().call_soon(self._step)

    def stop(self) -> None:
        """Ends counting."""
        self._handle.cancel()


async def take(share: LoopShare, events: int) -> None:
    """Takes events as a stream does."""
    if not share.take(events):
        await share.wait(events)


async def test_a_flood_is_cut_at_the_turns_of_the_loop() -> None:
    """However many streams flood, a turn of the loop works on so many events of all of them together, and no more."""
    share, turns, done = LoopShare(8), Turns(), Counter[int]()

    async def flood() -> None:
        for _ in range(50):
            await take(share, 2)
            done[turns.number] += 2

    await asyncio.gather(*(flood() for _ in range(10)))
    turns.stop()
    assert (done.total(), max(done.values())) == (1000, 8)


async def test_waiting_streams_go_on_in_the_order_of_asking() -> None:
    """No stream gets ahead of another one that asked before."""
    share, asked, taken = LoopShare(2), list[str](), list[str]()

    async def stream(name: str) -> None:
        for _ in range(3):
            asked.append(name)
            await take(share, 2)
            taken.append(name)

    await asyncio.gather(*(stream(name) for name in "abc"))
    assert taken == asked


async def test_a_slow_stream_takes_at_once() -> None:
    """A stream that sends little beside nobody never waits."""
    share = LoopShare(2)
    taken = []
    for _ in range(5):
        taken.append(share.take(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert taken == [True] * 5


async def test_a_cancelled_stream_takes_nothing() -> None:
    """The place of a stream that ended while it waited goes to the next one."""
    share = LoopShare(2)
    assert share.take(2)
    first, second = (asyncio.create_task(share.wait(2)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled()


@pytest.mark.parametrize(("streams", "reads"), [(1, 3000), (166, 3000), (250, 2000), (500, 1000), (800, 1600)])
async def test_the_reads_of_all_streams_keep_a_pace(streams: int, reads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many a second and no more: fewer where there are many streams."""
    share, read, loop = LoopShare(), 0, asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)  # which stands still, however long a step takes

    async def stream() -> None:
        nonlocal read
        while True:
            read += 1
            await share.rest()

    with contextlib.ExitStack() as opened:
        for _ in range(streams):
            opened.enter_context(share.stream())
        tasks = [asyncio.create_task(stream()) for _ in range(streams)]
        try:
            now += 1
            await settled()
            before = read
            for _ in range(100):
                now += 0.01
                await settled()
            found = read - before
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    assert found == pytest.approx(reads, rel=0.1)


async def test_each_read_over_the_pace_waits_for_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that came at once do not."""
    share, loop = LoopShare(), asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    for _ in range(READS_AT_ONCE + 1):
        await share.rest()
    rests = [asyncio.create_task(share.rest()) for _ in range(3)]
    now += 0.5 / READS_PER_SECOND
    for done in range(3):
        await settled()
        assert [rest.done() for rest in rests] == [number < done for number in range(3)]
        now += 1 / READS_PER_SECOND
    await asyncio.gather(*rests)


async def test_reads_below_the_pace_are_not_put_off() -> None:
    """Streams that are read less often than the pace never rest, also when they are read in the same moment."""
    share = LoopShare()
    for _ in range(5):
        for _ in range(READS_AT_ONCE):
            rest = asyncio.ensure_future(share.rest())
            await asyncio.sleep(0)
            assert rest.done()
        await elapse(timedelta(milliseconds=30))


async def test_reads_that_take_long_put_off_all_others() -> None:
    """For a multiple of the time that they took, together: it is the loop that they hold."""
    share = LoopShare()
    for _ in range(3):
        share.charge(1.0)
    rest = asyncio.ensure_future(share.rest())
    await elapse(timedelta(seconds=3 * REST_OF_LONG_READS - 0.1))
    assert not rest.done()
    await elapse(timedelta(seconds=0.2))
    assert rest.done()
