"""The simple stream: the current state of messages and parts, at most 20 times a second for each part.

Open permission requests come first, and durable events are passed on as they come. A delta only marks its part as
changed. The current state of changed parts is delivered a few times a second, so a slow reader gets fewer and newer
states, and nothing is queued for it.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.turns.registry import Turns
from turnwire.core.watches.join import ENTRIES_AT_ONCE, Join, subscribe
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
from turnwire.domain.conversation.messages import Content, Message, Part, Reasoning, Refusal, Text, ToolUse
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.errors import InvalidRequest, SessionNotFound
from turnwire.domain.principal import Principal
from turnwire.feed.memory import Entry, Subscription
from turnwire.ports.pages import Bounds, EventPage, PrunedSession
from turnwire.ports.store import TenantStore

UPDATE_SECONDS = 0.05
"""Shortest time between two updates of one part: 20 a second look continuous."""

CHARACTERS_PER_SECOND = 5_000_000
"""Rate limit of all updates together: each carries the whole text so far, and long ones would block the event loop for
others. The parts of a stream are updated 20 times a second up to 250,000 characters, then more rarely."""

_KINDS = frozenset(
    kind.__name__
    for kind in (MessageAdded, MessageFinished, PartFinished, ToolCallUpdated, PermissionAsked, PermissionReplied)
)

PartPlace = tuple[str, str, int]
"""Session, message and index of a part."""


class MessageChange(Struct, frozen=True):
    """A message was added or ended. Its parts come as separate changes."""

    message: Message


class PartChange(Struct, frozen=True):
    """The current state of a part."""

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
"""Id of a session, and a change in it."""


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

        The caller sets the pace. Close the iterator (`aclose`) when done.

        Args:
            principal: The caller.
            session_ids: The sessions to watch; empty for all of the tenant. Unknown ones have no changes.

        Raises:
            TooManyWatchers: max_watchers streams are open.
            QuotaExceeded: as many streams are open as the tenant may have.
            InvalidRequest: other servers have some of the sessions.
            ShuttingDown: the server stops; this also ends a running stream.
            StorageError: the log could not be read.
        """
        if not self.environment.has_all_sessions():
            text = "is for one node: while several have the sessions, use WatchEvents"
            raise InvalidRequest.of("session_ids", text)
        tenant = principal.tenant
        store = self.environment.store.of(tenant)
        subscription = subscribe(self.environment, tenant, None)
        try:
            join = Join(store, subscription, None, _KINDS)
            await join.begin(None)
            yield None
            stream = _ConflatedWatch(self, tenant, session_ids, subscription, join)
            async with contextlib.aclosing(join.follow(stream)) as changes:
                async for session_id, kind in changes:
                    yield Change(session_id, await _directory(store, session_id), kind)
        finally:
            subscription.close()


async def _directory(store: TenantStore, session_id: str) -> str:
    try:
        return (await store.cached_session(session_id)).directory
    except SessionNotFound:
        return ""


class _ConflatedWatch:
    """The state of one stream: the parts that changed since they were delivered. Implements `Follower`."""

    def __init__(
        self,
        made_by: ConflatedWatches,
        tenant: str,
        session_ids: frozenset[str],
        subscription: Subscription,
        join: Join,
    ) -> None:
        self._tenant = tenant
        self._turns = made_by.turns
        self._seconds = made_by.seconds
        self._session_ids = session_ids
        self._subscription = subscription
        self._join = join
        self._changed: dict[PartPlace, None] = {}  # ordered by first change
        self._asked: set[str] = set()  # delivered open permission requests; bounded by the open ones
        self._next_update = 0.0

    async def opening(self) -> Sequence[_Found]:
        """Returns the open permission requests that are not delivered yet.

        The turns have them, so the many that wait are neither read nor held once more for each stream. They are looked
        at after the position where replay begins. A request that is asked in between is therefore in both, and its
        event is skipped; in the opposite order it could be in neither.
        """
        asked = self._turns.open_permissions(self._tenant, None)
        wanted = [permission for permission in asked if self._is_wanted(permission.session_id)]
        wanted.sort(key=lambda permission: permission.created_at)
        found = [(p.session_id, PermissionChange(p)) for p in wanted if p.permission_id not in self._asked]
        self._asked = {permission.permission_id for permission in wanted}
        return found

    async def gap(self, bounds: Bounds) -> Sequence[_Found]:
        """Continues with the kept events; returns the requests whose events are gone."""
        self._join.position = bounds.earliest
        return await self.opening()

    async def losses(self, sessions: Sequence[PrunedSession]) -> Sequence[_Found]:
        """Returns the requests whose events may be gone."""
        return await self.opening()

    def replay(self, page: EventPage) -> Sequence[_Found]:
        """Returns the changes in a page of stored events."""
        return self._changes(page.events)

    async def prepare(self) -> None:
        """Does nothing: what is open is in memory."""

    def join(self, entries: Sequence[Entry]) -> Sequence[_Found]:
        """Returns the changes since the replay, and marks all parts of open messages."""
        found = self._changes(entry.event for entry in entries if entry.event is not None)
        for message in self._turns.open_messages(self._tenant, None):
            if self._is_wanted(message.session_id):
                self._changed |= {(message.session_id, message.message_id, p.index): None for p in message.parts}
        return found

    def take(self) -> Sequence[_Found]:
        """Returns the pending changes, and the changed parts when their update is due."""
        entries = self._join.skip_seen(self._subscription.take_entries(ENTRIES_AT_ONCE))
        found = self._changes(entry.event for entry in entries if entry.event is not None)
        now = self._seconds()
        if self._changed and now >= self._next_update:
            parts = self._changed_parts()
            characters = sum(_characters(change.part.content) for _, change in parts)
            self._next_update = now + max(UPDATE_SECONDS, characters / CHARACTERS_PER_SECOND)
            found += parts
        return found

    async def wait(self) -> Sequence[_Found]:
        """Waits for the next event or, while parts are marked, until their update is due."""
        if self._changed and not self._subscription.behind:
            await asyncio.sleep(max(0.0, self._next_update - self._seconds()))
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
        """Returns the changes that an event means for readers. Marks the part of a delta, unmarks a part that ended."""
        session_id = event.session_id
        match event.kind:
            case PartDelta(message_id, index) | ToolLog(message_id, index):
                self._changed[session_id, message_id, index] = None
            case PartStarted(message_id, part):
                self._changed[session_id, message_id, part.index] = None
            case PartFinished(message_id, part):
                return [self._end_part(session_id, message_id, part)]
            case ToolCallUpdated(message_id, part_id, index, call):
                return [self._end_part(session_id, message_id, Part(part_id=part_id, index=index, content=call))]
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

    def _end_part(self, session_id: str, message_id: str, part: Part) -> _Found:
        self._changed.pop((session_id, message_id, part.index), None)
        return session_id, PartChange(message_id, part)

    def _changed_parts(self) -> list[tuple[str, PartChange]]:
        """Returns the current state of marked parts; parts that ended meanwhile come as durable events."""
        found: list[tuple[str, PartChange]] = []
        places, self._changed = self._changed, {}
        for session_id, message_id, index in places:
            turn = self._turns.live(session_id)
            part = turn.open_part(message_id, index) if turn is not None else None
            if part is not None:
                found.append((session_id, PartChange(message_id, part)))
        return found

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
