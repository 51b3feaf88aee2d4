"""Watches of all sessions of several nodes: one order of what the log and the parts of the nodes tell."""

import asyncio
import contextlib
import tracemalloc
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.support.fakes.core import TICK
from tests.support.fakes.domain_values import NOW
from tests.support.fakes.loop import settled
from turnwire.api.wire.codec import ProtoCodec
from turnwire.cluster import watches
from turnwire.cluster.watches import AllSessions
from turnwire.core.watches.parts import BEGUN, Told
from turnwire.domain.conversation.events import Event, SessionStatusChanged
from turnwire.domain.errors import ShuttingDown
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.feed.memory import Entry, Feed
from turnwire.ports.pages import EventPage

OWN, OTHER = "", "b:1"
SESSIONS = {OWN: "ses_own", OTHER: "ses_other"}


class Nodes:
    """Two nodes with a session each: the log that they share, and what each tells in its part."""

    def __init__(self) -> None:
        self.log: list[Event] = []
        self.settled = 0
        self.timeline = "first"
        self.present = {OWN, OTHER}
        self.parts: dict[str, asyncio.Queue[list[Told] | None]] = defaultdict(asyncio.Queue)
        self.asked: list[str] = []

    def store(self, position: int, address: str) -> None:
        """Stores an event of a node's session. It is read when it is settled."""
        kind = SessionStatusChanged(running=True)
        event = Event(session_id=SESSIONS[address], kind=kind, at=NOW, sequence=position, position=position)
        self.log = sorted([*self.log, event], key=lambda one: one.position)

    def tell(self, address: str, *told: Told) -> None:
        """Has a node tell the next of its part."""
        self.parts[address].put_nowait(list(told))

    def begin(self, address: str, first: int, *open_now: bytes) -> None:
        """Has a node begin its part, with what is open."""
        self.tell(address, Told(position=first), *map(Told, open_now), BEGUN)

    async def log_events(self, after: int, _kinds: frozenset[str] | None) -> EventPage:
        """Returns what is settled; see `TenantStore`."""
        events = tuple(one for one in self.log if after < one.position <= self.settled)
        frames = tuple(b"%d" % one.position for one in events)
        last = events[-1].position if events else after
        settled = last if events else self.settled
        return EventPage(events, frames, last, settled=settled, timeline=self.timeline)

    def owner(self, key: str) -> str | None:
        """See `Owners`."""
        return next(address for address, session_id in SESSIONS.items() if session_id == key)

    def addresses(self) -> frozenset[str]:
        """See `Owners`."""
        return frozenset(self.present)

    async def part(self, address: str) -> AsyncGenerator[bytes]:
        """Yields what a node tells, until it is gone."""
        self.asked.append(address)
        while (told := await self.parts[address].get()) is not None:
            yield msgspec.msgpack.encode(told)
        raise ShuttingDown


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """Two nodes; nobody waits long."""
    for name in ("LOOK_SECONDS", "LONGEST_PAUSE_SECONDS", "AGAIN_SECONDS"):
        monkeypatch.setattr(watches, name, 0.002)
    monkeypatch.setattr(watches, "UNTOLD_SECONDS", 0.1)
    return Nodes()


@contextlib.asynccontextmanager
async def watched(nodes: Nodes) -> AsyncIterator[AllSessions]:
    """Subscribes to the sessions of all nodes."""
    feed = Feed(ProtoCodec(), 10, TICK)
    store: Any = nodes
    subscription = AllSessions(DEFAULT_TENANT, feed, store, nodes, nodes.part, timeline=nodes.timeline)
    try:
        yield subscription
    finally:
        subscription.close()
        assert not feed.open_watchers


@contextlib.asynccontextmanager
async def begun(nodes: Nodes) -> AsyncIterator[AllSessions]:
    """Subscribes, and returns when both nodes have begun their parts."""
    for address in SESSIONS:
        nodes.begin(address, 1)
    nodes.settled = 1
    async with watched(nodes) as subscription:
        await subscription.begin(1)
        yield subscription


async def until_lagging(subscription: AllSessions) -> None:
    """Waits until the watch has to go on from the log."""
    while not subscription.lagging:
        await subscription.wait()


async def entries(subscription: AllSessions, count: int) -> list[Entry]:
    """Returns the next entries."""
    found: list[Entry] = []
    while len(found) < count and not subscription.lagging:
        found += subscription.take_entries(count - len(found))
        await subscription.wait()
    return found


async def frames(subscription: AllSessions, count: int) -> list[bytes]:
    """Returns the frames of the next entries."""
    return [entry.frame for entry in await entries(subscription, count)]


async def test_what_is_open_comes_first_and_once(nodes: Nodes) -> None:
    """That of all nodes is there when the subscription has begun."""
    nodes.begin(OWN, 1, b"mine")
    nodes.begin(OTHER, 1, b"theirs", b"more")
    nodes.settled = 1
    async with watched(nodes) as subscription:
        await subscription.begin(0)
        assert sorted(entry.frame for entry in subscription.take_entries()) == [b"mine", b"more", b"theirs"]
        assert not subscription.lagging


async def test_stored_events_are_in_one_order_with_what_is_told_between(nodes: Nodes) -> None:
    """An event that is not stored keeps its place among those that its node published."""
    async with begun(nodes) as subscription:
        for position, address in ((10, OWN), (11, OTHER), (12, OWN), (13, OTHER)):
            nodes.store(position, address)
        nodes.tell(OTHER, Told(position=11), Told(b"between 11 and 13"), Told(position=13), Told(b"after 13"))
        nodes.tell(OWN, Told(b"before 10"), Told(position=10), Told(position=12), Told(b"after 12"))
        nodes.settled = 13
        seen = await frames(subscription, 8)
    assert [one for one in seen if one.isdigit()] == [b"10", b"11", b"12", b"13"]
    place = {frame: number for number, frame in enumerate(seen)}
    assert place[b"before 10"] < place[b"10"]
    assert place[b"11"] < place[b"between 11 and 13"] < place[b"13"] < place[b"after 13"]
    assert place[b"12"] < place[b"after 12"]


async def test_an_event_is_told_when_none_can_come_before_it(nodes: Nodes) -> None:
    """One that is published waits for an older transaction, and so does what follows it; then both come in order."""
    async with begun(nodes) as subscription:
        nodes.store(21, OTHER)
        nodes.tell(OTHER, Told(position=21), Told(b"after 21"))
        for _ in range(5):
            await subscription.wait()
        assert not subscription.behind
        nodes.store(20, OWN)  # its transaction was begun earlier, and ends now
        nodes.tell(OWN, Told(position=20))
        nodes.settled = 21
        assert await frames(subscription, 3) == [b"20", b"21", b"after 21"]


async def test_what_was_stored_before_a_part_began_does_not_wait_for_it(nodes: Nodes) -> None:
    """It is told once: the part begins behind it."""
    nodes.store(5, OTHER)
    nodes.begin(OWN, 1)
    nodes.begin(OTHER, 5, b"open")
    nodes.settled = 5
    async with watched(nodes) as subscription:
        await subscription.begin(4)
        nodes.store(6, OTHER)
        nodes.tell(OTHER, Told(position=6))
        nodes.settled = 6
        assert sorted(await frames(subscription, 3)) == [b"5", b"6", b"open"]


async def test_a_part_that_comes_to_what_was_told_is_asked_for_again(nodes: Nodes) -> None:
    """The rest of it would stand in the wrong place."""
    nodes.store(5, OTHER)
    nodes.begin(OWN, 1)
    nodes.begin(OTHER, 7)
    nodes.settled = 7
    async with watched(nodes) as subscription:
        await subscription.begin(4)
        assert await frames(subscription, 1) == [b"5"]
        nodes.tell(OTHER, Told(position=5), Told(b"wrong place"))
        await until_lagging(subscription)
        subscription.skip()
        assert not subscription.behind


async def test_an_event_that_its_part_does_not_come_to_ends_the_wait(nodes: Nodes) -> None:
    """Its session has moved meanwhile: the watch goes on from the log, where the event is."""
    async with begun(nodes) as subscription:
        nodes.store(9, OTHER)
        nodes.settled = 9
        await until_lagging(subscription)
        assert not subscription.behind


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "cut off"])
async def test_a_node_that_leaves_is_left_out_of_the_next_beginning(nodes: Nodes, is_known: bool) -> None:
    """The watch lags, goes on from the log, and has nothing twice. Nothing of the old parts is told."""
    async with begun(nodes) as subscription:
        nodes.store(7, OTHER)
        nodes.tell(OTHER, Told(position=7), Told(b"after 7"))
        nodes.settled = 7
        assert await frames(subscription, 2) == [b"7", b"after 7"]
        nodes.present.discard(OTHER)
        if not is_known:
            nodes.parts[OTHER].put_nowait(None)
        await until_lagging(subscription)
        nodes.tell(OWN, Told(b"of the old part"))
        subscription.skip()
        assert not subscription.lagging
        nodes.parts.clear()
        nodes.begin(OWN, 8, b"open here")
        nodes.settled = 8
        await subscription.begin(7)
        nodes.store(9, OWN)
        nodes.tell(OWN, Told(position=9))
        nodes.settled = 9
        assert await frames(subscription, 2) == [b"open here", b"9"]
        assert nodes.asked[2:] == [OWN]


async def test_a_part_that_does_not_begin_holds_nothing_up(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node hangs: the watch lags, so that what is stored is told from the log, and asks again."""
    monkeypatch.setattr(watches, "BEGIN_SECONDS", 0.01)
    nodes.begin(OWN, 1, b"open here")
    nodes.settled = 1
    async with watched(nodes) as subscription:
        await subscription.begin(0)
        assert subscription.lagging


async def test_taken_bytes_end_with_the_newest_position(nodes: Nodes) -> None:
    """It takes the number that is asked for, and at least one event; an event that is not stored has no place."""
    async with begun(nodes) as subscription:
        nodes.store(2, OWN)
        nodes.tell(OWN, Told(position=2), Told(b"after"), Told(b"last"))
        nodes.settled = 2
        while not subscription.behind:
            await subscription.wait()
        for _ in range(3):
            await subscription.wait()
        taken = [subscription.take(6), subscription.take(1), subscription.take(1)]
    assert [(one.frames, one.order) for one in taken] == [(b"2after", 2), (b"last", 0), (b"", 0)]


@pytest.mark.parametrize(
    "told",
    [[Told(b"x" * watches.PART_BYTES)], [Told(b"x")] * 3000, [Told(position=9)] * 3000],
    ids=["states", "deltas", "positions"],
)
async def test_a_watch_whose_client_takes_nothing_holds_little(nodes: Nodes, told: list[Told]) -> None:
    """It takes in no more, drops what it has, and begins anew when the client has taken what it was sent."""
    async with begun(nodes) as subscription:
        tracemalloc.start()
        try:
            nodes.tell(OWN, *told)
            for _ in range(5):
                nodes.tell(OTHER, *told)
            await settled()
            for _ in range(2):
                nodes.tell(OWN, *told)
            await settled()
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert subscription.lagging
        assert not any(part.empty() for part in nodes.parts.values())
        assert held < watches.PART_BYTES
        nodes.parts.clear()
        subscription.skip()
        for address in SESSIONS:
            nodes.begin(address, 9, b"open")
        nodes.settled = 9
        await subscription.begin(9)
        assert [one.frame for one in subscription.take_entries()] == [b"open", b"open"]


async def test_a_beginning_may_be_larger_than_what_a_watch_holds(nodes: Nodes) -> None:
    """It is passed on as it comes: its client waits for it."""
    states = [b"%d" % number * watches.PART_BYTES for number in range(3)]
    for address in SESSIONS:
        nodes.tell(address, Told(position=1))
        for state in states:
            nodes.tell(address, Told(state))
        nodes.tell(address, BEGUN)
    nodes.settled = 1
    async with watched(nodes) as subscription:
        await subscription.begin(1)
        assert not subscription.lagging
        assert sorted(one.frame for one in subscription.take_entries()) == sorted(2 * states)


async def test_a_log_with_another_history_ends_the_watch(nodes: Nodes) -> None:
    """After a failover that lost commits, other events have the positions that the watch has passed."""
    async with begun(nodes) as subscription:
        nodes.store(2, OWN)
        nodes.settled, nodes.timeline = 2, "second"
        while not subscription.closed:
            await subscription.wait()
        assert subscription.shutting_down
        assert not subscription.take_entries()
