"""Watching: stored events, then what streams, then live; whatever happens in between."""

import asyncio
import contextlib
import tracemalloc
from collections.abc import Sequence
from datetime import timedelta

import pytest

from tests.support.fakes.core import FakeStore, ManualClock, PlainCodec, RecordingFeed, make_environment
from tests.support.fakes.domain_values import NOW, make_answer, make_permission, make_session
from turnwire.core.watches.join import ENTRIES_AT_ONCE
from turnwire.core.watches.unmade import Unmade
from turnwire.core.watches.watch import Batch, Watches, WatchRequest
from turnwire.domain.conversation.events import (
    CompactionStarted,
    DurableKind,
    Event,
    PartDelta,
    QueueChanged,
    SessionView,
)
from turnwire.domain.conversation.messages import Message, MessageStatus
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.questions import Question
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import EventsCompacted
from turnwire.domain.principal import BUILT_IN, DEFAULT_TENANT
from turnwire.feed import memory
from turnwire.ports.pages import PrunedSession
from turnwire.ports.store import Standing, StoredEvent

HEARTBEAT = timedelta(seconds=15)
STREAMING = make_answer("msg_1", "so far", status=MessageStatus.STREAMING)


class FakeTurns:
    """Says what streams."""

    message: Message | None = None
    permissions: tuple[PermissionRequest, ...] = ()
    notice: CompactionStarted | None = None

    def open_questions(self, tenant: str, session_id: str | None) -> tuple[Question, ...]:
        """Returns nothing."""
        return ()

    def open_permissions(self, tenant: str, session_id: str | None) -> tuple[PermissionRequest, ...]:
        """Returns the requests."""
        return self.permissions

    def pending_notices(self, tenant: str, session_id: str | None) -> Sequence[tuple[str, CompactionStarted]]:
        """Returns the notice."""
        return [("ses_1", self.notice)] if self.notice is not None else []

    def view(self, session: Session) -> SessionView:
        """Returns an idle session."""
        return SessionView(session)

    def open_messages(self, tenant: str, session_id: str | None) -> Sequence[Message]:
        """Returns the message."""
        return [self.message] if self.message is not None else []


class World:
    """One session with a log and a feed."""

    def __init__(self, stored: int = 0) -> None:
        self.store = FakeStore(sessions_by_id={"ses_1": make_session()})
        self.feed = RecordingFeed(PlainCodec())
        self.clock = ManualClock()
        self.turns = FakeTurns()
        environment = make_environment(self.store, feed=self.feed, clock=self.clock)
        self.watches = Watches(
            environment,
            self.turns,  # type: ignore[arg-type]
            PlainCodec(),
            HEARTBEAT,
            seconds=lambda: self.clock().timestamp(),
        )
        for _ in range(stored):
            self.happen()

    def happen(self, kind: DurableKind | None = None) -> None:
        """Stores and publishes the next event."""
        order = len(self.store.log) + 1
        event = Event(session_id="ses_1", kind=kind or QueueChanged(()), at=NOW, sequence=order, position=order)
        stored = StoredEvent(event, PlainCodec().encode_event(event), DEFAULT_TENANT)
        self.store.log.append(stored)
        self.feed.publish_stored([stored])

    def stream(self, text: str) -> None:
        """Publishes a delta."""
        self.feed.publish(DEFAULT_TENANT, Event(session_id="ses_1", kind=PartDelta("msg_1", 0, 0, text)))


def _words(batch: Batch) -> list[str]:
    """Returns the events of a batch, without its token."""
    return [word for word in batch.decode().split(";")[:-1] if not word.startswith("@")]


async def _until(batches: object, word: str) -> list[str]:
    """Reads batches until one ends with a word, such as `0:CaughtUp`."""
    words: list[str] = []
    while not words or words[-1] != word:
        words += _words(await anext(batches))  # type: ignore[call-overload]
    return words


def _request(**fields: object) -> WatchRequest:
    return WatchRequest(**{"session_id": "ses_1", **fields})


async def test_snapshots_are_encoded_as_they_are_taken_and_of_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open messages of a tenant may have hundreds of megabytes, and what happens meanwhile comes behind the marker."""
    monkeypatch.setattr("turnwire.core.watches.watch.BATCH_BYTES", 1)
    encoded = list[str]()

    class CountingCodec(PlainCodec):
        def encode_event(self, event: Event) -> bytes:
            encoded.append(type(event.kind).__name__)
            return super().encode_event(event)

    world = World(stored=1)
    world.watches.codec = CountingCodec()
    world.turns.permissions = tuple(make_permission(permission_id=f"per_{n}") for n in range(50))
    async with contextlib.aclosing(world.watches.watch(BUILT_IN, _request())) as batches:
        assert _words(await anext(batches)) == ["0:SessionSnapshot"]
        assert encoded.count("PermissionSnapshot") <= 2
        world.turns.permissions = ()
        world.happen()
        words = await _until(batches, "0:CaughtUp")
        assert words == [*["0:PermissionSnapshot"] * 50, "0:CaughtUp"]
        assert _words(await anext(batches)) == ["2:QueueChanged"]


@pytest.mark.parametrize("session_id", ["ses_1", None])
async def test_who_joins_late_is_told_what_keeps_the_model_from_answering(session_id: str | None) -> None:
    """Its event came before the join, and may not come again."""
    world = World(stored=1)
    world.turns.notice = CompactionStarted(3, 900, 1000)
    async with contextlib.aclosing(world.watches.watch(BUILT_IN, _request(session_id=session_id))) as batches:
        words = await _until(batches, "0:CaughtUp")
    assert words[-2:] == ["0:CompactionStarted", "0:CaughtUp"]


@pytest.mark.parametrize("session_id", ["ses_1", None])
async def test_events_between_reading_and_joining_come_once(session_id: str | None) -> None:
    """Whatever happens while the log is read is delivered once, in order; deltas before the join are not."""
    world = World(stored=3)
    happened = iter(range(6))

    def meanwhile() -> None:
        if next(happened, None) is not None:
            world.happen()
            world.stream("before the join")

    world.store.on_read = meanwhile
    async with contextlib.aclosing(world.watches.watch(BUILT_IN, _request(session_id=session_id, after=0))) as batches:
        words = [word for word in await _until(batches, "0:CaughtUp") if "Snapshot" not in word]
        world.happen()
        words += _words(await anext(batches))
    assert words == [*[f"{i}:QueueChanged" for i in range(1, 10)], "0:CaughtUp", "10:QueueChanged"]


async def test_a_filtered_watch_leaves_the_loop_to_others() -> None:
    """Between a few hundred entries of the feed, none of which it wants, the event loop goes on."""
    world, loop = World(), asyncio.get_running_loop()
    async with contextlib.aclosing(world.watches.watch(BUILT_IN, _request(include_deltas=False))) as batches:
        await _until(batches, "0:CaughtUp")
        for _ in range(ENTRIES_AT_ONCE * 4):
            world.stream("a")
        world.happen()
        looked, is_over = 0, False

        def look() -> None:
            nonlocal looked
            looked += 1
            if not is_over:
                loop.call_soon(look)

        loop.call_soon(look)
        assert _words(await anext(batches)) == ["1:QueueChanged"]
        is_over = True
        assert looked >= 3


@pytest.mark.parametrize("filtered", [False, True])
async def test_a_watcher_that_falls_behind_reads_the_log(filtered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets every durable event once, and a new snapshot for the deltas that it missed."""
    monkeypatch.setattr(memory, "SESSION_RING_BYTES", 60)
    world = World(stored=1)
    request = _request(after=0, kinds=frozenset({"QueueChanged"}) if filtered else None)
    async with contextlib.aclosing(world.watches.watch(BUILT_IN, request)) as batches:
        words = await _until(batches, "0:CaughtUp")
        for _ in range(9):
            world.stream("missed")
            world.happen()
        world.turns.message = STREAMING
        words += await _until(batches, "0:CaughtUp")
        world.stream("live")
        words += _words(await anext(batches))
    assert words == [
        "1:QueueChanged",
        "0:SessionSnapshot",
        "0:CaughtUp",
        *[f"{i}:QueueChanged" for i in range(2, 11)],
        "0:SessionSnapshot",
        "0:MessageSnapshot",
        "0:CaughtUp",
        "0:PartDelta",
    ]


async def test_a_position_that_is_gone_resets() -> None:
    """The watch begins anew at the head, and says so first."""
    world = World(stored=9)
    world.store.earliest = 5
    async with contextlib.aclosing(world.watches.watch(BUILT_IN, _request(after=4))) as batches:
        assert await _until(batches, "0:CaughtUp") == ["0:Resync", "0:SessionSnapshot", "0:CaughtUp"]


async def test_a_position_that_is_gone_may_fail_instead() -> None:
    """With the bounds, so that the client can decide."""
    world = World(stored=9)
    world.store.earliest = 5
    with pytest.raises(EventsCompacted) as caught:
        await anext(world.watches.watch(BUILT_IN, _request(after=4, fail_if_compacted=True)))
    places = {"askedSequence": "4", "earliestSequence": "5", "latestSequence": "9"}
    assert caught.value.metadata == {**places, "resyncReason": "PRUNED"}


async def test_a_log_that_is_pruned_during_the_replay_starts_the_watch_anew() -> None:
    """It says so with a resync; nothing is skipped in silence."""
    world = World(stored=9)

    def prune() -> None:
        world.store.earliest = 6
        world.store.log = world.store.log[5:] if len(world.store.log) == 9 else world.store.log

    async with contextlib.aclosing(world.watches.watch(BUILT_IN, _request(after=2))) as batches:
        world.store.on_read = prune
        words = await _until(batches, "0:CaughtUp")
    assert "0:Resync" in words
    assert words[-1] == "0:CaughtUp"


@pytest.mark.parametrize(
    ("standing", "reason"), [(Standing.REPLACED, "HISTORY_REPLACED"), (Standing.UNKNOWN, "NOT_KNOWN")]
)
async def test_a_token_of_another_past_begins_anew(standing: Standing, reason: str) -> None:
    """With resync, then as without a place; or fails if the caller wished so."""
    world = World(stored=3)
    token = world.watches.tokens.give(DEFAULT_TENANT, "ses_1", 2)
    world.store.timeline, world.store.other_timelines = "f" * 16, standing
    async with contextlib.aclosing(world.watches.watch(BUILT_IN, _request(resume_token=token))) as batches:
        assert await _until(batches, "0:CaughtUp") == ["0:Resync", "0:SessionSnapshot", "0:CaughtUp"]
    with pytest.raises(EventsCompacted) as caught:
        await anext(world.watches.watch(BUILT_IN, _request(resume_token=token, fail_if_compacted=True)))
    assert caught.value.metadata == {"resyncReason": reason}


async def test_a_watch_of_all_is_told_once_of_each_session_that_lost_events() -> None:
    """And again when it lost more; everything else goes on."""
    world = World(stored=5)
    world.store.pruned = (PrunedSession("ses_x", 7, 4),)
    request = _request(session_id=None, after=0)
    async with contextlib.aclosing(world.watches.watch(BUILT_IN, request)) as batches:
        words = await _until(batches, "2:QueueChanged")
        world.store.pruned = (PrunedSession("ses_x", 9, 5),)
        words += await _until(batches, "0:CaughtUp")
    assert words == [
        *("0:Resync", "1:QueueChanged", "2:QueueChanged"),
        *("0:Resync", "3:QueueChanged", "4:QueueChanged", "5:QueueChanged", "0:CaughtUp"),
    ]


async def test_watches_that_wait_share_a_large_event() -> None:
    """None has a copy of it before it may send it: 20 watches of a mebibyte take far less than two."""
    world, size = World(), 2**20
    async with contextlib.AsyncExitStack() as open_watches:
        watches = [world.watches.watch(BUILT_IN, _request()) for _ in range(20)]
        for one in watches:
            await open_watches.enter_async_context(contextlib.aclosing(one))
            await _until(one, "0:CaughtUp")
        order = len(world.store.log) + 1
        event = Event(session_id="ses_1", kind=QueueChanged(()), at=NOW, sequence=order, position=order)
        stored = StoredEvent(event, b"x" * size, DEFAULT_TENANT)
        tracemalloc.start()
        world.feed.publish_stored([stored])
        batches = [await anext(one) for one in watches]
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < size
    assert {type(batch) for batch in batches} == {Unmade}
    for batch in batches:
        assert batch.shared is stored.frame
        assert batch.make().startswith(stored.frame)
        assert batch.answer_bytes == len(batch.make())


async def test_a_long_text_that_streams_is_encoded_when_it_is_sent() -> None:
    """Until then every watch that begins has the one that all have."""
    world = World()
    world.turns.message = make_answer("msg_1", "x" * 100_000, status=MessageStatus.STREAMING)
    async with contextlib.aclosing(world.watches.watch(BUILT_IN, _request())) as batches:
        assert _words(await anext(batches)) == ["0:SessionSnapshot"]
        snapshot = await anext(batches)
        assert snapshot.shared is world.turns.message.parts[0].content.text
        assert _words(snapshot.make()) == ["0:MessageSnapshot"]
        assert _words(await anext(batches)) == ["0:CaughtUp"]


async def test_a_large_page_of_the_log_belongs_to_its_watch() -> None:
    """Its size is told, so that few of them wait."""
    world, size = World(), 2**20
    event = Event(session_id="ses_1", kind=QueueChanged(()), at=NOW, sequence=1, position=1)
    world.store.log.append(StoredEvent(event, b"x" * size, DEFAULT_TENANT))
    async with contextlib.aclosing(world.watches.watch(BUILT_IN, _request(after=0))) as batches:
        page = await anext(batches)
        assert page.answer_bytes == len(page.make())
