"""Watches of all sessions, which several nodes have.

Stored events come from the database, in the order of their positions, as far as none is still to come before them. So
none is lost or told twice, whichever node tells, and a place is one position. What is not stored, each node tells of
its own sessions in a part: such an event is put behind the stored ones that its node published before it, and before
those that come after it. When a node cannot be reached, when sessions move, when parts are not what the log says, or
when the client is slow, the watch goes on from the log, and asks all nodes again what is open.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence

from turnwire.cluster.routing import Owners
from turnwire.core.watches.parts import BEGUN, Told, told
from turnwire.feed.memory import ENTRY_BYTES, Entry, Feed, Taken
from turnwire.ports.pages import EventPage
from turnwire.ports.store import TenantStore

LOOK_SECONDS = 0.5
"""Longest time between two looks at the log."""

FIRST_PAUSE_SECONDS = 0.002
"""Between two looks while a stored event is known that is not to be told yet. Each further pause is longer."""

LONGEST_PAUSE_SECONDS = 0.05

BEGIN_SECONDS = 1.5
"""Maximum time for which a watch waits for the beginning of all parts."""

UNTOLD_SECONDS = 1.0
"""Maximum time for which a stored event waits for the part of its node to come to it."""

AGAIN_SECONDS = 0.3
"""Before parts are asked for again that did not begin. What is stored is told meanwhile."""

PART_BYTES = 2 << 20
"""Size in memory of what a watch has not passed of a part, over which no more is taken in. A watch whose client is slow
then drops all parts, and asks for them again when the client has taken what it was sent: until then it costs nothing.
"""


class _Part:
    """The events that one node has told of and that the watch has not passed."""

    def __init__(self) -> None:
        self.waiting = deque[Told]()
        self.bytes = 0
        self.first: int | None = None
        """The position at its beginning."""
        self.has_begun = False


class AllSessions:
    """The subscription of one watch to all sessions of a tenant. Used by one task.

    Implements `feed.memory.Subscription`.
    """

    tells_what_is_open = True

    def __init__(
        self,
        tenant: str,
        feed: Feed,
        store: TenantStore,
        owners: Owners,
        part: Callable[[str], AsyncGenerator[bytes]],
        *,
        timeline: str,
    ) -> None:
        """Begins to count as a watch.

        Args:
            tenant: Whose sessions.
            feed: Counts the watches of this node.
            store: The reads of the tenant.
            owners: The nodes.
            part: Begins the part of a node, by its address; see `core.watches.parts`.
            timeline: The timeline of the log, in which positions are.

        Raises:
            TooManyWatchers: the limit on open subscriptions is reached.
            ShuttingDown: the feed is closed.
        """
        self._tenant, self._feed, self._store, self._owners, self._part = tenant, feed, store, owners, part
        self._timeline = timeline
        self._parts: dict[str, _Part] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._told: dict[int, _Part] = {}  # parts that have come to a stored event that the watch has not passed
        self._untold: set[int] = set()  # passed in this round before a part came to them
        self._entries = deque[Entry]()
        self._arrived = asyncio.Event()
        self._is_broken = self._is_closed = False
        self._is_replaced = False  # other events have the positions that the watch has passed
        self._position = self._settled = 0
        self._losses: EventPage | None = None
        self._blocked_at = 0.0  # 0: no stored event waits for its part
        self._pause = 0.0
        feed.count(tenant)

    @property
    def closed(self) -> bool:
        """True when no event will follow: the feed closed, or the log has another history."""
        return self.shutting_down and not self._entries

    @property
    def shutting_down(self) -> bool:
        """True when the feed closed, or the log has another history."""
        return self._is_replaced or self._feed.closed

    @property
    def lagging(self) -> bool:
        """True when the watch has to go on from the log."""
        return self._is_broken and not self.shutting_down

    @property
    def head(self) -> int:
        """0: the log has all that is stored."""
        return 0

    @property
    def behind(self) -> bool:
        """True when an event waits to be taken."""
        return bool(self._entries)

    def take(self, max_bytes: int) -> Taken:
        """Takes waiting events: at least one if there is any, about `max_bytes` at most."""
        frames, size, order = list[bytes](), 0, 0
        while self._entries and size < max_bytes:
            entry = self._entries.popleft()
            frames.append(entry.frame)
            size += len(entry.frame)
            order = entry.order or order
        return Taken(b"".join(frames), order)

    def take_entries(self, max_entries: int | None = None) -> Sequence[Entry]:
        """Takes waiting events: `max_entries` at most, or all."""
        count = len(self._entries) if max_entries is None else min(max_entries, len(self._entries))
        return [self._entries.popleft() for _ in range(count)]

    def skip(self) -> None:
        """Drops what waits: the log has it, or the beginning of the next parts."""
        self._end_parts()
        self._entries.clear()
        self._is_broken = False

    async def begin(self, position: int) -> None:
        """Asks all nodes for their parts; returns when what was open in them is among the entries, or it lags."""
        loop = asyncio.get_running_loop()
        self._position = self._settled = position
        self._parts = {address: _Part() for address in self._owners.addresses()}
        self._tasks = [
            asyncio.create_task(self._listen(self._part(address), part), name="part of a watch")
            for address, part in self._parts.items()
        ]
        ends_at = loop.time() + BEGIN_SECONDS
        while not (self._is_broken or self.shutting_down or all(part.has_begun for part in self._parts.values())):
            await self._go_on()
            self._is_broken |= loop.time() > ends_at
        if self._is_broken:
            await asyncio.sleep(AGAIN_SECONDS)

    async def wait(self) -> None:
        """Returns when an event may wait, or a heartbeat be due. Safe to cancel."""
        if self._entries or self.shutting_down:
            await asyncio.sleep(0)
        else:
            await self._go_on()

    def close(self) -> None:
        """Ends the subscription. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._end_parts()
            self._feed.uncount(self._tenant)

    def _end_parts(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks, self._parts = [], {}
        self._told.clear()
        self._untold.clear()
        self._blocked_at, self._losses = 0.0, None

    async def _listen(self, answers: AsyncGenerator[bytes], part: _Part) -> None:
        with contextlib.suppress(Exception):  # whatever it was, its node is asked again
            async with contextlib.aclosing(answers):
                async for data in answers:
                    # a beginning may be larger: while it comes, the watch does not wait for its client
                    if self._is_broken or (part.has_begun and part.bytes > PART_BYTES):
                        for one in self._parts.values():
                            one.waiting.clear()
                        break
                    for item in told(data):
                        self._note(item, part)
                    self._arrived.set()
        if part in self._parts.values():
            self._is_broken = True
            self._arrived.set()

    def _note(self, item: Told, part: _Part) -> None:
        part.waiting.append(item)
        part.bytes += ENTRY_BYTES + len(item.frame)
        if not item.position:
            return
        if part.first is None:
            part.first = item.position
        elif item.position in self._untold:
            self._is_broken = True
        elif item.position > self._settled:
            self._told[item.position] = part

    async def _go_on(self) -> None:
        """Waits for what may come next, and makes entries of what is to be told."""
        self._is_broken |= self._owners.addresses() != self._parts.keys()
        is_told = self._tell(self._settled)
        if not (is_told or self._is_due()):
            await self._arrival(LOOK_SECONDS)
            is_told = self._tell(self._settled)
        elif not is_told and self._pause:
            await self._arrival(self._pause)
        if self._is_broken or (is_told and not self._is_due()):
            return
        before = self._settled
        await self._read()
        is_stuck = self._is_due() and self._settled == before
        self._pause = min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, 2 * self._pause)) if is_stuck else 0.0

    def _is_due(self) -> bool:
        """Returns whether a part has come to a stored event that the watch has not passed."""
        return any(part.waiting for part in self._parts.values())

    async def _arrival(self, seconds: float) -> None:
        self._arrived.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._arrived.wait()

    async def _read(self) -> None:
        """Makes entries of what is stored and settled, and of what is told between."""
        page = await self._store.log_events(self._position, None)
        if page.timeline != self._timeline:
            self._is_replaced = True
            return
        known, self._losses = self._losses, page
        if page.earliest > self._position or (known is not None and page.pruned != known.pruned):
            self._is_broken = True  # what was lost is told on the way through the log
            return
        for event, frame in zip(page.events, page.frames, strict=True):
            position = event.position
            self._tell(position - 1)
            if self._told.pop(position, None) is None and not self._is_before_part(event.session_id, position):
                self._note_untold()
                return
            self._entries.append(Entry(event, frame, position))
            self._position, self._blocked_at = position, 0.0
            self._tell(position)
        self._position = page.last
        self._tell(page.settled)

    def _is_before_part(self, session_id: str, position: int) -> bool:
        """Returns whether a stored event was published before the part of its node began."""
        part = self._parts.get(owner) if (owner := self._owners.owner(session_id)) is not None else None
        if part is None or part.first is None or position > part.first:
            return False
        self._untold.add(position)
        return True

    def _note_untold(self) -> None:
        now = asyncio.get_running_loop().time()
        self._blocked_at = self._blocked_at or now
        self._is_broken |= now - self._blocked_at > UNTOLD_SECONDS

    def _tell(self, settled: int) -> bool:
        """Makes entries of what is not stored, up to the first stored event behind a position; returns if that was any.

        While nothing but that comes, the log is not read.
        """
        is_any = False
        self._settled = max(self._settled, settled)
        for part in self._parts.values():
            while part.waiting and part.waiting[0].position <= self._settled:
                item, is_any = part.waiting.popleft(), True
                part.bytes -= ENTRY_BYTES + len(item.frame)
                if item.frame:
                    self._entries.append(Entry(None, item.frame, 0))
                elif item.position:
                    self._told.pop(item.position, None)
                elif item == BEGUN:
                    part.has_begun = True
        return is_any
