"""The simple stream: what messages and parts have become, at most 20 times a second for each part.

Durable events are passed on as they come; permission requests that are open already come first. Deltas only mark their
part as changed; a few times a second the changed parts are delivered as they then stand, so a slow reader gets fewer
and newer ones and nothing is collected for it.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.turns.registry import Turns
from turnwire.core.watches.join import Join
from turnwire.domain.conversation.events import (
    Event,
    MessageAdded,
    MessageFinished,
    PartDelta,
    PartFinished,
    PartStarted,
    PermissionAsked,
    PermissionReplied,
    ToolCallUpdated,
    ToolLog,
)
from turnwire.domain.conversation.messages import Message, Part
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.errors import SessionNotFound
from turnwire.domain.principal import Principal
from turnwire.ports.codec import Codec
from turnwire.ports.feed import Entry, Subscription
from turnwire.ports.store import Bounds, EventPage, PrunedSession

UPDATE_SECONDS = 0.05
"""Shortest time between two updates of one part: 20 a second look continuous to an eye."""

_KINDS = frozenset(
    kind.__name__
    for kind in (MessageAdded, MessageFinished, PartFinished, ToolCallUpdated, PermissionAsked, PermissionReplied)
)

PartPlace = tuple[str, str, int]
"""Session, message and index of a part."""


class MessageChange(Struct, frozen=True):
    """A message was added or ended. Its parts come by themselves."""

    message: Message


class PartChange(Struct, frozen=True):
    """A part as it stands now."""

    message_id: str
    part: Part


class PermissionChange(Struct, frozen=True):
    """A tool call asks for permission."""

    permission: PermissionRequest


class Change(Struct, frozen=True):
    """One change in a session."""

    session_id: str
    directory: str
    """The session's working directory; "" when it has none or is deleted."""
    kind: MessageChange | PartChange | PermissionChange


_Found = tuple[str, MessageChange | PartChange | PermissionChange]
"""A change with its session."""


class ConflatedWatches:
    """Makes simple streams."""

    def __init__(
        self, environment: Environment, turns: Turns, codec: Codec, *, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        """Args:
        environment: Ports and settings.
        turns: Knows what streams now.
        codec: Reads the frames of the log.
        seconds: A clock that nobody sets.
        """
        self.environment = environment
        self.turns = turns
        self.codec = codec
        self.seconds = seconds

    async def watch(self, principal: Principal, session_ids: frozenset[str]) -> AsyncGenerator[Change | None]:
        """Yields None once nothing will be missed any more, then changes until the caller closes the iterator.

        The caller's pace is the stream's pace. Close it (`aclose`) when done.

        Args:
            principal: For whom.
            session_ids: The sessions to tell of; empty for all.

        Raises:
            TooManyWatchers, ShuttingDown: no stream can be had; ShuttingDown also ends a running one.
        """
        subscription = self.environment.feed.subscribe(None)
        try:
            join = Join(self.environment.store, subscription, None, _KINDS)
            await join.begin(None)
            yield None
            stream = _ConflatedWatch(self, session_ids, subscription, join)
            async with contextlib.aclosing(join.follow(stream)) as changes:
                async for session_id, kind in changes:
                    yield Change(session_id, await self._directory(session_id), kind)
        finally:
            subscription.close()

    async def _directory(self, session_id: str) -> str:
        try:
            return (await self.environment.store.cached_session(session_id)).directory
        except SessionNotFound:
            return ""


class _ConflatedWatch:
    """The state of one stream: which parts changed since they were last delivered. Implements `Follower`."""

    def __init__(
        self, made_by: ConflatedWatches, session_ids: frozenset[str], subscription: Subscription, join: Join
    ) -> None:
        self._store = made_by.environment.store
        self._turns = made_by.turns
        self._decode = made_by.codec.decode_events
        self._seconds = made_by.seconds
        self._session_ids = session_ids
        self._subscription = subscription
        self._join = join
        self._changed: dict[PartPlace, None] = {}  # in the order in which they changed
        self._asked: set[str] = set()  # open permission requests that were told; bounded by those that are open
        self._last_update = 0.0

    async def opening(self) -> Sequence[_Found]:
        """Returns the open permission requests that were not told yet.

        They are read after the position from which events are replayed. So a request that is asked in between is in
        both, and its event is skipped; read before the position, it might be in neither.
        """
        asked = await self._store.open_permissions(None)
        wanted = [permission for permission in asked if self._is_wanted(permission.session_id)]
        found = [(p.session_id, PermissionChange(p)) for p in wanted if p.permission_id not in self._asked]
        self._asked = {permission.permission_id for permission in wanted}
        return found

    async def gap(self, bounds: Bounds) -> Sequence[_Found]:
        """Goes on with what is kept, after the requests whose events are gone: this stream shows what stands."""
        self._join.position = bounds.earliest
        return await self.opening()

    async def lost(self, sessions: Sequence[PrunedSession]) -> Sequence[_Found]:
        """Returns the requests whose events may be gone."""
        return await self.opening()

    def replayed(self, page: EventPage) -> Sequence[_Found]:
        """Returns the changes of stored events."""
        return self._changes(self._decode(b"".join(page.frames)))

    async def ready(self) -> None:
        """Needs nothing."""

    def joined(self, entries: Sequence[Entry]) -> Sequence[_Found]:
        """Returns what was published meanwhile, and marks every part of what streams now or waits for tools."""
        found = self._changes(entry.event for entry in entries)
        for message in self._turns.open_messages(None):
            if self._is_wanted(message.session_id):
                self._changed |= {(message.session_id, message.message_id, p.index): None for p in message.parts}
        return found

    def taken(self) -> Sequence[_Found]:
        """Returns what waits, and the changed parts when it is time for them."""
        entries = self._join.fresh(self._subscription.take_entries())
        found = self._changes(entry.event for entry in entries)
        now = self._seconds()
        if self._changed and now - self._last_update >= UPDATE_SECONDS:
            self._last_update = now
            found += self._changed_parts()
        return found

    async def idle(self) -> Sequence[_Found]:
        """Waits for the next event, or while parts are marked until it is time for them."""
        if self._changed:
            await asyncio.sleep(max(0.0, self._last_update + UPDATE_SECONDS - self._seconds()))
        else:
            await self._subscription.wait()
        return ()

    def _changes(self, events: Iterable[Event]) -> list[_Found]:
        found: list[_Found] = []
        for event in events:
            if self._is_wanted(event.session_id):
                found += self._changes_of(event)
        return found

    def _changes_of(self, event: Event) -> Sequence[_Found]:
        """Returns what an event is for readers; marks the part of a hint, and takes the mark from one that ended."""
        session_id = event.session_id
        match event.kind:
            case PartDelta(message_id, index) | ToolLog(message_id, index):
                self._changed[session_id, message_id, index] = None
            case PartStarted(message_id, part):
                self._changed[session_id, message_id, part.index] = None
            case PartFinished(message_id, part):
                return [self._ended(session_id, message_id, part)]
            case ToolCallUpdated(message_id, part_id, index, call):
                return [self._ended(session_id, message_id, Part(part_id=part_id, index=index, content=call))]
            case MessageAdded(message):
                parts = [(session_id, PartChange(message.message_id, part)) for part in message.parts]
                return [(session_id, MessageChange(message)), *parts]
            case MessageFinished(message):
                return [(session_id, MessageChange(message))]
            case PermissionAsked(permission) if permission.permission_id not in self._asked:
                self._asked.add(permission.permission_id)
                return [(session_id, PermissionChange(permission))]
            case PermissionReplied(permission_id):
                self._asked.discard(permission_id)
        return ()

    def _ended(self, session_id: str, message_id: str, part: Part) -> _Found:
        self._changed.pop((session_id, message_id, part.index), None)
        return session_id, PartChange(message_id, part)

    def _changed_parts(self) -> list[_Found]:
        """Returns the marked parts as they stand now; those that ended meanwhile come as durable events."""
        found: list[_Found] = []
        places, self._changed = self._changed, {}
        for session_id, message_id, index in places:
            turn = self._turns.live(session_id)
            part = turn.open_part(message_id, index) if turn is not None else None
            if part is not None:
                found.append((session_id, PartChange(message_id, part)))
        return found

    def _is_wanted(self, session_id: str) -> bool:
        return not self._session_ids or session_id in self._session_ids
