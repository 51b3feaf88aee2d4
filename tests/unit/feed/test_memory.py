"""The ring: newest entries within a bound of bytes, read by cursors."""

import asyncio
import sys
from datetime import timedelta

import pytest

from tests.support.fakes.domain_values import NOW
from tests.support.fakes.loop import elapse, settled
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.events import Event, Heartbeat, PartDelta
from turnwire.feed.memory import AT_ONCE, PER_SECOND, Entry, Feed, Ring, Taken, Waking

EVENT = Event(session_id="ses_1", kind=Heartbeat(0), at=NOW)


def _entry(frame: bytes, order: int = 0) -> Entry:
    return Entry(EVENT, frame, order)


def _ring(*frames: bytes, max_bytes: int = 100) -> Ring:
    ring = Ring(max_bytes, Waking(), entry_bytes=0)
    for order, frame in enumerate(frames, 1):
        ring.append(_entry(frame, order))
    return ring


def test_the_head_is_the_newest_durable_order() -> None:
    """Entries without an order do not move it, and a read of only those has none."""
    ring = _ring(b"a")
    ring.append(_entry(b"b"))
    assert ring.head == 1
    assert ring.read(0, 1000) == (Taken(b"ab", 1), 2)
    assert ring.read(1, 1000) == (Taken(b"b", 0), 2)


def test_positions_stay_valid_when_the_list_is_cut() -> None:
    """Thousands of dropped entries later a cursor still reads at its place."""
    ring = Ring(10, Waking(), entry_bytes=0)
    for order in range(1, 5001):
        ring.append(_entry(b"x", order))
    assert (ring.start, ring.end, ring.head) == (4990, 5000, 5000)
    assert ring.read(4995, 1000) == (Taken(b"xxxxx", 5000), 5000)


def test_dropped_entries_are_let_go_of_at_once() -> None:
    """The bound is one of memory, not of what can be read."""
    ring, entries = Ring(100, Waking(), entry_bytes=0), [_entry(b"x" * 60) for _ in range(500)]
    counts = [sys.getrefcount(entry) for entry in entries]
    for entry in entries:
        ring.append(entry)
    assert ring.end - ring.start == 1
    del entry
    assert [sys.getrefcount(entry) for entry in entries] == [*counts[:-1], counts[-1] + 1]


def test_a_dropped_ring_keeps_its_last_word() -> None:
    """A small newest entry stays, which may say that the session is deleted; a large one does not."""
    for size, kept in ((1024, 1), (1025, 0)):
        ring = _ring(b"a" * 60, b"b" * size, max_bytes=10_000)
        ring.read(0, 1)
        ring.drop()
        assert (ring.end - ring.start, ring.bytes) == (kept, kept * size)


def test_a_large_frame_is_taken_alone() -> None:
    """So all who read it have one object."""
    large = b"b" * 100
    ring = _ring(b"aa", large, b"cc", max_bytes=1000)
    assert ring.read(0, 50) == (Taken(b"aa", 1), 1)
    assert ring.read(1, 50)[0].frames is large
    assert ring.read(2, 50) == (Taken(b"cc", 3), 3)


async def test_watchers_that_are_behind_do_not_go_on_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else thousands of them would leave the loop no time for anything else."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)  # which stands still, however long they take
    feed = Feed(ProtoCodec(), 2 * AT_ONCE, timedelta(hours=1))
    watchers = [feed.subscribe("acme", "ses_1") for _ in range(2 * AT_ONCE)]
    feed.publish("acme", Event(session_id="ses_1", kind=PartDelta("msg_1", 0, 0, "word")))
    waits = [asyncio.create_task(watcher.wait()) for watcher in watchers]
    await settled()
    assert sum(wait.done() for wait in waits) == AT_ONCE
    now += 1.01 * AT_ONCE / PER_SECOND  # a clock has digits that are rounded
    await settled()
    assert all(wait.done() for wait in waits)
    assert all(watcher.take(2**20).frames for watcher in watchers)
    for watcher in watchers:
        watcher.close()
    assert feed.open_watchers == 0


def _futures(count: int) -> list[asyncio.Future[None]]:
    return [asyncio.get_running_loop().create_future() for _ in range(count)]


def _woken(futures: list[asyncio.Future[None]]) -> int:
    return sum(future.done() for future in futures)


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


async def test_watches_of_sessions_that_are_left_end_and_later_ones_are_new() -> None:
    """They end as at a stop, and so does one of all sessions, which would miss what comes there; others go on."""
    feed = Feed(ProtoCodec(), max_watchers=4, tick=timedelta(hours=1))
    left, other, of_all = (feed.subscribe("default", session_id) for session_id in ("ses_1", "ses_2", None))
    feed.leave(lambda session_id: session_id == "ses_1")
    assert (left.closed, left.shutting_down) == (True, True)
    assert not other.closed
    assert (of_all.closed, of_all.shutting_down) == (True, True)
    later = feed.subscribe("default", "ses_1")
    left.close()
    feed.publish("default", EVENT)
    assert (later.behind, later.shutting_down) == (True, False)
    for one in (other, of_all, later):
        one.close()
    assert (feed.open_watchers, feed.held_bytes) == (0, 0)
