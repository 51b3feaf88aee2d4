"""The simple event stream: accumulated text, at most 20 updates a second for each part.

Durable events are translated as they come; permission requests that are open already are told first. Deltas only mark
their part as changed; a few times a second the changed parts are sent as they then stand, so a slow reader gets fewer
and newer updates and nothing is collected for it.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable

from opencode.event import event_pb2 as pb
from opencode.event import session_event_pb2
from opencode.message import content_pb2 as content
from opencode.tool import tool_pb2
from turnwire.api.services.opening import STREAM_OPEN
from turnwire.api.wire import to_proto
from turnwire.core.environment import Environment
from turnwire.core.turns.registry import Turns
from turnwire.domain.conversation.events import PartDelta, PartStarted, ToolLog
from turnwire.domain.errors import SessionNotFound, ShuttingDown
from turnwire.domain.principal import Principal
from turnwire.ports.feed import Entry, Subscription

UPDATE_SECONDS = 0.05
"""Shortest time between two updates of one part: 20 a second look continuous to an eye."""

_BROKEN = (content.MESSAGE_STATUS_INTERRUPTED, content.MESSAGE_STATUS_FAILED)

PartPlace = tuple[str, str, int]
"""Session, message and index of a part."""


class GlobalEvents:
    """Makes subscriptions."""

    def __init__(self, environment: Environment, turns: Turns) -> None:
        """Takes the ports and who knows what streams now."""
        self._environment = environment
        self._turns = turns

    async def subscribe(
        self, principal: Principal, session_ids: frozenset[str]
    ) -> AsyncGenerator[pb.GlobalEvent | bytes]:
        """Yields changes (after STREAM_OPEN) until the caller closes the iterator.

        Args:
            session_ids: The sessions to tell of; empty for all.

        Raises:
            TooManyWatchers, ShuttingDown: no subscription can be had; ShuttingDown also ends a running one.
        """
        subscription = self._environment.feed.subscribe(None)
        try:
            stream = _GlobalStream(self._environment, self._turns, session_ids, subscription)
            await stream.begin()
            yield STREAM_OPEN
            while not subscription.closed:
                async for change in stream.changes():
                    yield change
                await stream.wait()
            raise ShuttingDown
        finally:
            subscription.close()


class _GlobalStream:
    """The state of one subscription: which parts have changed since they were last sent."""

    def __init__(
        self, environment: Environment, turns: Turns, session_ids: frozenset[str], subscription: Subscription
    ) -> None:
        self._environment = environment
        self._turns = turns
        self._session_ids = session_ids
        self._subscription = subscription
        self._changed: dict[PartPlace, None] = {}  # in the order in which they changed
        self._asked: set[str] = set()  # open permission requests that were told; bounded by those that are open
        self._joining = True  # the open permission requests are to be told
        self._position = 0
        self._last_update = 0.0

    async def begin(self) -> None:
        """Starts with the open permission requests and all parts of messages that stream now or wait for tools."""
        self._position = (await self._environment.store.log_bounds()).head
        self._mark_open()

    async def changes(self) -> AsyncGenerator[pb.GlobalEvent]:
        """Yields what there is to send now."""
        behind = self._subscription.lagging
        if behind:
            self._subscription.skip()
        if behind or self._joining:
            self._joining = False
            for change in await self._open_permissions():
                yield change
        if behind:
            async for change in self._missed():
                yield change
            self._mark_open()
        if self._subscription.lagging:
            return  # fell behind meanwhile, or again: the next round reads the log
        for change in await self._translate(self._subscription.take_entries()):
            yield change
        if self._changed and time.monotonic() - self._last_update >= UPDATE_SECONDS:
            self._last_update = time.monotonic()
            for change in await self._flush():
                yield change

    async def wait(self) -> None:
        """Returns when there may be something to send."""
        if self._changed:
            await asyncio.sleep(max(0.0, self._last_update + UPDATE_SECONDS - time.monotonic()))
        else:
            await self._subscription.wait()

    async def _open_permissions(self) -> list[pb.GlobalEvent]:
        """Returns the open requests that were not told yet.

        They are read after the position from which events are translated. So a request that is asked in between is in
        both, and its event is skipped; read before the position, it might be in neither.
        """
        found: list[pb.GlobalEvent] = []
        asked = await self._environment.store.open_permissions(None)
        wanted = [p for p in asked if not self._session_ids or p.session_id in self._session_ids]
        for permission in wanted:
            if permission.permission_id not in self._asked:
                change = permission_created(to_proto.permission(permission))
                change.directory = await self._directory(permission.session_id)
                found.append(change)
        self._asked = {permission.permission_id for permission in wanted}
        return found

    async def _translate(self, entries: Iterable[Entry]) -> list[pb.GlobalEvent]:
        found: list[pb.GlobalEvent] = []
        for entry in entries:
            kind, session_id = entry.event.kind, entry.event.session_id
            if self._session_ids and session_id not in self._session_ids:
                continue
            if isinstance(kind, PartDelta | ToolLog):
                self._changed[session_id, kind.message_id, kind.part_index] = None
            elif isinstance(kind, PartStarted):
                self._changed[session_id, kind.message_id, kind.part.index] = None
            elif entry.order > self._position:
                self._position = entry.order
                found += await self._translate_frames(entry.frame)
        return found

    async def _missed(self) -> AsyncGenerator[pb.GlobalEvent]:
        """Yields the durable events that the feed no longer has, a page of the log at a time."""
        while True:
            page = await self._environment.store.log_events(self._position, None)
            if page.last == self._position:
                return
            self._position = page.last
            for change in await self._translate_frames(b"".join(page.frames)):
                yield change

    async def _translate_frames(self, frames: bytes) -> list[pb.GlobalEvent]:
        found: list[pb.GlobalEvent] = []
        for event in pb.WatchEventsResponse.FromString(frames).events:
            if self._session_ids and event.session_id not in self._session_ids:
                continue
            for change in self._changes_of(event):
                change.directory = await self._directory(event.session_id)
                found.append(change)
        return found

    def _changes_of(self, event: session_event_pb2.SessionEvent) -> list[pb.GlobalEvent]:
        match event.WhichOneof("kind"):
            case "message_added":
                message = event.message_added.message
                parts = [part_updated(message.session_id, message.message_id, part) for part in message.parts]
                return [message_updated(message), *(part for part in parts if part is not None)]
            case "message_finished":
                return [message_updated(event.message_finished.message)]
            case "part_finished":
                finished = event.part_finished
                self._changed.pop((event.session_id, finished.message_id, finished.part.index), None)
                change = part_updated(event.session_id, finished.message_id, finished.part)
                return [change] if change is not None else []
            case "tool_call_updated":
                updated = event.tool_call_updated
                self._changed.pop((event.session_id, updated.message_id, updated.part_index), None)
                return [tool_updated(event.session_id, updated.message_id, updated.part_index, updated.state)]
            case "permission_asked" | "permission_replied":
                return self._permission_changes(event)
            case _:
                return []

    def _permission_changes(self, event: session_event_pb2.SessionEvent) -> list[pb.GlobalEvent]:
        self._asked.discard(event.permission_replied.permission_id)
        permission = event.permission_asked.permission
        if not permission.id or permission.id in self._asked:
            return []
        self._asked.add(permission.id)
        return [permission_created(permission)]

    async def _flush(self) -> list[pb.GlobalEvent]:
        """Returns the changed parts as they stand now; those that ended meanwhile come as durable events."""
        found: list[pb.GlobalEvent] = []
        places, self._changed = list(self._changed), {}
        for session_id, message_id, index in places:
            turn = self._turns.live(session_id)
            part = turn.open_part(message_id, index) if turn is not None else None
            change = part_updated(session_id, message_id, to_proto.part(part)) if part is not None else None
            if change is not None:
                change.directory = await self._directory(session_id)
                found.append(change)
        return found

    def _mark_open(self) -> None:
        for message in self._turns.open_messages():
            if not self._session_ids or message.session_id in self._session_ids:
                for part in message.parts:
                    self._changed[message.session_id, message.message_id, part.index] = None

    async def _directory(self, session_id: str) -> str:
        try:
            return (await self._environment.store.cached_session(session_id)).directory
        except SessionNotFound:
            return ""


def permission_created(permission: tool_pb2.PermissionRequest) -> pb.GlobalEvent:
    """Returns the news that a tool call asks for permission."""
    return pb.GlobalEvent(permission_created=pb.PermissionCreated(permission=permission))


def message_updated(message: content.SessionMessage) -> pb.GlobalEvent:
    """Returns the change of a message, in the words of the fixed contract."""
    updated = pb.MessageUpdated(
        message_id=message.message_id,
        role=to_proto.role(message.type),
        created_at=message.create_time.ToMilliseconds(),
        updated_at=message.update_time.ToMilliseconds(),
        session_id=message.session_id,
        status=message.status,
        finish_reason=message.finish_reason,
    )
    if message.finish_reason:
        updated.finish = "error" if message.status in _BROKEN else "stop"
    if message.HasField("usage"):
        usage = message.usage
        updated.tokens.input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        updated.tokens.output = (
            usage.reported_output_tokens
            if usage.HasField("reported_output_tokens")
            else usage.output_tokens + usage.reasoning_tokens
        )
        updated.tokens.reasoning = usage.reasoning_tokens
    return pb.GlobalEvent(message_updated=updated)


def part_updated(session_id: str, message_id: str, part: content.Part) -> pb.GlobalEvent | None:
    """Returns the change of a part with all of its text; None for parts that the fixed contract cannot show."""
    updated = pb.MessagePartUpdated(message_id=message_id, session_id=session_id, part_index=part.index)
    match part.WhichOneof("content"):
        case "text":
            updated.text.text = part.text.text
        case "refusal":
            updated.text.text = part.refusal.text
        case "reasoning":
            updated.reasoning.text = part.reasoning.text
        case "tool_use":
            return tool_updated(session_id, message_id, part.index, part.tool_use)
        case _:
            return None
    return pb.GlobalEvent(message_part_updated=updated)


def tool_updated(session_id: str, message_id: str, index: int, state: tool_pb2.ToolCallState) -> pb.GlobalEvent:
    """Returns the change of a tool call."""
    updated = pb.MessagePartUpdated(
        message_id=message_id, session_id=session_id, part_index=index, tool=pb.ToolPartUpdated(state=state)
    )
    return pb.GlobalEvent(message_part_updated=updated)
