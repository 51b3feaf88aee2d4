"""The hub: appends each event to the rings that its watchers read."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from operator import attrgetter

from turnwire.domain.conversation.events import Event, SessionDeleted
from turnwire.domain.errors import ShuttingDown, TooManyWatchers
from turnwire.feed.memory.ring import Ring, RingMemory
from turnwire.feed.memory.waking import Waking
from turnwire.ports.codec import Codec
from turnwire.ports.feed import Entry, Taken
from turnwire.ports.store import StoredEvent
from turnwire.ports.telemetry.observer import NoObserver, Observer

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
        taken, self._cursor.position = self._ring.slice(self._cursor.position, max_bytes)
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
        observer: Observer = NoObserver(),  # noqa: B008 - has no state
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
