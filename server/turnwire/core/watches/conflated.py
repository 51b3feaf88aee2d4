"""The simple stream: the current state of messages and parts, at most 20 times a second for each part.

Open permission requests come first, and durable events are passed on as they come. A delta only marks its part as
changed. The current state of changed parts is delivered a few times a second, so a slow reader gets fewer and newer
states, and nothing is queued for it.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.servers import PartRequest
from turnwire.core.turns.registry import Turns
from turnwire.core.watches.join import ENTRIES_AT_ONCE, Join, subscribe_to_all
from turnwire.domain.conversation.events import (
    Event,
    MessageAdded,
    MessageFinished,
    PartDelta,
    PartFinished,
    PartStarted,
    PermissionAsked,
    PermissionReplied,
    SessionUpdated,
    ToolCallUpdated,
    ToolLog,
)
from turnwire.domain.conversation.messages import Content, Message, Part, Reasoning, Refusal, Text, ToolUse
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.errors import SessionNotFound
from turnwire.domain.principal import Principal
from turnwire.feed.memory import Entry, Subscription
from turnwire.ports.pages import Bounds, EventPage, PrunedSession
from turnwire.ports.store import TenantStore

UPDATE_SECONDS = 0.05
"""Shortest time between two updates of one part: 20 a second look continuous."""

PAUSE_SECONDS = 15.0
"""Interval at which a silent stream returns to its caller, who may have to end it; that of heartbeats of a watch."""

CHARACTERS_PER_SECOND = 5_000_000
"""Rate limit of all updates together: each carries the whole text so far, and long ones would block the event loop for
others. The parts of a stream are updated 20 times a second up to 250,000 characters, then more rarely."""

_KINDS = frozenset(
    kind.__name__
    for kind in (
        MessageAdded,
        MessageFinished,
        PartFinished,
        ToolCallUpdated,
        PermissionAsked,
        PermissionReplied,
        SessionUpdated,
    )
)

PartPlace = tuple[str, str, int]
"""Session, message and index of a part."""


class MessageChange(Struct, frozen=True, tag="message"):
    """A message was added or ended. Its parts come as separate changes."""

    message: Message


class PartChange(Struct, frozen=True, tag="part"):
    """The current state of a part."""

    message_id: str
    part: Part


class PermissionChange(Struct, frozen=True, tag="permission"):
    """A tool call asks for permission."""

    permission: PermissionRequest


class Change(Struct, frozen=True):
    """One change in a session."""

    session_id: str
    directory: str
    """The session's working directory; "" when it has none or is deleted."""
    kind: MessageChange | PartChange | PermissionChange


Found = tuple[str, PartChange | PermissionChange]
"""Id of a session, and what is open in it."""

_Item = tuple[str, MessageChange | PartChange | PermissionChange | SessionUpdated]
"""Id of a session, and a change in it."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Found] = msgspec.msgpack.Decoder(Found)

KNOWN_DIRECTORIES = 1000
"""Maximum sessions whose directories one stream remembers."""


class ChangedParts:
    """The open parts that changed since they were delivered. Used by one task."""

    def __init__(self, turns: Turns, seconds: Callable[[], float]) -> None:
        """Args:
        turns: Has the messages that stream on this server.
        seconds: A monotonic clock.
        """
        self._turns, self._seconds = turns, seconds
        # in the order of their first change; the state is what another server has told, else the turns have it
        self._changed: dict[PartPlace, PartChange | None] = {}
        self._next_update = 0.0

    def mark(self, place: PartPlace, told: PartChange | None = None) -> None:
        """Notes that a part has changed, and its state where another server has it."""
        self._changed[place] = told

    def note(self, event: Event) -> None:
        """Marks the part of a delta. Forgets a part that ended: its event has the end."""
        session_id = event.session_id
        match event.kind:
            case PartDelta(message_id, index) | ToolLog(message_id, index):
                self.mark((session_id, message_id, index))
            case PartStarted(message_id, part):
                self.mark((session_id, message_id, part.index))
            case PartFinished(message_id, part):
                self._changed.pop((session_id, message_id, part.index), None)
            case ToolCallUpdated(message_id, _, index):
                self._changed.pop((session_id, message_id, index), None)
            case MessageFinished(message):
                for place in [place for place in self._changed if place[1] == message.message_id]:
                    del self._changed[place]

    def clear(self) -> None:
        """Forgets all."""
        self._changed.clear()

    def seconds_left(self) -> float | None:
        """Returns the seconds until the next update; None while no part has changed."""
        return max(0.0, self._next_update - self._seconds()) if self._changed else None

    def take(self, *, at_once: bool = False) -> list[tuple[str, PartChange]]:
        """Returns the current state of the parts, when an update is due; those that ended come as durable events.

        Args:
            at_once: Whether one is due whenever there is something to tell.
        """
        if not (at_once or self.seconds_left() == 0.0):
            return []
        found: list[tuple[str, PartChange]] = []
        places, self._changed = self._changed, {}
        for (session_id, message_id, index), told in places.items():
            if (change := told or self._of_turn(session_id, message_id, index)) is not None:
                found.append((session_id, change))
        characters = sum(_characters(change.part.content) for _, change in found)
        self._next_update = self._seconds() + max(UPDATE_SECONDS, characters / CHARACTERS_PER_SECOND)
        return found

    def _of_turn(self, session_id: str, message_id: str, index: int) -> PartChange | None:
        turn = self._turns.live(session_id)
        part = turn.open_part(message_id, index) if turn is not None else None
        return None if part is None else PartChange(message_id, part)


def open_changes(turns: Turns, tenant: str, session_ids: frozenset[str]) -> list[Found]:
    """Returns the open permission requests, oldest first, and all parts of the messages that stream.

    Args:
        turns: Has them.
        tenant: Whose.
        session_ids: The sessions; empty for all of the tenant.
    """
    asked = [one for one in turns.open_permissions(tenant, None) if not session_ids or one.session_id in session_ids]
    asked.sort(key=lambda permission: permission.created_at)
    found: list[Found] = [(permission.session_id, PermissionChange(permission)) for permission in asked]
    for message in turns.open_messages(tenant, None):
        if not session_ids or message.session_id in session_ids:
            found += [(message.session_id, PartChange(message.message_id, part)) for part in message.parts]
    return found


def encode_found(found: Found) -> bytes:
    """Returns what is open as `decode_found` takes it, for a stream at another server."""
    return _ENCODER.encode(found)


def decode_found(frame: bytes) -> Found:
    """Returns what a server has told of its sessions."""
    return _DECODER.decode(frame)


class ConflatedWatches:
    """Creates simple streams."""

    def __init__(
        self, environment: Environment, turns: Turns, *, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        """Args:
        environment: Ports and settings.
        turns: Has the messages that stream now.
        seconds: A monotonic clock.
        """
        self.environment = environment
        self.turns = turns
        self.seconds = seconds

    async def watch(self, principal: Principal, session_ids: frozenset[str]) -> AsyncGenerator[Change | None]:
        """Yields None once no further change can be missed, then changes until the caller closes the iterator.

        None comes again from time to time, also while nothing changes. The caller sets the pace. Close the iterator
        (`aclose`) when done.

        Args:
            principal: The caller.
            session_ids: The sessions to watch; empty for all of the tenant. Unknown ones have no changes.

        Raises:
            TooManyWatchers: max_watchers streams are open.
            QuotaExceeded: as many streams are open as the tenant may have.
            ShuttingDown: the server stops; this also ends a running stream.
            StorageError: the log could not be read.
        """
        tenant = principal.tenant
        store = self.environment.store.of(tenant)
        request = PartRequest(is_conflated=True, session_ids=session_ids)
        subscription = subscribe_to_all(self.environment, tenant, request)
        try:
            join = Join(store, subscription, None, _KINDS)
            await join.begin(None)
            yield None
            directories = _Directories(store)
            stream = _ConflatedWatch(self, tenant, session_ids, subscription, join, on_loss=directories.clear)
            async with contextlib.aclosing(join.follow(stream)) as changes:
                async for item in changes:
                    if item is None:
                        yield None
                        continue
                    session_id, kind = item
                    if isinstance(kind, SessionUpdated):
                        directories.note(kind)
                    else:
                        yield Change(session_id, await directories.of(session_id), kind)
        finally:
            subscription.close()


class _Directories:
    """The working directories of sessions, which other servers may change: the stream has the events of that."""

    def __init__(self, store: TenantStore) -> None:
        self._store = store
        self._known = OrderedDict[str, str]()  # the one that was asked for last is the last one

    def note(self, updated: SessionUpdated) -> None:
        """Takes what an event tells."""
        session = updated.view.session
        if session.session_id in self._known:
            self._known[session.session_id] = session.directory

    def clear(self) -> None:
        """Forgets all: events that tell of others are no longer kept."""
        self._known.clear()

    async def of(self, session_id: str) -> str:
        """Returns the directory of a session; "" when it has none or is deleted."""
        if session_id not in self._known:
            try:
                self._known[session_id] = (await self._store.session(session_id)).directory
            except SessionNotFound:
                return ""
            if len(self._known) > KNOWN_DIRECTORIES:
                self._known.popitem(last=False)
        self._known.move_to_end(session_id)
        return self._known[session_id]


class _ConflatedWatch:
    """The state of one stream: the parts that changed since they were delivered. Implements `Follower`."""

    def __init__(
        self,
        made_by: ConflatedWatches,
        tenant: str,
        session_ids: frozenset[str],
        subscription: Subscription,
        join: Join,
        *,
        on_loss: Callable[[], None],
    ) -> None:
        self._tenant = tenant
        self._on_loss = on_loss  # called when events are no longer kept
        self._turns = made_by.turns
        self._seconds = made_by.seconds
        self._next_pause = made_by.seconds() + PAUSE_SECONDS  # when `wait` returns to the caller
        self._session_ids = session_ids
        self._subscription = subscription
        self._join = join
        self._parts = ChangedParts(made_by.turns, made_by.seconds)
        self._asked: set[str] = set()  # delivered open permission requests; bounded by the open ones

    async def opening(self) -> Sequence[_Item]:
        """Returns the open permission requests that are not delivered yet, unless the subscription tells of them.

        The turns have them, so the many that wait are neither read nor held once more for each stream. They are looked
        at after the position where replay begins. A request that is asked in between is therefore in both, and its
        event is skipped; in the opposite order it could be in neither.
        """
        if self._subscription.tells_what_is_open:
            self._parts.clear()  # states that servers told before: what is still open, they tell again
            return ()
        opened = open_changes(self._turns, self._tenant, self._session_ids)
        wanted = [(one[0], one[1]) for one in opened if isinstance(one[1], PermissionChange)]
        found = [one for one in wanted if one[1].permission.permission_id not in self._asked]
        self._asked = {change.permission.permission_id for _, change in wanted}
        return found

    async def gap(self, bounds: Bounds) -> Sequence[_Item]:
        """Continues with the kept events; returns the requests whose events are gone."""
        self._on_loss()
        self._join.position = bounds.earliest
        return await self.opening()

    async def losses(self, sessions: Sequence[PrunedSession]) -> Sequence[_Item]:
        """Returns the requests whose events may be gone."""
        self._on_loss()
        return await self.opening()

    def replay(self, page: EventPage) -> Sequence[_Item]:
        """Returns the changes in a page of stored events."""
        return self._changes(page.events)

    async def prepare(self) -> None:
        """Does nothing: what is open is in memory."""

    def join(self, entries: Sequence[Entry]) -> Sequence[_Item]:
        """Returns the changes since the replay, and marks all parts of open messages."""
        found = self._taken(entries)
        if not self._subscription.tells_what_is_open:
            for session_id, change in open_changes(self._turns, self._tenant, self._session_ids):
                if isinstance(change, PartChange):
                    self._parts.mark((session_id, change.message_id, change.part.index))
        return found

    def take(self) -> Sequence[_Item]:
        """Returns the pending changes, and the changed parts when their update is due. Servers have their own pace."""
        entries = self._join.skip_seen(self._subscription.take_entries(ENTRIES_AT_ONCE))
        return [*self._taken(entries), *self._parts.take(at_once=self._subscription.tells_what_is_open)]

    async def wait(self) -> Sequence[_Item | None]:
        """Waits for the next event or, while parts are marked, until their update is due. Returns None at a pause."""
        seconds = self._parts.seconds_left()
        if seconds is None or self._subscription.behind:
            await self._subscription.wait()
        else:
            await asyncio.sleep(seconds)
        if (now := self._seconds()) < self._next_pause:
            return ()
        self._next_pause = now + PAUSE_SECONDS
        return (None,)

    def _taken(self, entries: Iterable[Entry]) -> list[_Item]:
        found = list[_Item]()
        for entry in entries:
            if entry.event is None:
                found += self._told(decode_found(entry.frame))
            else:
                found += self._changes((entry.event,))
        return found

    def _told(self, found: Found) -> Sequence[_Item]:
        """Returns a permission request of another server that is not delivered yet. Marks a part."""
        session_id, change = found
        if not self._is_wanted(session_id):
            return ()
        if isinstance(change, PartChange):
            self._parts.mark((session_id, change.message_id, change.part.index), change)
            return ()
        return self._newly_asked(session_id, change.permission)

    def _changes(self, events: Iterable[Event]) -> list[_Item]:
        found = list[_Item]()
        for event in events:
            if self._is_wanted(event.session_id):
                self._parts.note(event)
                found += self._changes_of(event)
        return found

    def _changes_of(self, event: Event) -> Iterator[_Item]:
        """Yields the changes that a stored event means for readers."""
        session_id = event.session_id
        match event.kind:
            case PartFinished(message_id, part):
                yield session_id, PartChange(message_id, part)
            case ToolCallUpdated(message_id, part_id, index, call):
                yield session_id, PartChange(message_id, Part(part_id=part_id, index=index, content=call))
            case MessageAdded(message):
                yield session_id, MessageChange(message)
                for part in message.parts:
                    yield session_id, PartChange(message.message_id, part)
            case MessageFinished(message):
                yield session_id, MessageChange(message)
            case PermissionAsked(permission):
                yield from self._newly_asked(session_id, permission)
            case PermissionReplied(permission_id):
                self._asked.discard(permission_id)
            case SessionUpdated() as updated:
                yield session_id, updated

    def _newly_asked(self, session_id: str, permission: PermissionRequest) -> Sequence[_Item]:
        if permission.permission_id in self._asked:
            return ()
        self._asked.add(permission.permission_id)
        return [(session_id, PermissionChange(permission))]

    def _is_wanted(self, session_id: str) -> bool:
        return not self._session_ids or session_id in self._session_ids


def _characters(content: Content) -> int:
    """Returns the length of what grows in a part."""
    match content:
        case Text(text) | Reasoning(text) | Refusal(text):
            return len(text)
        case ToolUse():
            return len(content.input_json)
    return 0
