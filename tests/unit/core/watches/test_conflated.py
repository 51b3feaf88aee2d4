"""The simple stream: open permission requests come first, each once, whatever happens meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest

from tests.support.fakes import core
from tests.support.fakes.core import FakeStore, RecordingFeed, make_environment
from tests.support.fakes.domain_values import NOW, make_message, make_part, make_permission, make_session
from turnwire.api.wire.codec import ProtoCodec
from turnwire.core.servers import PartRequest
from turnwire.core.watches import conflated
from turnwire.core.watches.conflated import (
    Change,
    ConflatedWatches,
    Found,
    MessageChange,
    PartChange,
    PermissionChange,
    encode_found,
)
from turnwire.core.watches.parts import BEGUN, Told, WatchParts, told
from turnwire.domain.conversation.events import (
    DurableKind,
    Event,
    MessageAdded,
    MessageFinished,
    PartDelta,
    PermissionAsked,
    PermissionReplied,
    SessionUpdated,
    SessionView,
)
from turnwire.domain.conversation.messages import Message, Part, Text
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice, PermissionRequest
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.principal import BUILT_IN, DEFAULT_TENANT
from turnwire.feed import memory
from turnwire.ports.pages import PrunedSession
from turnwire.ports.store import StoredEvent

FILLERS = [f"filler_{index}" for index in range(100)]
"""More messages than a short ring of the feed holds."""


@dataclass
class FakeTurns:
    """Nothing streams, and some requests are open."""

    open: tuple[PermissionRequest, ...] = ()
    before_permissions: Callable[[], None] = lambda: None
    after_permissions: Callable[[], None] = lambda: None

    def open_messages(self, tenant: str, session_id: str | None) -> Sequence[Message]:
        """Returns nothing."""
        return ()

    def open_permissions(self, tenant: str, session_id: str | None) -> tuple[PermissionRequest, ...]:
        """Returns those of all sessions, and lets things happen before and after."""
        assert (tenant, session_id) == (DEFAULT_TENANT, None)
        self.before_permissions()
        found = self.open
        self.after_permissions()
        return found


class World:
    """Two sessions with a log and a feed."""

    def __init__(self) -> None:
        sessions = {name: make_session(name, directory=f"/{name}") for name in ("ses_1", "ses_2")}
        self.store = FakeStore(sessions_by_id=sessions)
        self.turns = FakeTurns()
        self.feed = RecordingFeed(ProtoCodec())
        environment = make_environment(self.store, feed=self.feed)
        self.watches = ConflatedWatches(environment, self.turns)  # type: ignore[arg-type]
        self.position = 0

    def happen(self, kind: DurableKind, session_id: str = "ses_1") -> None:
        """Stores and publishes the next event."""
        self.position += 1
        event = Event(session_id=session_id, kind=kind, at=NOW, sequence=self.position, position=self.position)
        stored = StoredEvent(event, ProtoCodec().encode_event(event), DEFAULT_TENANT)
        self.store.log.append(stored)
        self.feed.publish_stored([stored])

    def ask(self, permission_id: str, session_id: str = "ses_1") -> None:
        """Asks for a permission."""
        permission = make_permission(permission_id, session_id)
        self.turns.open = (*self.turns.open, permission)
        self.happen(PermissionAsked(permission), session_id)

    def answer(self, permission_id: str) -> None:
        """Answers a request."""
        self.turns.open = tuple(p for p in self.turns.open if p.permission_id != permission_id)
        self.happen(PermissionReplied(permission_id, "prt_0", PermissionAnswer(PermissionChoice.ONCE)))

    def mark(self, *message_ids: str) -> None:
        """Stores messages, the last of which a test reads up to."""
        for message_id in message_ids or ("mark",):
            self.happen(MessageAdded(make_message(message_id)))

    @contextlib.asynccontextmanager
    async def subscribed(self, *session_ids: str) -> AsyncIterator["Reader"]:
        """Opens a subscription that the server has begun to serve."""
        stream = self.watches.watch(BUILT_IN, frozenset(session_ids))
        async with contextlib.aclosing(stream):
            assert await anext(stream) is None
            yield Reader(stream)


class Reader:
    """Reads one subscription."""

    def __init__(self, stream: AsyncIterator[Change | None]) -> None:
        self._stream = stream

    async def asked_until(self, message_id: str = "mark") -> list[str]:
        """Returns the ids of the requests that are told before a message."""
        found = []
        async for change in self._stream:
            assert change.directory == f"/{change.session_id}"
            if isinstance(change.kind, MessageChange) and change.kind.message.message_id == message_id:
                break
            if isinstance(change.kind, PermissionChange):
                assert change.kind.permission.session_id == change.session_id
                found.append(change.kind.permission.permission_id)
        return found


@pytest.mark.parametrize("moment", ["before_permissions", "after_permissions"])
async def test_a_request_that_is_asked_while_the_stream_joins_is_told_once(moment: str) -> None:
    """Between the reading of the position and of the requests it is in both; after that, in the feed alone."""
    world = World()
    world.ask("per_a")

    def meanwhile() -> None:
        setattr(world.turns, moment, lambda: None)
        world.ask("per_b")
        world.mark()

    setattr(world.turns, moment, meanwhile)
    async with world.subscribed() as reader:
        assert await reader.asked_until() == ["per_a", "per_b"]


async def test_only_the_sessions_that_were_named_are_told_of() -> None:
    """Neither open requests nor new ones of others are told."""
    world = World()
    world.ask("per_a", "ses_2")
    world.ask("per_b")
    async with world.subscribed("ses_1") as reader:
        world.ask("per_c", "ses_2")
        world.ask("per_d")
        world.mark()
        assert await reader.asked_until() == ["per_b", "per_d"]


async def test_a_silent_stream_returns_to_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the interval is over, not at each beat of the feed; what happens then is told."""
    monkeypatch.setattr(core, "TICK", timedelta(milliseconds=1))
    world, now = World(), [0.0]
    world.watches.seconds = lambda: now[0]
    stream = world.watches.watch(BUILT_IN, frozenset())
    beating = asyncio.create_task(world.feed.run())
    async with contextlib.aclosing(stream):
        assert await anext(stream) is None
        world.mark("first")
        assert await anext(stream) is not None
        for at in (1.0, 2.0):
            now[0] = at * conflated.PAUSE_SECONDS
            assert await anext(stream) is None
        world.mark("second")
        assert await anext(stream) is not None
    beating.cancel()


async def test_a_stream_that_fell_behind_is_told_each_request_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was asked meanwhile is told even when its event is no longer kept."""
    monkeypatch.setattr(memory, "TENANT_RING_BYTES", 2_000)
    world = World()
    world.ask("per_a")
    async with world.subscribed() as reader:
        world.ask("per_b")
        world.mark()
        assert await reader.asked_until() == ["per_a", "per_b"]
        world.ask("per_pruned")
        world.answer("per_b")
        world.store.log.clear()
        world.store.earliest = world.position
        world.ask("per_c")
        world.mark(*FILLERS, "behind")
        assert await reader.asked_until("behind") == ["per_pruned", "per_c"]
        world.ask("per_d")
        world.mark("end")
        assert await reader.asked_until("end") == ["per_d"]


async def test_requests_of_a_session_that_lost_events_are_told() -> None:
    """A request may come after the open ones were read, and its event may be pruned before the log is read."""
    world = World()

    def ask_and_prune() -> None:
        world.store.on_read = lambda: None
        world.turns.open = (make_permission("per_pruned", "ses_1"),)
        world.store.pruned = (PrunedSession("ses_1", 3, world.position),)

    world.store.on_read = ask_and_prune
    async with world.subscribed() as reader:
        world.mark()
        assert await reader.asked_until() == ["per_pruned"]


async def test_the_directory_is_that_of_the_newest_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server may have changed it; where the event is no longer kept, the store is asked again."""
    monkeypatch.setattr(memory, "TENANT_RING_BYTES", 2_000)
    world = World()

    def move(directory: str) -> Session:
        moved = make_session("ses_1", directory=directory)
        world.store.sessions_by_id = {"ses_1": moved}
        return moved

    async def next_directory(stream: AsyncIterator[Change | None], mark: str) -> str:
        async for change in stream:
            if isinstance(change.kind, MessageChange) and change.kind.message.message_id == mark:
                return change.directory
        raise AssertionError("the stream has ended")

    async with contextlib.aclosing(world.watches.watch(BUILT_IN, frozenset())) as stream:
        assert await anext(stream) is None
        world.mark("one")
        assert await next_directory(stream, "one") == "/ses_1"
        world.happen(SessionUpdated(SessionView(move("/told"))))
        world.mark("two")
        assert await next_directory(stream, "two") == "/told"
        move("/not told")
        world.store.log.clear()
        world.store.earliest = world.position
        world.mark(*FILLERS)
        world.store.log = world.store.log[-2:]
        world.store.earliest = world.store.log[0].event.position - 1
        world.mark("three")
        assert await next_directory(stream, "three") == "/not told"


async def test_a_stream_that_falls_behind_while_it_joins_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Telling the open requests takes as long as the reader likes; what the feed drops meanwhile comes from the log."""
    monkeypatch.setattr(memory, "TENANT_RING_BYTES", 2_000)
    world = World()
    world.ask("per_a")

    def meanwhile() -> None:
        world.turns.after_permissions = lambda: None
        world.ask("per_b")
        world.mark(*FILLERS, "mark")

    world.turns.after_permissions = meanwhile
    async with world.subscribed() as reader:
        assert await reader.asked_until() == ["per_a", "per_b"]


class OtherServers:
    """The servers of a database, and the subscription to the sessions of all of them: a test tells what comes."""

    tells_what_is_open = True
    closed = shutting_down = lagging = False
    head = 0

    def __init__(self, *entries: memory.Entry) -> None:
        self.waiting = list(entries)
        self.requests: list[PartRequest] = []

    def watch_all(self, tenant: str, request: PartRequest) -> "OtherServers":
        """See `Servers`."""
        assert tenant == DEFAULT_TENANT
        self.requests.append(request)
        return self

    @property
    def behind(self) -> bool:
        """Whether something waits."""
        return bool(self.waiting)

    def take_entries(self, _max_entries: int | None = None) -> list[memory.Entry]:
        """Takes all."""
        taken, self.waiting = self.waiting, []
        return taken

    def skip(self) -> None:
        """Never called."""

    async def begin(self, _position: int) -> None:
        """All has begun."""

    async def wait(self) -> None:
        """Ends the stream when nothing waits."""
        self.closed = not self.waiting

    def close(self) -> None:
        """Ends nothing."""


def tells(message_id: str, text: str, session_id: str = "ses_1") -> memory.Entry:
    """Returns the state of a part as another server tells it."""
    return opened((session_id, PartChange(message_id, make_part(0, Text(text)))))


def opened(found: Found) -> memory.Entry:
    """Returns what another server has open."""
    return memory.Entry(None, encode_found(found), 0)


def stored(position: int, kind: DurableKind, session_id: str = "ses_1") -> memory.Entry:
    """Returns a stored event."""
    return memory.Entry(Event(session_id=session_id, kind=kind, at=NOW, sequence=1, position=position), b"", position)


async def changes_of(world: World, servers: OtherServers, *session_ids: str) -> list[Change]:
    """Returns all that a stream delivers."""
    world.watches.environment.servers = servers  # type: ignore[assignment]
    changes = [one async for one in world.watches.watch(BUILT_IN, frozenset(session_ids))]
    return [one for one in changes if one is not None]


async def test_of_the_states_that_servers_tell_only_the_newest_are_delivered() -> None:
    """Behind the stored events that came with them; those of a message that ended are not."""
    ended = make_message("msg_ended")
    servers = OtherServers(
        tells("msg_1", "a"),
        tells("msg_ended", "b"),
        tells("msg_1", "ab"),
        tells("msg_2", "c", "ses_2"),
        stored(1, MessageFinished(ended)),
    )
    world = World()
    assert await changes_of(world, servers) == [
        Change("ses_1", "/ses_1", MessageChange(ended)),
        Change("ses_1", "/ses_1", PartChange("msg_1", make_part(0, Text("ab")))),
        Change("ses_2", "/ses_2", PartChange("msg_2", make_part(0, Text("c")))),
    ]
    assert servers.requests == [PartRequest(is_conflated=True)]


async def test_open_requests_that_servers_tell_are_delivered_once() -> None:
    """Those of the sessions that were named; their events say nothing new."""
    asked, other, later = make_permission("per_a"), make_permission("per_b", "ses_2"), make_permission("per_c")
    servers = OtherServers(
        opened(("ses_1", PermissionChange(asked))),
        opened(("ses_2", PermissionChange(other))),
        stored(1, PermissionAsked(asked)),
        stored(2, PermissionAsked(later)),
        opened(("ses_1", PermissionChange(later))),
    )
    changes = await changes_of(World(), servers, "ses_1")
    assert [one.kind for one in changes] == [PermissionChange(asked), PermissionChange(later)]
    assert servers.requests == [PartRequest(is_conflated=True, session_ids=frozenset({"ses_1"}))]


STORED = MessageAdded(make_message("msg_2"))


class Streaming(FakeTurns):
    """One message streams, in a session of its name; its text grows."""

    text = "one"

    def open_messages(self, tenant: str, session_id: str | None) -> Sequence[Message]:
        """Returns it."""
        return (make_message("msg_1", parts=(self.part,)),)

    @property
    def part(self) -> Part:
        """Its only part."""
        return make_part(0, Text(self.text))

    def live(self, session_id: str) -> "Streaming | None":
        """Returns the turn."""
        return self if session_id == "ses_1" else None

    def open_part(self, _message_id: str, _index: int) -> Part:
        """Returns the part."""
        return self.part


async def test_a_part_for_a_conflated_watch_has_states_between_positions() -> None:
    """First what is open; a state stands for the deltas since the one before, and comes when its update is due."""
    world, turns, now = World(), Streaming(), [0.0]
    environment = world.watches.environment
    parts = WatchParts(environment, turns, ProtoCodec(), seconds=lambda: now[0])  # type: ignore[arg-type]
    request = PartRequest(is_conflated=True, session_ids=frozenset({"ses_1"}))

    def state(text: str) -> Told:
        return Told(tells("msg_1", text).frame)

    def grow(text: str) -> None:
        turns.text += text
        environment.feed.publish(DEFAULT_TENANT, Event(session_id="ses_1", kind=PartDelta("msg_1", 0, 0, text)))

    async with contextlib.aclosing(parts.part(DEFAULT_TENANT, request)) as answers:
        assert [told(await anext(answers)) for _ in range(3)] == [[Told(position=1)], [state("one")], [BEGUN]]
        grow(" two")
        grow(" three")
        world.happen(STORED)
        assert told(await anext(answers)) == [Told(position=1), state("one two three")]
        grow(" four")
        world.happen(STORED)
        assert told(await anext(answers)) == [Told(position=2)], "the next update is not due"
        now[0] += 1
        world.happen(STORED, "ses_2")
        assert told(await anext(answers)) == [Told(position=3), state("one two three four")]
