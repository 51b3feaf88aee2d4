"""Feed: watchers of one session or of all, over the live feed with the real codec."""

import asyncio
import sys
import weakref
from datetime import timedelta

import msgspec
import pytest

from tests.support.fakes.core import RecordingObserver
from tests.support.fakes.domain_values import NOW, make_message
from tests.support.fakes.loop import settled
from tests.support.fakes.opened_store import events_in, kinds_in
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.events import (
    DurableKind,
    Event,
    MessageAdded,
    PartDelta,
    QueueChanged,
    SessionDeleted,
)
from turnwire.domain.conversation.turns import QueueEntry
from turnwire.domain.errors import ShuttingDown, TooManyWatchers
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.feed import memory
from turnwire.feed.memory import ENTRY_BYTES, TRIM_EVERY, Entry, Feed, Ring, Subscription, Taken, Waking
from turnwire.ports.store import StoredEvent

CODEC = ProtoCodec()


@pytest.fixture
def feed() -> Feed:
    """A feed for three watchers, whose ticks nobody runs."""
    return Feed(CODEC, max_watchers=3, tick=timedelta(hours=1))


def _stored(sequence: int, position: int, session_id: str = "ses_1", kind: DurableKind | None = None) -> StoredEvent:
    event = Event(
        session_id=session_id,
        kind=kind or QueueChanged((QueueEntry(str(sequence), "t"),)),
        at=NOW,
        sequence=sequence,
        position=position,
    )
    return StoredEvent(event, CODEC.encode_event(event), DEFAULT_TENANT)


def _delta(text: str, session_id: str = "ses_1") -> Event:
    return Event(session_id=session_id, kind=PartDelta("msg_1", 0, 0, text))


def _orders(subscription: Subscription) -> list[int]:
    return [entry.order for entry in subscription.take_entries()]


def test_only_what_is_watched_needs_frames(feed: Feed) -> None:
    """A watch of one session, or of all of its tenant, makes it watched until it is closed."""
    asked = [(DEFAULT_TENANT, "ses_1"), (DEFAULT_TENANT, "ses_2"), ("other", "ses_1")]

    def watched() -> list[bool]:
        return [feed.is_watched(*session) for session in asked]

    assert watched() == [False, False, False]
    one = feed.subscribe(DEFAULT_TENANT, "ses_1")
    assert watched() == [True, False, False]
    everything = feed.subscribe(DEFAULT_TENANT, None)
    one.close()
    assert watched() == [True, True, False]
    everything.close()
    assert watched() == [False, False, False]


def test_an_event_without_a_frame_is_encoded_for_its_watchers(feed: Feed) -> None:
    """They came while it was stored."""
    watches = [feed.subscribe(DEFAULT_TENANT, "ses_1"), feed.subscribe(DEFAULT_TENANT, None)]
    whole = _stored(1, 1)
    feed.publish_stored([msgspec.structs.replace(whole, frame=None)])
    assert [watch.take(1 << 20).frames for watch in watches] == [whole.frame] * 2


def test_a_watch_begins_with_the_next_event(feed: Feed) -> None:
    """Events that were published before are the store's to tell."""
    first = feed.subscribe(DEFAULT_TENANT, "ses_1")
    feed.publish_stored([_stored(1, 1)])
    second = feed.subscribe(DEFAULT_TENANT, "ses_1")
    feed.publish_stored([_stored(2, 2)])
    assert (_orders(first), _orders(second)) == ([1, 2], [2])


def test_a_session_watcher_sees_only_its_session(feed: Feed) -> None:
    """Durable events with their sequence; ephemeral ones without order; the order of publishing."""
    watch = feed.subscribe(DEFAULT_TENANT, "ses_1")
    stored = _stored(1, 7)
    feed.publish_stored([_stored(1, 6, "ses_2"), stored, _stored(2, 8, "ses_2")])
    feed.publish(DEFAULT_TENANT, _delta("a"))
    feed.publish(DEFAULT_TENANT, _delta("b", "ses_2"))
    delta = _delta("a")
    assert watch.take_entries() == [Entry(stored.event, stored.frame, 1), Entry(delta, CODEC.encode_event(delta), 0)]
    assert watch.head == 1


def test_a_watcher_of_all_sees_every_session_by_position(feed: Feed) -> None:
    """Sequences of sessions overlap; positions do not."""
    watch = feed.subscribe(DEFAULT_TENANT, None)
    feed.publish_stored([_stored(1, 6, "ses_2"), _stored(1, 7)])
    feed.publish(DEFAULT_TENANT, _delta("a"))
    assert (_orders(watch), watch.head) == ([6, 7, 0], 7)


def test_taken_frames_are_a_batch(feed: Feed) -> None:
    """Joined frames read as a WatchEventsResponse, and the order is that of the newest durable one."""
    watch = feed.subscribe(DEFAULT_TENANT, "ses_1")
    feed.publish_stored([_stored(1, 1), _stored(2, 2, kind=MessageAdded(make_message("msg_1", "a")))])
    feed.publish(DEFAULT_TENANT, _delta("a"))
    taken = watch.take(1 << 16)
    assert (kinds_in(taken.frames), taken.order) == (["queue_changed", "message_added", "part_delta"], 2)
    assert watch.take(1 << 16) == Taken(b"", 0)


def test_a_take_is_bounded_and_goes_on(feed: Feed) -> None:
    """At least one event each; nothing twice, nothing left out."""
    watch = feed.subscribe(DEFAULT_TENANT, "ses_1")
    feed.publish_stored([_stored(i, i) for i in range(1, 6)])
    sequences = []
    while frames := watch.take(1).frames:
        sequences.append([event.sequence for event in events_in(frames)])
    assert sequences == [[1], [2], [3], [4], [5]]


def test_watchers_at_different_places_get_their_own_frames(feed: Feed) -> None:
    """One that took before and one that did not each get what they lack."""
    ahead, behind = feed.subscribe(DEFAULT_TENANT, "ses_1"), feed.subscribe(DEFAULT_TENANT, "ses_1")
    feed.publish_stored([_stored(1, 1)])
    ahead.take(1 << 16)
    feed.publish_stored([_stored(2, 2)])
    assert [e.sequence for e in events_in(behind.take(1 << 16).frames)] == [1, 2]
    assert [e.sequence for e in events_in(ahead.take(1 << 16).frames)] == [2]


def test_a_watcher_that_falls_behind_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It skips to the end and reads the store, which is reported; the others are not disturbed."""
    observer = RecordingObserver()
    feed = Feed(CODEC, max_watchers=3, tick=timedelta(hours=1), observer=observer)
    monkeypatch.setattr(memory, "SESSION_RING_BYTES", 100)
    slow, quick = feed.subscribe(DEFAULT_TENANT, "ses_1"), feed.subscribe(DEFAULT_TENANT, "ses_1")
    seen = []
    for sequence in range(1, 20):
        feed.publish_stored([_stored(sequence, sequence)])
        seen += _orders(quick)
    assert (slow.lagging, quick.lagging, seen) == (True, False, list(range(1, 20)))
    slow.skip()
    quick.skip()
    assert observer.fell_behind == 1
    assert (slow.lagging, _orders(slow), slow.head) == (False, [], 19)
    feed.publish_stored([_stored(20, 20)])
    assert _orders(slow) == [20]


def test_a_quiet_session_is_not_crowded_out_by_a_loud_one(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session has its ring, and all have one of their own."""
    monkeypatch.setattr(memory, "SESSION_RING_BYTES", 100)
    quiet, loud, everything = (
        feed.subscribe(DEFAULT_TENANT, "ses_1"),
        feed.subscribe(DEFAULT_TENANT, "ses_2"),
        feed.subscribe(DEFAULT_TENANT, None),
    )
    feed.publish_stored([_stored(1, 1)])
    feed.publish_stored([_stored(i, i + 1, "ses_2") for i in range(1, 20)])
    assert (quiet.lagging, loud.lagging, everything.lagging) == (False, True, False)
    assert (_orders(quiet), _orders(everything)) == ([1], list(range(1, 21)))


async def test_a_wait_ends_with_the_next_event(feed: Feed) -> None:
    """And at once when something waits already."""
    watch = feed.subscribe(DEFAULT_TENANT, "ses_1")
    waiting = asyncio.create_task(watch.wait())
    await settled()
    feed.publish(DEFAULT_TENANT, _delta("a", "ses_2"))
    await settled()
    assert not waiting.done()
    feed.publish(DEFAULT_TENANT, _delta("a"))
    await waiting
    await watch.wait()


async def test_a_wait_ends_with_a_tick() -> None:
    """Each watcher can keep its heartbeat without a timer of its own."""
    feed = Feed(CODEC, max_watchers=3, tick=timedelta(milliseconds=1))
    ticking = asyncio.create_task(feed.run())
    watches = [feed.subscribe(DEFAULT_TENANT, "ses_1"), feed.subscribe(DEFAULT_TENANT, None)]
    await asyncio.gather(*[watch.wait() for watch in watches])
    assert [watch.take(100) for watch in watches] == [Taken(b"", 0)] * 2
    ticking.cancel()
    await asyncio.wait((ticking,))


async def test_a_cancelled_wait_loses_nothing(feed: Feed) -> None:
    """The next take has what came meanwhile."""
    watch = feed.subscribe(DEFAULT_TENANT, "ses_1")
    waiting = asyncio.create_task(watch.wait())
    await settled()
    waiting.cancel()
    await asyncio.wait((waiting,))
    feed.publish_stored([_stored(1, 1)])
    assert _orders(watch) == [1]


async def test_a_deleted_session_ends_its_watches(feed: Feed) -> None:
    """After its last event was taken; watchers of all go on."""
    watch, everything = feed.subscribe(DEFAULT_TENANT, "ses_1"), feed.subscribe(DEFAULT_TENANT, None)
    feed.publish_stored([_stored(1, 1, kind=SessionDeleted())])
    assert watch.closed is False
    assert _orders(watch) == [1]
    assert (watch.closed, watch.shutting_down, everything.closed) == (True, False, False)
    await watch.wait()


async def test_a_closed_feed_ends_all_watches(feed: Feed) -> None:
    """They wake, learn why, and no new one can be had."""
    watches = [feed.subscribe(DEFAULT_TENANT, "ses_1"), feed.subscribe(DEFAULT_TENANT, None)]
    waits = [asyncio.create_task(watch.wait()) for watch in watches]
    await settled()
    feed.close()
    feed.close()
    await asyncio.gather(*waits)
    assert [(watch.closed, watch.shutting_down) for watch in watches] == [(True, True)] * 2
    with pytest.raises(ShuttingDown):
        feed.subscribe(DEFAULT_TENANT, "ses_1")


def test_watchers_are_limited(feed: Feed) -> None:
    """One too many is refused with the limit; closing makes room, once for each."""
    watches = [
        feed.subscribe(DEFAULT_TENANT, "ses_1"),
        feed.subscribe(DEFAULT_TENANT, "ses_2"),
        feed.subscribe(DEFAULT_TENANT, None),
    ]
    with pytest.raises(TooManyWatchers) as caught:
        feed.subscribe(DEFAULT_TENANT, "ses_1")
    assert caught.value.metadata == {"limit": "limits.max_watchers", "limitValue": "3"}
    watches[0].close()
    watches[0].close()
    feed.subscribe(DEFAULT_TENANT, "ses_1")
    with pytest.raises(TooManyWatchers):
        feed.subscribe(DEFAULT_TENANT, "ses_1")


def test_nothing_is_kept_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without watchers events are not even framed, and rings go with their last watcher, and with them the events."""

    class NoCodec:
        encode_event = encode_display = None

    class CountedRing(Ring):
        def __init__(self, max_bytes: int, waking: Waking) -> None:
            super().__init__(max_bytes, waking)
            rings.add(self)

    rings: weakref.WeakSet[Ring] = weakref.WeakSet()
    monkeypatch.setattr(memory, "Ring", CountedRing)
    feed = Feed(NoCodec(), max_watchers=3, tick=timedelta(hours=1))  # type: ignore[arg-type]
    feed.publish(DEFAULT_TENANT, _delta("a"))
    stored = _stored(1, 1)
    references = sys.getrefcount(stored.event)
    watch, everything = feed.subscribe(DEFAULT_TENANT, "ses_1"), feed.subscribe(DEFAULT_TENANT, None)
    feed.publish_stored([stored])
    assert (sys.getrefcount(stored.event), len(rings)) == (references + 2, 2)
    watch.close()
    everything.close()
    del watch, everything
    assert (sys.getrefcount(stored.event), len(rings)) == (references, 0)


def test_each_tenant_has_its_own_events() -> None:
    """All of them, or those of a session; the ids of another tenant's sessions lead to nothing."""
    feed = Feed(CODEC, max_watchers=4, tick=timedelta(hours=1))
    mine, others = feed.subscribe(DEFAULT_TENANT, None), feed.subscribe("other", None)
    one, stolen = feed.subscribe(DEFAULT_TENANT, "ses_1"), feed.subscribe("other", "ses_1")
    feed.publish_stored([_stored(1, 1), msgspec.structs.replace(_stored(1, 2, "ses_2"), tenant="other")])
    feed.publish(DEFAULT_TENANT, _delta("a"))
    feed.publish("other", _delta("b", "ses_2"))
    assert [len(watch.take_entries()) for watch in (mine, others, one, stolen)] == [2, 2, 2, 0]


def test_what_all_have_read_is_dropped(feed: Feed) -> None:
    """A ring whose readers keep up does not grow to its bound; one that is behind holds what it has not read."""
    fast, slow = feed.subscribe(DEFAULT_TENANT, "ses_1"), feed.subscribe(DEFAULT_TENANT, "ses_1")

    def publish() -> None:
        for _ in range(TRIM_EVERY):
            feed.publish(DEFAULT_TENANT, _delta("a"))
            fast.take(1)

    publish()
    publish()
    assert feed.held_bytes > 2 * TRIM_EVERY * ENTRY_BYTES
    slow.close()
    publish()
    assert feed.held_bytes < 2 * ENTRY_BYTES


def test_rings_share_a_bound(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that all have read go first, then the largest rings, whose watchers are behind; small ones stay."""
    monkeypatch.setattr(memory, "RINGS_BYTES", 10_000)
    reading, large, small = (feed.subscribe(DEFAULT_TENANT, f"ses_{number}") for number in (1, 2, 3))

    def publish(number: int, size: int) -> None:
        event = _stored(1, number, f"ses_{number}")
        feed.publish_stored([msgspec.structs.replace(event, frame=b"x" * size)])

    publish(1, 4000)
    reading.take(1)
    publish(3, 100)
    publish(2, 6000)
    assert (reading.lagging, large.lagging, small.lagging) == (False, False, False)
    assert feed.held_bytes == 6100 + 2 * ENTRY_BYTES
    publish(1, 6000)
    assert [reading.lagging, large.lagging, small.lagging].count(True) == 1
    assert not small.lagging
    assert feed.held_bytes <= 10_000
    for one in (reading, large, small):
        one.close()
    assert feed.held_bytes == 0


def test_a_slow_watcher_takes_nothing_from_another_tenant(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ring is the largest, so it is the one that is dropped."""
    monkeypatch.setattr(memory, "RINGS_BYTES", 100 * ENTRY_BYTES)
    slow, other = feed.subscribe(DEFAULT_TENANT, None), feed.subscribe("other", None)
    feed.publish_stored([msgspec.structs.replace(_stored(i, i, "ses_2"), tenant="other") for i in range(1, 10)])
    feed.publish_stored([_stored(i, 10 + i) for i in range(1, 100)])
    assert (slow.lagging, other.lagging, len(other.take_entries())) == (True, False, 9)


def test_a_ring_that_was_left_starts_anew(feed: Feed) -> None:
    """A watcher that comes back to all sessions sees nothing old."""
    first = feed.subscribe(DEFAULT_TENANT, None)
    feed.publish_stored([_stored(1, 1)])
    first.close()
    feed.publish_stored([_stored(2, 2)])
    second = feed.subscribe(DEFAULT_TENANT, None)
    feed.publish_stored([_stored(3, 3)])
    assert (second.lagging, _orders(second)) == (False, [3])
