"""Watching: stored events first, then what streams now, then live; no gap, no duplicate.

A watch joins the live feed at one moment, without an await in between: it takes the durable events that it has not
delivered yet, the snapshots of what streams at that moment, and moves its cursor to the end. Deltas before that moment
are in the snapshots, deltas after it are behind the cursor. A watcher that falls behind does the same again.
"""

import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from datetime import timedelta

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.turns.registry import Turns
from turnwire.domain.conversation.events import (
    CaughtUp,
    EphemeralKind,
    Event,
    Heartbeat,
    MessageSnapshot,
    PartDelta,
    PartStarted,
    PermissionSnapshot,
    Resync,
    SessionSnapshot,
    ToolLog,
)
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import EventsCompacted, SequenceInFuture, SessionNotFound, ShuttingDown
from turnwire.domain.principal import Principal
from turnwire.ports.codec import Codec
from turnwire.ports.feed import Entry, Subscription
from turnwire.ports.store import Bounds, EventPage

BATCH_BYTES = 64 * 1024
"""About what one write carries: fewer writes cost more memory, more writes cost more time."""


class WatchRequest(Struct, frozen=True, kw_only=True):
    """What to watch."""

    session_id: str | None
    """None watches all sessions."""
    after: int | None = None
    """Sequence, or position for all sessions, after which to begin (exclusive). None: a snapshot, then live."""
    include_deltas: bool = True
    """False leaves out part_started and part_delta."""
    kinds: frozenset[str] | None = None
    """Class names of durable events to deliver; None delivers all."""
    fail_if_compacted: bool = False
    """Fail, instead of starting anew, when the events after that position are no longer kept."""


class Watches:
    """Makes watches."""

    def __init__(
        self,
        environment: Environment,
        turns: Turns,
        codec: Codec,
        heartbeat: timedelta,
        *,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        environment: Ports and settings.
        turns: Knows what streams now.
        codec: Frames the events that are only for one watch.
        heartbeat: The longest silence.
        seconds: A clock that nobody sets.
        """
        self.environment = environment
        self.turns = turns
        self.codec = codec
        self.heartbeat = heartbeat
        self.seconds = seconds

    async def watch(self, principal: Principal, request: WatchRequest) -> AsyncGenerator[bytes]:
        """Yields batches of framed events until the session is deleted or the caller closes the iterator.

        The caller's pace is the watch's pace: nothing is collected for it. Close it (`aclose`) when done.

        Raises:
            SessionNotFound: there is no such session.
            SequenceInFuture: that position was never reached.
            EventsCompacted: the events are gone and fail_if_compacted is set.
            TooManyWatchers, ShuttingDown: no watch can be had; ShuttingDown also ends a running one.
        """
        subscription = self.environment.feed.subscribe(request.session_id)
        try:
            watch = _Watch(self, request, subscription)
            await watch.begin()
            while True:
                if subscription.lagging:
                    subscription.skip()  # what is published from now on is kept; the log has what was before
                async for batch in watch.replay():
                    yield batch
                if subscription.lagging:
                    continue
                async for batch in watch.live():
                    yield batch
                if subscription.closed:
                    return
        finally:
            subscription.close()


class _Watch:
    """The state of one watch: the position up to which durable events were delivered."""

    def __init__(self, made_by: Watches, request: WatchRequest, subscription: Subscription) -> None:
        self._environment = made_by.environment
        self._turns = made_by.turns
        self._codec = made_by.codec
        self._heartbeat_seconds = made_by.heartbeat.total_seconds()
        self._request = request
        self._subscription = subscription
        self._is_filtered = request.kinds is not None or not request.include_deltas
        self._position = 0
        self._known_head = 0
        self._resync: Resync | None = None
        self._seconds = made_by.seconds
        self._last_write = self._seconds()
        self._session: Session | None = None

    @property
    def head(self) -> int:
        """The newest sequence (or position) there is."""
        return max(self._known_head, self._subscription.head, self._position)

    async def begin(self) -> None:
        """Checks the position asked for."""
        request, bounds = self._request, await self._bounds()
        self._known_head = bounds.head
        if request.after is None:
            self._position = bounds.head
        elif request.after > bounds.head:
            raise SequenceInFuture(
                f"position {request.after} is after the newest, {bounds.head}",
                request.after,
                bounds.earliest,
                bounds.head,
            )
        elif request.after >= bounds.earliest:
            self._position = request.after
        else:
            self._resync = self._compacted(bounds, request.after)

    async def replay(self) -> AsyncGenerator[bytes]:
        """Yields the stored events after the position, until the log has no more."""
        if self._resync is not None:
            yield self.frame(self._resync)
            self._resync = None
        while True:
            page = await self._page()
            if page.earliest > self._position:
                yield self.frame(self._compacted(await self._bounds(), self._position))
                continue
            if page.last == self._position:
                await self._read_session()
                return
            self._position = page.last
            if page.frames:
                self._wrote()
                yield b"".join(page.frames)

    async def live(self) -> AsyncGenerator[bytes]:
        """Joins the feed and yields what comes, until the watch falls behind or nothing will come any more."""
        for batch in self.join_live():
            yield batch
        while not self._subscription.lagging:
            if batches := self.take():
                for batch in batches:
                    yield batch
            elif self._subscription.closed:
                if self._subscription.shutting_down:
                    raise ShuttingDown
                return
            elif self._seconds() - self._last_write >= self._heartbeat_seconds:
                yield self.frame(Heartbeat(self.head))
            else:
                await self._subscription.wait()

    def join_live(self) -> list[bytes]:
        """Moves to the live feed.

        Returns batches with the session as it stands, what was not delivered yet, the messages and permission requests
        that are open, what keeps a model from answering, and the caught-up marker. The session comes first: its turn
        may have ended in memory later than in the events.
        """
        frames = [self._session_snapshot(), *self._select(self._subscription.take_entries(), durable_only=True)]
        messages = self._turns.open_messages(self._request.session_id)
        frames += [self.frame(MessageSnapshot(message), message.session_id) for message in messages]
        asked = self._turns.open_permissions(self._request.session_id)
        frames += [self.frame(PermissionSnapshot(permission), permission.session_id) for permission in asked]
        notices = self._turns.pending_notices(self._request.session_id)
        frames += [self.frame(notice, session_id) for session_id, notice in notices]
        return _batches([*frames, self.frame(CaughtUp(self.head))])

    def take(self) -> list[bytes]:
        """Takes what waits in the feed, in batches; empty when there is nothing to deliver."""
        if self._is_filtered:
            return _batches(self._select(self._subscription.take_entries(), durable_only=False))
        taken = self._subscription.take(BATCH_BYTES)
        if not taken.frames:
            return []
        self._position = taken.order or self._position
        self._wrote()
        return [taken.frames]

    def frame(self, kind: EphemeralKind, session_id: str | None = None) -> bytes:
        """Frames an event that is only for this watch."""
        self._wrote()
        session_id = session_id or self._request.session_id or ""
        return self._codec.encode_event(Event(session_id=session_id, kind=kind, at=self._environment.clock()))

    def _select(self, entries: Iterable[Entry], *, durable_only: bool) -> list[bytes]:
        kinds, frames = self._request.kinds, []
        for entry in entries:
            kind = entry.event.kind
            if entry.order:
                if entry.order <= self._position:
                    continue
                self._position = entry.order
                wanted = kinds is None or type(kind).__name__ in kinds
            else:
                wanted = not durable_only and (
                    self._request.include_deltas or not isinstance(kind, PartDelta | PartStarted | ToolLog)
                )
            if wanted:
                frames.append(entry.frame)
        if frames:
            self._wrote()
        return frames

    def _compacted(self, bounds: Bounds, asked: int) -> Resync:
        """Starts anew at the head, as events after a position are no longer kept; fails if the caller wished so."""
        if self._request.fail_if_compacted:
            raise EventsCompacted(
                f"events after {asked} are no longer kept, only those after {bounds.earliest}",
                asked,
                bounds.earliest,
                bounds.head,
            )
        self._position = bounds.head
        return Resync(bounds.earliest)

    def _session_snapshot(self) -> bytes:
        if self._session is None:
            return b""
        session = msgspec.structs.replace(self._session, head_sequence=self._position)
        return self.frame(SessionSnapshot(self._turns.view(session)))

    async def _read_session(self) -> None:
        if self._request.session_id is not None:
            with contextlib.suppress(SessionNotFound):  # deleted meanwhile: its last event is in the feed
                self._session = await self._environment.store.session(self._request.session_id)

    async def _bounds(self) -> Bounds:
        store, session_id = self._environment.store, self._request.session_id
        return await (store.log_bounds() if session_id is None else store.session_bounds(session_id))

    async def _page(self) -> EventPage:
        store, session_id, kinds = self._environment.store, self._request.session_id, self._request.kinds
        if session_id is None:
            return await store.log_events(self._position, kinds)
        return await store.session_events(session_id, self._position, kinds)

    def _wrote(self) -> None:
        self._last_write = self._seconds()


def _batches(frames: Iterable[bytes]) -> list[bytes]:
    """Joins frames to batches of about BATCH_BYTES: clients refuse answers over 4 MiB unless told otherwise."""
    batches, batch, size = list[bytes](), list[bytes](), 0
    for frame in frames:
        batch.append(frame)
        size += len(frame)
        if size >= BATCH_BYTES:
            batches.append(b"".join(batch))
            batch, size = [], 0
    rest = b"".join(batch)
    return [*batches, rest] if rest else batches
