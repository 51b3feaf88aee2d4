"""Delivers new events to current watchers: appends each event to rings, into which the watchers are cursors.

The store publishes durable events to it, a running turn its ephemeral ones. Used on the event loop only; publishing
never waits. A watcher that falls behind reads the store instead.

A ring has the newest events, bounded by bytes. Watchers are woken at a limited rate (`Waking`): an event wakes all
watchers of its session, each of which then writes. Thousands of them woken at once, for each event again, would leave
the event loop no time for anything else. A watcher that is woken later writes more at once.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Protocol

from msgspec import Struct

from turnwire.domain.conversation.events import Event, SessionDeleted
from turnwire.domain.errors import ShuttingDown, TooManyWatchers
from turnwire.ports.codec import Codec
from turnwire.ports.store import StoredEvent
from turnwire.ports.telemetry.observer import Observer


class Entry(Struct, frozen=True):
    """One event in the feed."""

    event: Event | None
    """None for an ephemeral event of another server, of which only the frame exists."""
    frame: bytes
    order: int
    """Its sequence, or its position in a subscription to all sessions; 0 when it is not durable."""


class Taken(Struct, frozen=True):
    """Waiting events that a subscription took."""

    frames: bytes
    """Joined frames, in order."""
    order: int
    """Order of the newest durable event among them; 0 when there is none."""


PER_SECOND = 10_000
"""Maximum rate at which watchers are woken, in the long run. A write costs about 30 µs: a third of the loop."""

AT_ONCE = 256
"""Watchers that are woken without delay: less than ten milliseconds of work."""


class Waking:
    """Wakes watchers of many rings, the rings in turn. Used on the event loop only.

    `_waiting` has the futures to wake, by ring; the ring whose turn is next comes first. `_left` is how many may be
    woken at `_now`, and `_timer` continues with the others.
    """

    def __init__(self) -> None:
        """Starts without watchers."""
        # a plain dict would scan all entries removed from its front
        self._waiting: OrderedDict[int, deque[asyncio.Future[None]]] = OrderedDict()
        self._left = float(AT_ONCE)
        self._now = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def wake(self, ring: int, watchers: list[asyncio.Future[None]]) -> None:
        """Wakes watchers of a ring: at once as far as the rate allows, the others later in their order."""
        self._waiting.setdefault(ring, deque()).extend(watchers)
        if self._timer is None:
            self._go_on()

    def _go_on(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._left = min(AT_ONCE, self._left + (now - self._now) * PER_SECOND)
        self._now = now
        while self._waiting and self._left >= 1:
            ring, watchers = self._waiting.popitem(last=False)
            if not (watcher := watchers.popleft()).done():
                watcher.set_result(None)
                self._left -= 1
            if watchers:
                self._waiting[ring] = watchers  # after the others
        if self._waiting:
            self._timer = loop.call_later(AT_ONCE / 4 / PER_SECOND, self._go_on)


ENTRY_BYTES = 500
"""Memory of an entry besides its frame: its objects are larger than the frame of a one-word delta."""

TRIM_EVERY = 1024
"""Appends between two trims, which drop entries that all readers have passed. A trim examines every reader."""

_SMALL_BYTES = 1024
"""Maximum size of the frame of an event that reports the deletion of a session."""


class Ring:
    """Keeps the newest entries.

    A position counts all entries ever appended, so it stays valid when old ones are dropped. Entries that all readers
    have passed are dropped periodically, so the ring stays small while they keep up. Used on the event loop only.
    `_waiting` holds the futures of sleeping watchers; `wake` passes them to `Waking`.
    """

    def __init__(self, max_bytes: int, waking: Waking, entry_bytes: int = ENTRY_BYTES) -> None:
        """Args:
        max_bytes: Approximate limit on the memory of the entries; the newest entry is kept even if it is larger.
        waking: Wakes the watchers of all rings.
        entry_bytes: Memory of an entry besides its frame.
        """
        self._max_bytes = max_bytes
        self._waking = waking
        self._entry_bytes = entry_bytes
        self._entries: deque[Entry] = deque()
        self.bytes = 0
        """Size of the entries in the ring."""
        self.start = 0
        """Position of the oldest entry that is kept."""
        self.head = 0
        """Order of the newest durable event."""
        self.readers: set[FeedSubscription] = set()
        """Subscriptions whose positions are in this ring; changed by the feed."""
        self.closed = False
        self.is_left = False
        """Whether it was closed because another node now owns the session."""
        self._waiting: list[asyncio.Future[None]] = []
        self._last_read: tuple[tuple[int, int, int], tuple[Taken, int]] | None = None
        self._untrimmed = 0  # entries appended since the last trim

    @property
    def end(self) -> int:
        """Position after the newest entry."""
        return self.start + len(self._entries)

    def append(self, entry: Entry) -> None:
        """Appends an entry and wakes the waiting watchers."""
        self._entries.append(entry)
        self.bytes += len(entry.frame) + self._entry_bytes
        if entry.order:
            self.head = entry.order
        while self.bytes > self._max_bytes and len(self._entries) > 1:
            self._drop_oldest()
        self._untrimmed += 1
        if self._untrimmed >= TRIM_EVERY:
            self.trim()
        self.wake()

    def read(self, position: int, max_bytes: int) -> tuple[Taken, int]:
        """Returns the frames from a position on, about max_bytes at most, and the position after them.

        Watchers that keep up make the same read one after the other, so the last one is cached.
        """
        key = (position, self.end, max_bytes)
        if self._last_read is not None and self._last_read[0] == key:
            return self._last_read[1]
        if position < self.start:
            raise ValueError(f"position {position} is no longer kept")
        frames: list[bytes] = []
        size, order = 0, 0
        for index in range(position - self.start, len(self._entries)):
            entry = self._entries[index]
            if frames and len(entry.frame) > max_bytes:  # a single frame is returned without a copy
                break
            frames.append(entry.frame)
            size += len(entry.frame)
            order = entry.order or order
            if size >= max_bytes:
                break
        result = Taken(b"".join(frames), order), position + len(frames)
        self._last_read = (key, result)
        return result

    def entries(self, position: int, max_entries: int | None = None) -> tuple[list[Entry], int]:
        """Returns the entries from a position on, `max_entries` at most, and the position after them."""
        first = max(position - self.start, 0)
        last = len(self._entries) if max_entries is None else min(first + max_entries, len(self._entries))
        return [self._entries[index] for index in range(first, last)], self.start + last

    async def wait(self) -> None:
        """Returns at the next `wake`. Safe to cancel."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    async def turn(self) -> None:
        """Returns when the rate allows a watcher to continue that already has events to read. Safe to cancel."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waking.wake(id(self), [future])
        await future

    def wake(self) -> None:
        """Wakes all waiting watchers, as soon as the rate allows it."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._waking.wake(id(self), waiting)

    def trim(self) -> None:
        """Drops what all readers have passed."""
        self._untrimmed = 0
        passed = min((reader.position for reader in self.readers), default=self.start)
        while self.start < passed:
            self._drop_oldest()

    def drop(self) -> None:
        """Drops every entry but a small newest one, which may be the last event. Readers before it lag."""
        is_kept = bool(self._entries) and len(self._entries[-1].frame) <= _SMALL_BYTES
        while len(self._entries) > is_kept:
            self._drop_oldest()

    def close(self) -> None:
        """Closes the ring and wakes its watchers. Nothing may be appended afterwards."""
        self.closed = True
        self.wake()

    def _drop_oldest(self) -> None:
        self.bytes -= len(self._entries.popleft().frame) + self._entry_bytes
        self.start += 1
        self._last_read = None  # which may be a large frame


SESSION_RING_BYTES = 8 << 20
"""Maximum size of a session's ring: how far its slowest watcher may fall behind before it reads the store. About 13,000
deltas, minutes of a fast model. A ring grows this large only while a watcher is behind."""

TENANT_RING_BYTES = 32 << 20
"""The same for the watchers of all sessions of a tenant."""

RINGS_BYTES = 96 << 20
"""Maximum memory of all rings, each of which may have an event of many megabytes. Above it, entries that all watchers
have read are dropped, then those of the largest rings, whose watchers read the store instead: slow watchers fall back
to the store, fast ones do not."""


class Subscription(Protocol):
    """The live events of one watch, from its start on. Used by one task."""

    @property
    def tells_what_is_open(self) -> bool:
        """Whether its entries include what is open when it begins."""
        ...

    @property
    def closed(self) -> bool:
        """True when no event will follow: the session was deleted, or it is `shutting_down`."""
        ...

    @property
    def shutting_down(self) -> bool:
        """True when the feed closed, or the session is another node's now: the watch can go on elsewhere, or later."""
        ...

    @property
    def lagging(self) -> bool:
        """True when events after those that were taken were dropped: call `skip` and read the store."""
        ...

    @property
    def behind(self) -> bool:
        """True when an event waits to be taken."""
        ...

    @property
    def head(self) -> int:
        """Order of the newest durable event that it has seen; 0 when it has seen none."""
        ...

    def take(self, max_bytes: int) -> Taken:
        """Takes waiting events: at least one if there is any, about max_bytes at most. Must not be lagging."""
        ...

    def take_entries(self, max_entries: int | None = None) -> Sequence[Entry]:
        """Takes waiting events, as entries: `max_entries` at most, or all. Must not be lagging."""
        ...

    def skip(self) -> None:
        """Drops what waits."""
        ...

    async def begin(self, position: int) -> None:
        """Has the entries begin after a position, or with what waits. Safe to cancel."""
        ...

    async def wait(self) -> None:
        """Returns when an event waits, the subscription closed, or a heartbeat may be due. Safe to cancel."""
        ...

    def close(self) -> None:
        """Ends the subscription. Idempotent."""
        ...


class FeedSubscription:
    """A cursor into the feed. Starts at the end: the next event published is its first. Used by one task.

    Implements `Subscription`; see there.
    """

    tells_what_is_open = False

    def __init__(self, feed: "Feed", tenant: str, session_id: str | None, ring: Ring, *, is_part: bool) -> None:
        """Called by `Feed.subscribe`."""
        self._is_part = is_part
        self._feed = feed
        self._tenant = tenant
        self._session_id = session_id
        self._ring = ring
        self.position = ring.end
        """Position of the next entry to take."""
        ring.readers.add(self)

    @property
    def closed(self) -> bool:
        """True when no event will follow: the session was deleted or the feed closed."""
        return self._ring.closed and not self.behind

    @property
    def shutting_down(self) -> bool:
        """True when the feed closed, or another node owns the session now."""
        return self._feed.closed or self._ring.is_left

    @property
    def lagging(self) -> bool:
        """True when events after the cursor were dropped: call `skip` and read the store."""
        return self.position < self._ring.start

    @property
    def behind(self) -> bool:
        """True when an event waits to be taken."""
        return self.position < self._ring.end

    @property
    def head(self) -> int:
        """Order of the newest durable event that the feed has seen; 0 when it has seen none."""
        return self._ring.head

    def take(self, max_bytes: int) -> Taken:
        """Takes waiting events: at least one if there is any, about max_bytes at most. Must not be lagging."""
        taken, self.position = self._ring.read(self.position, max_bytes)
        return taken

    def take_entries(self, max_entries: int | None = None) -> Sequence[Entry]:
        """Takes waiting events, as entries: `max_entries` at most, or all. Must not be lagging."""
        entries, self.position = self._ring.entries(self.position, max_entries)
        return entries

    def skip(self) -> None:
        """Moves the cursor to the end."""
        if self.lagging:
            self._feed.observer.watcher_fell_behind()
        self.position = self._ring.end

    async def begin(self, position: int) -> None:
        """Makes the entries begin after a position; those here are kept from the start, so nothing is to be done."""

    async def wait(self) -> None:
        """Returns when an event waits, the subscription closed, or a heartbeat may be due. Safe to cancel.

        Yields to the event loop first, even if an event already waits.
        """
        if self._ring.closed:
            await asyncio.sleep(0)
        elif self.behind:
            await asyncio.sleep(0)
            await self._ring.turn()
        else:
            await self._ring.wait()

    def close(self) -> None:
        """Ends the subscription. Idempotent."""
        if self in self._ring.readers:
            self._ring.readers.remove(self)
            self._feed.unsubscribe(self._tenant, self._session_id, self._ring)
            if not self._is_part:
                self._feed.uncount(self._tenant)


class Feed:
    """The hub of one server. `run` must be running while there are watchers."""

    def __init__(
        self,
        codec: Codec,
        max_watchers: int,
        tick: timedelta,
        observer: Observer = Observer(),  # noqa: B008 - has no state
    ) -> None:
        """Args:
        codec: Frames ephemeral events, and durable ones whose watcher came while they were stored.
        max_watchers: Maximum number of open subscriptions.
        tick: Interval at which idle watchers wake to see whether a heartbeat is due; a fraction of the heartbeat.
        observer: Receives a report when a watcher falls behind.
        """
        self._tick_seconds = tick.total_seconds()
        self._codec = codec
        self._max_watchers = max_watchers
        self._tenants: dict[str, Ring] = {}  # of all sessions of a tenant; only while watched
        self._sessions: dict[tuple[str, str], Ring] = {}  # by tenant and session; only while watched
        self._waking = Waking()
        self.observer = observer
        self.open_watchers = 0
        """Subscriptions that are open."""
        self._watchers_of: Counter[str] = Counter()  # the same by tenant
        self.closed = False
        """True once `close` was called."""
        self.held_bytes = 0
        """Memory that all rings hold."""

    def is_watched(self, tenant: str, session_id: str) -> bool:
        """Returns whether the events of a session reach a subscription now.

        Safe on any thread: one look-up in each dict.
        """
        return tenant in self._tenants or (tenant, session_id) in self._sessions

    def publish_stored(self, events: Sequence[StoredEvent]) -> None:
        """Publishes durable events; encodes one without a frame if a watcher came while it was stored."""
        for stored in events:
            event = stored.event
            of_tenant = self._tenants.get(stored.tenant)
            ring = self._sessions.get((stored.tenant, event.session_id))
            if of_tenant is None and ring is None:
                continue
            frame = self._codec.encode_event(event) if stored.frame is None else stored.frame
            if of_tenant is not None:
                self._append(of_tenant, Entry(event, frame, event.position))
            if ring is not None:
                self._append(ring, Entry(event, frame, event.sequence))
                if isinstance(event.kind, SessionDeleted):
                    ring.close()

    def publish(self, tenant: str, event: Event) -> None:
        """Publishes an ephemeral event of a tenant. Costs almost nothing without watchers."""
        ring, of_tenant = self._sessions.get((tenant, event.session_id)), self._tenants.get(tenant)
        if ring is None and of_tenant is None:
            return
        entry = Entry(event, self._codec.encode_event(event), 0)
        if ring is not None:
            self._append(ring, entry)
        if of_tenant is not None:
            self._append(of_tenant, entry)

    def subscribe(self, tenant: str, session_id: str | None, *, is_part: bool = False) -> FeedSubscription:
        """Watches one session of a tenant, or all its sessions when None.

        Args:
            tenant: Owner of the sessions.
            session_id: The session.
            is_part: True for a part of a watch that is already counted, here or at another server.

        Raises:
            TooManyWatchers: the limit on open subscriptions is reached.
            ShuttingDown: the feed is closed.
        """
        if not is_part:
            self.count(tenant)
        elif self.closed:
            raise ShuttingDown
        return FeedSubscription(self, tenant, session_id, self._ring(tenant, session_id), is_part=is_part)

    def count(self, tenant: str) -> None:
        """Counts a watch of a tenant, until `uncount`. Raises as `subscribe` does."""
        if self.closed:
            raise ShuttingDown
        if self.open_watchers >= self._max_watchers:
            text = f"{self._max_watchers} event streams are open already"
            raise TooManyWatchers.of("limits.max_watchers", self._max_watchers, text)
        self.open_watchers += 1
        self._watchers_of[tenant] += 1

    def uncount(self, tenant: str) -> None:
        """Stops counting a watch."""
        self.open_watchers -= 1
        self._watchers_of[tenant] -= 1
        if not self._watchers_of[tenant]:
            del self._watchers_of[tenant]

    def watchers(self, tenant: str) -> int:
        """Returns the number of open watches of a tenant."""
        return self._watchers_of[tenant]

    def unsubscribe(self, tenant: str, session_id: str | None, ring: Ring) -> None:
        """Called by a subscription when it closes. A ring without subscribers is dropped."""
        if ring.readers:
            return
        self.held_bytes -= ring.bytes
        if session_id is None:
            if self._tenants.get(tenant) is ring:  # else `leave` dropped it, and another one may exist
                del self._tenants[tenant]
        elif self._sessions.get((tenant, session_id)) is ring:  # else `leave` dropped it, and another one may exist
            del self._sessions[tenant, session_id]

    async def run(self) -> None:
        """Wakes idle watchers once per tick, so that heartbeats need no timer per watcher. Runs until cancelled."""
        while True:
            await asyncio.sleep(self._tick_seconds)
            for ring in (*self._tenants.values(), *self._sessions.values()):
                ring.wake()

    def leave(self, is_left: Callable[[str], bool]) -> None:
        """Closes the subscriptions of sessions that this node no longer owns, and those of all sessions.

        Later subscriptions get new rings.

        Args:
            is_left: Returns whether this node has left a session, given by its id.
        """
        for key in [key for key in self._sessions if is_left(key[1])]:
            ring = self._sessions.pop(key)
            ring.is_left = True
            ring.close()
        for ring in self._tenants.values():  # a watch of all sessions would miss the events of these
            ring.is_left = True
            ring.close()
        self._tenants.clear()

    def close(self) -> None:
        """Closes every subscription. Idempotent."""
        self.closed = True
        for ring in (*self._tenants.values(), *self._sessions.values()):
            ring.close()

    def _ring(self, tenant: str, session_id: str | None) -> Ring:
        """Returns the ring to watch; makes it for the first watcher."""
        if session_id is None:
            return self._tenants.setdefault(tenant, Ring(TENANT_RING_BYTES, self._waking))
        return self._sessions.setdefault((tenant, session_id), Ring(SESSION_RING_BYTES, self._waking))

    def _append(self, ring: Ring, entry: Entry) -> None:
        before = ring.bytes
        ring.append(entry)
        self.held_bytes += ring.bytes - before
        if self.held_bytes > RINGS_BYTES:
            self._make_room()

    def _make_room(self) -> None:
        """Drops at least a quarter of what the rings may hold, so that it does not run for each event."""
        rings = (*self._tenants.values(), *self._sessions.values())
        for ring in rings:
            ring.trim()
        self.held_bytes = sum(ring.bytes for ring in rings)
        for ring in sorted(rings, key=attrgetter("bytes"), reverse=True):
            if self.held_bytes <= RINGS_BYTES * 3 // 4:
                return
            before = ring.bytes
            ring.drop()
            self.held_bytes += ring.bytes - before
