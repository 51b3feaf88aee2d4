"""The simple stream: open permission requests come first, each once, whatever happens meanwhile."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import pytest

from tests.support.fakes.core import FakeStore, RecordingFeed, make_environment
from tests.support.fakes.domain_values import NOW, make_message, make_permission, make_session
from turnwire.api.wire.codec import ProtoCodec
from turnwire.core.watches.conflated import Change, ConflatedWatches, MessageChange, PermissionChange
from turnwire.domain.conversation.events import DurableKind, Event, MessageAdded, PermissionAsked, PermissionReplied
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice, PermissionRequest
from turnwire.domain.principal import BUILT_IN, DEFAULT_TENANT
from turnwire.feed import memory
from turnwire.ports.pages import PrunedSession
from turnwire.ports.store import StoredEvent


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

    def mark(self, message_id: str = "mark") -> None:
        """Stores a message, up to which a test reads."""
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
            assert change is not None
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
    """Of their open requests and of new ones."""
    world = World()
    world.ask("per_a", "ses_2")
    world.ask("per_b")
    async with world.subscribed("ses_1") as reader:
        world.ask("per_c", "ses_2")
        world.ask("per_d")
        world.mark()
        assert await reader.asked_until() == ["per_b", "per_d"]


async def test_a_stream_that_fell_behind_is_told_each_request_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told is not told again; what was asked meanwhile is, even when its event is no longer kept."""
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
        for index in range(100):
            world.mark(f"filler_{index}")
        world.mark("behind")
        assert await reader.asked_until("behind") == ["per_pruned", "per_c"]
        world.ask("per_d")
        world.mark("end")
        assert await reader.asked_until("end") == ["per_d"]


async def test_requests_of_a_session_that_lost_events_are_told() -> None:
    """What was asked after the open requests were read, and whose event is pruned before the log is read."""
    world = World()

    def ask_and_prune() -> None:
        world.store.on_read = lambda: None
        world.turns.open = (make_permission("per_pruned", "ses_1"),)
        world.store.pruned = (PrunedSession("ses_1", 3, world.position),)

    world.store.on_read = ask_and_prune
    async with world.subscribed() as reader:
        world.mark()
        assert await reader.asked_until() == ["per_pruned"]


async def test_a_stream_that_falls_behind_while_it_joins_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Telling the open requests takes as long as the reader likes; what the feed drops meanwhile comes from the log."""
    monkeypatch.setattr(memory, "TENANT_RING_BYTES", 2_000)
    world = World()
    world.ask("per_a")

    def meanwhile() -> None:
        world.turns.after_permissions = lambda: None
        world.ask("per_b")
        for index in range(100):
            world.mark(f"filler_{index}")
        world.mark()

    world.turns.after_permissions = meanwhile
    async with world.subscribed() as reader:
        assert await reader.asked_until() == ["per_a", "per_b"]
