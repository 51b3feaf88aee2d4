"""Watches: stored and live events as batches of frames, with a snapshot between replay and live events."""

import contextlib
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.servers import PartRequest
from turnwire.core.turns.registry import Turns
from turnwire.core.watches.join import ENTRIES_AT_ONCE, Join, subscribe, subscribe_to_all
from turnwire.core.watches.resume_tokens import ResumeTokens
from turnwire.core.watches.unmade import LARGE_BYTES, Unmade, joined
from turnwire.domain.conversation.events import (
    CaughtUp,
    DurableKind,
    EphemeralKind,
    Event,
    Heartbeat,
    MessageSnapshot,
    PartDelta,
    PartStarted,
    PermissionSnapshot,
    QuestionSnapshot,
    Resync,
    ResyncReason,
    SessionSnapshot,
    ToolLog,
)
from turnwire.domain.conversation.messages import Message, texts_of
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import EventsCompacted, SessionNotFound, ShuttingDown
from turnwire.domain.principal import Principal
from turnwire.feed.memory import Entry, Subscription
from turnwire.ports.codec import Codec
from turnwire.ports.pages import Bounds, EventPage, PrunedSession
from turnwire.ports.store import Standing

BATCH_BYTES = 64 * 1024
"""Approximate size of one write: larger writes cost more memory, smaller ones more time."""

Batch = bytes | Unmade
"""Joined frames; large ones are joined when they are sent."""

_Framed = tuple[bytes, int | None]
"""A frame, and the position after it: its sequence or position if the event is durable."""

_LOST_PLACES = {Standing.REPLACED: ResyncReason.HISTORY_REPLACED, Standing.UNKNOWN: ResyncReason.NOT_KNOWN}

_SENTENCES = {
    ResyncReason.PRUNED: "the events after that position are no longer kept",
    ResyncReason.HISTORY_REPLACED: "the events before that position are gone: the database was restored from a backup",
    ResyncReason.NOT_KNOWN: "the server no longer knows that position",
}


class WatchRequest(Struct, frozen=True, kw_only=True):
    """A request for a watch."""

    session_id: str | None
    """None watches all sessions of the caller's tenant."""
    after: int | None = None
    """Begin after this sequence; for all sessions only 0. None: begin with a snapshot, then live events."""
    resume_token: str = ""
    """Begin at the position of this token instead; "" for none."""
    include_deltas: bool = True
    """False omits part_started, part_delta and tool_log."""
    kinds: frozenset[str] | None = None
    """Class names of durable events to deliver; None delivers all."""
    fail_if_compacted: bool = False
    """Fail, instead of starting with a new snapshot, when events after the requested position are gone."""


class Watches:
    """Creates watches."""

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
        turns: Has the messages that stream now.
        codec: Encodes the events for a single watch.
        heartbeat: The longest time without a write.
        seconds: A monotonic clock.
        """
        self.environment = environment
        self.turns = turns
        self.codec = codec
        self.tokens = ResumeTokens(environment.store)
        self.heartbeat = heartbeat
        self.seconds = seconds

    async def watch(self, principal: Principal, request: WatchRequest) -> AsyncGenerator[Batch]:
        """Yields batches of framed events until the session is deleted or the caller closes the iterator.

        The caller sets the pace: nothing is queued for it. Close the iterator (`aclose`) when done.

        Raises:
            SessionNotFound: there is no such session.
            SequenceInFuture: the position is after the newest one.
            InvalidRequest: the token is not for this session, or not for all sessions.
            EventsCompacted: events are gone and fail_if_compacted is set.
            TooManyWatchers: max_watchers streams are open.
            QuotaExceeded: the tenant may not have more open streams.
            ShuttingDown: the server stops; this also ends a running watch.
            StorageError: the log could not be read.
        """
        tenant = principal.tenant
        if request.session_id is not None:
            await self.environment.session(principal, request.session_id)
        subscription = (
            subscribe_to_all(self.environment, tenant, PartRequest(include_deltas=request.include_deltas))
            if request.session_id is None
            else subscribe(self.environment, tenant, request.session_id)
        )
        try:
            join = Join(self.environment.store.of(tenant), subscription, request.session_id, request.kinds)
            watch = _Watch(self, tenant, request, subscription, join)
            await watch.begin()
            async with contextlib.aclosing(join.follow(watch)) as batches:
                async for batch in batches:
                    yield batch
        finally:
            subscription.close()


class _Watch:
    """The state of one watch. Implements `core.watches.join.Follower`."""

    def __init__(
        self, made_by: Watches, tenant: str, request: WatchRequest, subscription: Subscription, join: Join
    ) -> None:
        self._tenant = tenant
        self._environment = made_by.environment
        self._turns = made_by.turns
        self._codec = made_by.codec
        self._heartbeat_seconds = made_by.heartbeat.total_seconds()
        self._request = request
        self._subscription = subscription
        self._join = join
        self._is_filtered = request.kinds is not None or not request.include_deltas
        self._seconds = made_by.seconds
        self._last_write = self._seconds()
        self._session: Session | None = None
        self._tokens = made_by.tokens
        self._timeline = self._environment.store.moment(tenant).timeline
        """The timeline of all positions in this watch: in a later one, other events have these positions."""
        self._lost_place: ResyncReason | None = None  # reported first: why the token's position is not in the log

    async def begin(self) -> None:
        """Sets the position at which the request begins."""
        after = self._request.after
        if self._request.resume_token:
            point = self._tokens.read(self._request.resume_token, self._tenant, self._request.session_id)
            self._lost_place = _LOST_PLACES.get(point.standing)
            after = point.after if self._lost_place is None else None
        await self._join.begin(after)
        if self._lost_place is not None:
            self._fail_if_asked(self._lost_place)

    async def opening(self) -> Sequence[Batch]:
        """Returns a resync if the token's position is not in the log; the snapshot comes with the join."""
        if self._lost_place is None:
            return ()
        reason, self._lost_place = self._lost_place, None
        return [self._frame(Resync(reason))]

    async def gap(self, bounds: Bounds) -> Sequence[Batch]:
        """Moves to the head and returns a resync, or fails if the request says so."""
        of_one = self._request.session_id is not None
        places = (self._join.position, bounds.earliest, bounds.head) if of_one else ()
        self._fail_if_asked(ResyncReason.PRUNED, *places)
        self._join.position = bounds.head
        return [self._frame(Resync(ResyncReason.PRUNED, bounds.earliest if of_one else None))]

    async def losses(self, sessions: Sequence[PrunedSession]) -> Sequence[Batch]:
        """Returns a resync for each pruned session, or fails if the request says so."""
        self._fail_if_asked(ResyncReason.PRUNED)
        resyncs = [(Resync(ResyncReason.PRUNED, session.earliest), session.session_id) for session in sessions]
        return list(self._batched((self._frame(resync, session_id), None) for resync, session_id in resyncs))

    def replay(self, page: EventPage) -> Sequence[Batch]:
        """Returns the page as one batch. Raises ShuttingDown: in this history, other events have the watch's positions.

        Before this node knows of a failover of the database, the page may have what another one has stored since.
        """
        if self._subscription.tells_what_is_open and page.timeline != self._timeline:
            raise ShuttingDown
        if not page.frames:
            return ()
        self._note_write()
        return [joined((*page.frames, self._token(page.last)))]

    async def prepare(self) -> None:
        """Reads the session."""
        if self._request.session_id is not None:
            with contextlib.suppress(SessionNotFound):  # deleted meanwhile: its last event is in the feed
                self._session = await self._environment.store.of(self._tenant).session(self._request.session_id)

    def join(self, entries: Sequence[Entry]) -> Iterator[Batch]:
        """Yields the session, undelivered events, snapshots of everything open, and the caught-up marker.

        All show the state at the first step. They are encoded batch by batch, as the caller takes them, because open
        messages may have hundreds of megabytes. The session comes first, because its turn may have ended in memory
        later than in the events. A stream that ends here ends with its last event.
        """
        stored = self._select(entry for entry in entries if entry.order or self._subscription.tells_what_is_open)
        if self._subscription.closed:
            yield from self._batched(stored)
            return
        caught_up: _Framed = self._frame(CaughtUp(self._head())), self._join.position
        snapshots = self._snapshots()
        small = ((self._frame(*one), None) for one in snapshots if not _is_long(one[0]))
        large = [one for one in snapshots if _is_long(one[0])]
        end = [caught_up] if not large else []
        yield from self._batched(itertools.chain([(self._session_snapshot(), None)], stored, small, end))
        if large:
            yield from itertools.starmap(self._unmade, large)
            yield from self._batched([caught_up])

    def _snapshots(self) -> Sequence[tuple[EphemeralKind, str]]:
        if self._subscription.tells_what_is_open:
            return ()
        return open_now(self._turns, self._tenant, self._request.session_id)

    def take(self) -> Sequence[Batch]:
        """Returns the pending frames, in batches."""
        if self._is_filtered:
            entries = self._subscription.take_entries(ENTRIES_AT_ONCE)
            return list(self._batched(self._select(self._join.skip_seen(entries))))
        taken = self._subscription.take(BATCH_BYTES)
        if not taken.frames:
            return ()
        self._note_write()
        token = b""
        if taken.order:
            self._join.position = taken.order
            token = self._token(taken.order)
        return [joined((taken.frames, token))]

    async def wait(self) -> Sequence[Batch]:
        """Waits for the feed, or returns a heartbeat when one is due."""
        if self._seconds() - self._last_write >= self._heartbeat_seconds:
            return [self._frame(Heartbeat(self._head())) + self._token(self._join.position)]
        await self._subscription.wait()
        return ()

    def _frame(self, kind: EphemeralKind, session_id: str | None = None) -> bytes:
        """Encodes an event for this watch alone."""
        return self._codec.encode_event(self._event(kind, session_id))

    def _unmade(self, kind: EphemeralKind, session_id: str) -> Batch:
        """Returns the snapshot of a long message, which shares the message's texts until it is sent."""
        assert isinstance(kind, MessageSnapshot)
        texts, event = _texts(kind.message), self._event(kind, session_id)
        return Unmade(sum(map(len, texts)), partial(self._codec.encode_event, event), max(texts, key=len))

    def _event(self, kind: EphemeralKind, session_id: str | None = None) -> Event:
        self._note_write()
        session_id = session_id or self._request.session_id or ""
        return Event(session_id=session_id, kind=kind, at=self._environment.clock())

    def _token(self, order: int) -> bytes:
        """Returns the encoded token of a position, to append to a batch that ends there."""
        token = self._tokens.give(self._tenant, self._request.session_id, order, self._timeline)
        return self._codec.encode_resume_token(token)

    def _head(self) -> int | None:
        """Returns the newest sequence; None in a watch of all sessions."""
        return None if self._request.session_id is None else self._join.head

    def _fail_if_asked(self, reason: ResyncReason, *places: int) -> None:
        """Raises EventsCompacted if the request says so. `places` are the requested, earliest and newest position."""
        if self._request.fail_if_compacted:
            raise EventsCompacted(_SENTENCES[reason], *places, resyncReason=reason.name)

    def _select(self, entries: Iterable[Entry]) -> list[_Framed]:
        """Returns the frames of the entries that the request selects."""
        frames = [(entry.frame, entry.order or None) for entry in entries if self._is_wanted(entry)]
        if frames:
            self._note_write()
        return frames

    def _is_wanted(self, entry: Entry) -> bool:
        if entry.event is None:
            return True
        kind = entry.event.kind
        if entry.order:
            return self._request.kinds is None or type(kind).__name__ in self._request.kinds
        return self._request.include_deltas or not is_delta(kind)

    def _session_snapshot(self) -> bytes:
        if self._session is None:
            return b""
        session = msgspec.structs.replace(self._session, head_sequence=self._join.position)
        return self._frame(SessionSnapshot(self._turns.view(session)))

    def _note_write(self) -> None:
        self._last_write = self._seconds()

    def _batched(self, frames: Iterable[_Framed]) -> Iterator[Batch]:
        """Joins frames into batches of about BATCH_BYTES: clients by default reject answers over 4 MiB.

        A batch ends with the token of the last position in it.
        """
        batch, size, last = list[bytes](), 0, None
        for frame, place in frames:
            batch.append(frame)
            size += len(frame)
            last = last if place is None else place
            if size >= BATCH_BYTES:
                yield joined(batch if last is None else [*batch, self._token(last)])
                batch, size, last = [], 0, None
        if size:
            yield joined(batch if last is None else [*batch, self._token(last)])


def open_now(turns: Turns, tenant: str, session_id: str | None) -> list[tuple[EphemeralKind, str]]:
    """Returns open messages, permission requests, questions and pending notices, with their sessions.

    Args:
        turns: Has them.
        tenant: The tenant.
        session_id: The session; None for all of the tenant.
    """
    of = (tenant, session_id)
    found: list[tuple[EphemeralKind, str]] = [
        (MessageSnapshot(one), one.session_id) for one in turns.open_messages(*of)
    ]
    found += [(PermissionSnapshot(asked), asked.session_id) for asked in turns.open_permissions(*of)]
    found += [(QuestionSnapshot(asked), asked.session_id) for asked in turns.open_questions(*of)]
    return found + [(notice, session_id) for session_id, notice in turns.pending_notices(*of)]


def is_delta(kind: DurableKind | EphemeralKind) -> bool:
    """Returns whether a watch without deltas omits an event of this kind."""
    return isinstance(kind, PartDelta | PartStarted | ToolLog)


def _texts(message: Message) -> list[str]:
    return [text for part in message.parts for text in texts_of(part) if text]


def _is_long(kind: EphemeralKind) -> bool:
    return isinstance(kind, MessageSnapshot) and sum(map(len, _texts(kind.message))) > LARGE_BYTES
