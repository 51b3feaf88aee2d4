"""Watchers are woken at a pace, and those of one ring do not hold up the others."""

import asyncio
from datetime import timedelta

from tests.support.fakes.loop import elapse
from turnwire.feed.memory.waking import AT_ONCE, PER_SECOND, Waking


def _futures(count: int) -> list[asyncio.Future[None]]:
    return [asyncio.get_running_loop().create_future() for _ in range(count)]


def _woken(futures: list[asyncio.Future[None]]) -> int:
    return sum(future.done() for future in futures)


async def test_few_are_woken_at_once() -> None:
    """In the same moment."""
    watchers = _futures(AT_ONCE)
    Waking().wake(1, watchers)
    assert _woken(watchers) == AT_ONCE


async def test_many_are_woken_at_a_pace() -> None:
    """All of them, in their order."""
    waking, watchers = Waking(), _futures(10 * AT_ONCE)
    waking.wake(1, watchers)
    assert _woken(watchers) == AT_ONCE
    await elapse(timedelta(seconds=AT_ONCE / PER_SECOND))
    assert AT_ONCE < _woken(watchers) <= 3 * AT_ONCE
    assert all(watcher.done() for watcher in watchers[: _woken(watchers)])
    for _ in range(20):
        await elapse(timedelta(seconds=AT_ONCE / PER_SECOND))
    assert _woken(watchers) == len(watchers)


async def test_the_watchers_of_another_ring_wait_for_few() -> None:
    """Rings have their turns; who has gone is passed over."""
    waking, crowd, gone, other = Waking(), _futures(20 * AT_ONCE), _futures(1), _futures(1)
    waking.wake(1, crowd)
    gone[0].cancel()
    waking.wake(2, gone + other)
    await elapse(timedelta(seconds=AT_ONCE / PER_SECOND))
    assert other[0].done()
    assert _woken(crowd) < len(crowd)
