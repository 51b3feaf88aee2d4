"""The feed in memory: each event is appended to rings, of which its watchers are cursors.

A ring has the newest events, bounded by bytes. Watchers are woken at a pace (`Waking`): an event wakes all watchers of
its session, each of which then writes. Thousands of them at once would hold the event loop, and at each event they
would leave it no time for anything else. Who is woken later has more to write in one go.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import attrgetter

from turnwire.domain.conversation.events import Event, SessionDeleted
from turnwire.domain.errors import ShuttingDown, TooManyWatchers
from turnwire.ports.codec import Codec
from turnwire.ports.feed import Entry, Taken
from turnwire.ports.store import StoredEvent
from turnwire.ports.telemetry.observer import Observer

PER_SECOND = 10_000
"""Watchers that are woken, in the long run. A write costs about 30 µs: a third of the loop."""

AT_ONCE = 256
"""Watchers that are woken without a wait: less than ten milliseconds of work."""


class Waking:
    """Wakes watchers of many rings, the rings in turn. Used on one event loop only.

    `_waiting` has the futures of those that are to be woken, by ring, the ring whose turn is next first. `_left` are
    those that may be woken at `_now`, and `_timer` goes on with the others.
    """

    def __init__(self) -> None:
        """Wakes nobody yet."""
        # a plain dict looks at all that has left its front
        self._waiting: OrderedDict[int, deque[asyncio.Future[None]]] = OrderedDict()
        self._left = float(AT_ONCE)
        self._now = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def wake(self, ring: int, watchers: list[asyncio.Future[None]]) -> None:
        """Wakes watchers of a ring: now, as far as the pace allows it, and else in their order."""
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
                self._waiting[ring] = watchers  # behind the others
        if self._waiting:
            self._timer = loop.call_later(AT_ONCE / 4 / PER_SECOND, self._go_on)


ENTRY_BYTES = 500
"""Memory of an entry besides its frame: its objects are larger than the frame of a one-word delta."""

TRIM_EVERY = 1024
"""Appends between two trims, which drop entries that every cursor has passed: a trim looks at every cursor."""

_SMALL_BYTES = 1024
"""Of the frame of an event that says that a session is deleted."""

_COMPACT_AT = 1024
"""Dropped entries at which the list is cut: a cut costs the list's length, too much for every append."""


class RingMemory:
    """Counts what many rings hold together. Beyond the bound `make_room` is called, which drops entries of some."""

    __slots__ = ("bytes", "make_room", "max_bytes")

    def __init__(self, max_bytes: int, make_room: Callable[[], None]) -> None:
        """Takes the bound, and what is called beyond it."""
        self.max_bytes, self.make_room = max_bytes, make_room
        self.bytes = 0
        """Of the entries of all rings."""


class Cursor:
    """A reader's place in a ring."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        """Called by `Ring.open_cursor`."""
        self.position = position


class Ring:
    """Keeps the newest entries.

    A position counts all entries ever appended, so it stays valid when old ones are dropped. Entries that every cursor
    has passed are dropped now and then, so the ring stays small while its readers keep up. Used on the event loop only.
    `_waiting` holds the futures of sleeping watchers; `wake` hands them on.
    """

    def __init__(
        self,
        max_bytes: int,
        entry_bytes: int = ENTRY_BYTES,
        memory: RingMemory | None = None,
        waking: Waking | None = None,
    ) -> None:
        """Args:
        max_bytes: Approximate memory limit of the entries; the newest entry is always kept by it.
        entry_bytes: Memory of an entry besides its frame.
        memory: What this ring shares a bound with; None if there is none.
        waking: Wakes the watchers of all rings; None if this is alone.
        """
        self._max_bytes = max_bytes
        self._memory = memory
        self._waking = waking or Waking()
        self._entry_bytes = entry_bytes
        self._entries: list[Entry | None] = []  # None: dropped
        self.bytes = 0
        """Of the entries that are kept."""
        self._dropped = 0  # dropped entries that are still at the front of the list
        self._base = 0  # position of the list's first entry
        self._waiting: list[asyncio.Future[None]] = []
        self._last_read: tuple[tuple[int, int, int], tuple[Taken, int]] | None = None
        self.head = 0
        self._cursors: set[Cursor] = set()
        self._untrimmed = 0  # entries appended since the cursors were last looked at
        self.closed = False

    @property
    def start(self) -> int:
        """Position of the oldest entry that is kept."""
        return self._base + self._dropped

    @property
    def end(self) -> int:
        """Position after the newest entry."""
        return self._base + len(self._entries)

    @property
    def is_watched(self) -> bool:
        """True when anybody reads the ring."""
        return bool(self._cursors)

    def open_cursor(self) -> Cursor:
        """Returns a new cursor at the end."""
        cursor = Cursor(self.end)
        self._cursors.add(cursor)
        return cursor

    def close_cursor(self, cursor: Cursor) -> None:
        """Ends a cursor. Idempotent."""
        self._cursors.discard(cursor)

    def append(self, entry: Entry) -> None:
        """Appends an entry and wakes the waiting watchers."""
        self._entries.append(entry)
        size = len(entry.frame) + self._entry_bytes
        self.bytes += size
        if self._memory is not None:
            self._memory.bytes += size
        if entry.order:
            self.head = entry.order
        if self.bytes > self._max_bytes:
            self._drop_beyond()
        self._untrimmed += 1
        if self._untrimmed >= TRIM_EVERY:
            self.trim()
        if self._memory is not None and self._memory.bytes > self._memory.max_bytes:
            self._memory.make_room()
        if self._dropped > _COMPACT_AT and self._dropped * 2 > len(self._entries):
            del self._entries[: self._dropped]
            self._base += self._dropped
            self._dropped = 0
        self.wake()

    def limit(self, max_bytes: int) -> None:
        """Sets another memory limit, and drops entries beyond it at once."""
        self._max_bytes = max_bytes
        self._drop_beyond()

    def read(self, position: int, max_bytes: int) -> tuple[Taken, int]:
        """Returns the frames from a position on, about max_bytes at most, and the position after them.

        Watchers that keep up read the same one after the other, so what was read last is cached.
        """
        key = (position, self.end, max_bytes)
        if self._last_read is not None and self._last_read[0] == key:
            return self._last_read[1]
        frames: list[bytes] = []
        size, order = 0, 0
        for index in range(position - self._base, len(self._entries)):
            entry = self._entries[index]
            if entry is None:
                raise ValueError(f"position {position} is no longer kept")
            if frames and len(entry.frame) > max_bytes:  # alone it is no copy
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
        """Returns the entries from a position on, so many at most, and the position after them."""
        first = position - self._base
        last = len(self._entries) if max_entries is None else min(first + max_entries, len(self._entries))
        return [entry for entry in self._entries[first:last] if entry is not None], self._base + last

    async def wait(self) -> None:
        """Returns at the next `wake`. Safe to cancel."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    async def turn(self) -> None:
        """Returns when the pace allows a watcher that need not wait to go on. Safe to cancel."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waking.wake(id(self), [future])
        await future

    def wake(self) -> None:
        """Wakes all waiting watchers, as soon as the pace allows it."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._waking.wake(id(self), waiting)

    def trim(self) -> None:
        """Drops what every cursor has passed."""
        self._untrimmed = 0
        if self._cursors:
            passed = min(cursor.position for cursor in self._cursors)
            while self.start < passed:
                self._drop_oldest()

    def drop(self) -> None:
        """Drops every entry but a small newest one, which may be the last of all. Cursors before it are behind then."""
        newest = self._entries[-1] if self._entries else None
        kept = newest is not None and len(newest.frame) <= _SMALL_BYTES
        while self.start < self.end - kept:
            self._drop_oldest()

    def leave(self) -> None:
        """Takes the ring out of what it shares a bound with: nobody reads it any more."""
        if self._memory is not None:
            self._memory.bytes -= self.bytes
            self._memory = None

    def close(self) -> None:
        """Closes the ring and wakes its watchers. Nothing may be appended afterwards."""
        self.closed = True
        self.wake()

    def _drop_beyond(self) -> None:
        while self.bytes > self._max_bytes and self.end - self.start > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._entries[self._dropped]
        if oldest is not None:
            size = len(oldest.frame) + self._entry_bytes
            self.bytes -= size
            if self._memory is not None:
                self._memory.bytes -= size
        self._entries[self._dropped] = None
        self._dropped += 1
        self._last_read = None  # which may be a large frame


SESSION_RING_BYTES = 8 << 20
"""How far the slowest watcher of a session may fall behind before it reads the store: about 13,000 deltas, minutes of a
fast model. A ring grows this large only while a watcher is behind."""

SESSION_RINGS_BYTES = 64 << 20
"""What the rings of all sessions hold together: each may have an event of many megabytes. Beyond it what everybody has
read goes, and then the largest rings, whose watchers read the store."""

ALL_RINGS_BYTES = 32 << 20
"""The same for the watchers of all sessions of a tenant. All rings of tenants share it in equal parts, so that a slow
watcher of one tenant takes nothing from another tenant."""


class LiveSubscription:
    """Implements `ports.feed.Subscription`; see there."""

    def __init__(self, feed: "LiveFeed", tenant: str, session_id: str | None, ring: Ring) -> None:
        """Called by `LiveFeed.subscribe`."""
        self._feed = feed
        self._tenant = tenant
        self._session_id = session_id
        self._ring = ring
        self._cursor = ring.open_cursor()
        self._ended = False

    @property
    def closed(self) -> bool:
        """True when no event will follow."""
        return self._ring.closed and self._cursor.position >= self._ring.end

    @property
    def shutting_down(self) -> bool:
        """True when the feed closed."""
        return self._feed.closed

    @property
    def lagging(self) -> bool:
        """True when events at the cursor are gone."""
        return self._cursor.position < self._ring.start

    @property
    def behind(self) -> bool:
        """True when an event waits."""
        return self._cursor.position < self._ring.end

    @property
    def head(self) -> int:
        """Order of the newest durable event published."""
        return self._ring.head

    def take(self, max_bytes: int) -> Taken:
        """Takes waiting events."""
        taken, self._cursor.position = self._ring.read(self._cursor.position, max_bytes)
        return taken

    def take_entries(self, max_entries: int | None = None) -> Sequence[Entry]:
        """Takes waiting events, as entries."""
        entries, self._cursor.position = self._ring.entries(self._cursor.position, max_entries)
        return entries

    def skip(self) -> None:
        """Moves the cursor to the end."""
        if self.lagging:
            self._feed.observer.watcher_fell_behind()
        self._cursor.position = self._ring.end

    async def wait(self) -> None:
        """Waits for the next event, the end or a tick."""
        if self._ring.closed:
            await asyncio.sleep(0)
        elif self.behind:
            await asyncio.sleep(0)
            await self._ring.turn()
        else:
            await self._ring.wait()

    def close(self) -> None:
        """Ends the subscription."""
        if not self._ended:
            self._ended = True
            self._ring.close_cursor(self._cursor)
            self._feed.unsubscribe(self._tenant, self._session_id, self._ring)


class LiveFeed:
    """Implements `ports.feed.Feed`; see there. `run` must be running while there are watchers."""

    def __init__(
        self,
        codec: Codec,
        max_watchers: int,
        tick: timedelta,
        observer: Observer = Observer(),  # noqa: B008 - has no state
    ) -> None:
        """Args:
        codec: Frames ephemeral events, and durable ones whose watcher came while they were stored.
        max_watchers: Subscriptions that may be open at once.
        tick: How often idle watchers wake to see whether a heartbeat is due; a fraction of the heartbeat.
        observer: Receives a report when a watcher falls behind.
        """
        self._tick_seconds = tick.total_seconds()
        self._codec = codec
        self._max_watchers = max_watchers
        self._tenants: dict[str, Ring] = {}  # of all sessions of a tenant; only while watched
        self._sessions: dict[tuple[str, str], Ring] = {}  # by tenant and session; only while watched
        self._waking = Waking()
        self._memory = RingMemory(SESSION_RINGS_BYTES, self._make_room)  # of these
        self.observer = observer
        self.open_watchers = 0
        """Subscriptions that are open."""
        self._watchers_of: Counter[str] = Counter()  # the same by tenant
        self.closed = False
        """True once `close` was called."""

    def is_watched(self, tenant: str, session_id: str) -> bool:
        """Returns whether the session, or its tenant, has a ring. One look-up in each dict, so any thread may ask."""
        return tenant in self._tenants or (tenant, session_id) in self._sessions

    def publish_stored(self, events: Sequence[StoredEvent]) -> None:
        """Publishes durable events."""
        for stored in events:
            event = stored.event
            of_tenant = self._tenants.get(stored.tenant)
            ring = self._sessions.get((stored.tenant, event.session_id))
            if of_tenant is None and ring is None:
                continue
            frame = self._codec.encode_event(event) if stored.frame is None else stored.frame
            if of_tenant is not None:
                of_tenant.append(Entry(event, frame, event.position))
            if ring is not None:
                ring.append(Entry(event, frame, event.sequence))
                if isinstance(event.kind, SessionDeleted):
                    ring.close()

    def publish(self, tenant: str, event: Event) -> None:
        """Publishes an ephemeral event."""
        ring, of_tenant = self._sessions.get((tenant, event.session_id)), self._tenants.get(tenant)
        if ring is None and of_tenant is None:
            return
        entry = Entry(event, self._codec.encode_event(event), 0)
        if ring is not None:
            ring.append(entry)
        if of_tenant is not None:
            of_tenant.append(entry)

    def subscribe(self, tenant: str, session_id: str | None) -> LiveSubscription:
        """Watches one session of a tenant, or all."""
        if self.closed:
            raise ShuttingDown
        if self.open_watchers >= self._max_watchers:
            text = f"{self._max_watchers} event streams are open already"
            raise TooManyWatchers.of("limits.max_watchers", self._max_watchers, text)
        self.open_watchers += 1
        self._watchers_of[tenant] += 1
        return LiveSubscription(self, tenant, session_id, self._ring(tenant, session_id))

    def watchers(self, tenant: str) -> int:
        """Returns how many subscriptions of a tenant are open."""
        return self._watchers_of[tenant]

    def unsubscribe(self, tenant: str, session_id: str | None, ring: Ring) -> None:
        """Called by a subscription when it closes. A ring without subscribers is dropped."""
        self.open_watchers -= 1
        self._watchers_of[tenant] -= 1
        if not self._watchers_of[tenant]:
            del self._watchers_of[tenant]
        if ring.is_watched:
            return
        if session_id is None:
            del self._tenants[tenant]
            self._share()
        else:
            ring.leave()
            if self._sessions.get((tenant, session_id)) is ring:
                del self._sessions[tenant, session_id]

    async def run(self) -> None:
        """Wakes idle watchers once per tick, so that heartbeats need no timer per watcher. Runs until cancelled."""
        while True:
            await asyncio.sleep(self._tick_seconds)
            for ring in (*self._tenants.values(), *self._sessions.values()):
                ring.wake()

    def close(self) -> None:
        """Closes every subscription."""
        self.closed = True
        for ring in (*self._tenants.values(), *self._sessions.values()):
            ring.close()

    def _ring(self, tenant: str, session_id: str | None) -> Ring:
        """Returns the ring to watch; makes it for the first watcher."""
        if session_id is not None:
            return self._sessions.setdefault((tenant, session_id), self._new_ring(SESSION_RING_BYTES, self._memory))
        if tenant not in self._tenants:
            self._tenants[tenant] = self._new_ring(ALL_RINGS_BYTES)
            self._share()
        return self._tenants[tenant]

    def _new_ring(self, max_bytes: int, memory: RingMemory | None = None) -> Ring:
        return Ring(max_bytes, memory=memory, waking=self._waking)

    def _make_room(self) -> None:
        """Drops a quarter of what the rings of sessions hold, so that it is not done for each event."""
        rings, wanted = self._sessions.values(), self._memory.max_bytes * 3 // 4
        for ring in rings:
            ring.trim()
        if self._memory.bytes > wanted:
            for ring in sorted(rings, key=attrgetter("bytes"), reverse=True):
                ring.drop()
                if self._memory.bytes <= wanted:
                    return

    def _share(self) -> None:
        """Gives each ring of a tenant its part of the memory."""
        for ring in self._tenants.values():
            ring.limit(ALL_RINGS_BYTES // len(self._tenants))
