"""How the streams of all providers share the event loop.

A provider can send faster than anything else here works. Each event that is read costs work in the same task: decoding,
encoding for watchers, noting what is to be saved. So the events that one turn of the loop works on are counted, over
all streams together. What does not fit waits for the next turn, in the order of asking; between two turns the loop does
what else is ready. A stream that waits is not read: the network slows its provider down, and nothing grows in memory.

A read costs more than an event in it: wake-ups, a save, and a write to each watcher. So the reads of all streams have a
pace. Where more are wanted, each stream is read less often, has more to read, and the same events cost less.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from contextvars import Context

EVENTS_PER_TURN = 64
"""About half a millisecond of work; what another session sends passes the loop a few times on its way to a watcher. A
turn may have twice as many, because counting begins anew within it."""

EVENTS_AT_ONCE = 16
"""Most events that one stream takes before others that wait have theirs."""

READS_PER_SECOND = 3_000
"""Most reads of all streams together. With one watcher each a read costs about 150 µs: half of the loop."""

READS_OF_MANY = 500_000
"""Divided by the number of streams: their reads a second where that is less. 500 streams of 50 a second leave the loop
time for 1,000 reads."""

LONGEST_REST_SECONDS = 0.5
"""Most time between two reads of a stream that has more, while the pace above allows it: up to 1,500 streams."""

REST_OF_LONG_READS = 2.0
"""Times that a long read took, all streams read nothing: such reads have a third of the loop."""

READS_AT_ONCE = 64
"""Reads that are not spread over time, because streams do not send in step."""


class LoopShare:
    """Counts the events of each turn of the event loop, and the reads. Used on one event loop only.

    `_next_read` is when the next read is due at the pace; it is behind the clock by at most `READS_AT_ONCE` reads.
    `_waiting` holds streams in the order in which they asked, each at most once; `_next_turn` lets them go on.
    """

    def __init__(self, events_per_turn: int = EVENTS_PER_TURN) -> None:
        """Args:
        events_per_turn: Events of all streams together, at least `EVENTS_AT_ONCE`.
        """
        self._events_per_turn = events_per_turn
        self._left = events_per_turn
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._is_counting = False
        self._streams = 0
        self._next_read = 0.0

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """Counts a stream while it is open."""
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def rest(self) -> None:
        """Returns when a stream that was read may be read again: at once while all together keep to the pace."""
        now = asyncio.get_running_loop().time()
        pause = 1 / self.reads_per_second
        due = max(self._next_read, now - READS_AT_ONCE * pause)
        self._next_read = due + pause
        if due > now:
            await asyncio.sleep(due - now)

    def charge(self, seconds: float) -> None:
        """Counts a read that took so long because of what came: thousands of chunks of a byte, for example."""
        now = asyncio.get_running_loop().time()
        self._next_read = max(self._next_read, now) + REST_OF_LONG_READS * seconds

    @property
    def reads_per_second(self) -> float:
        """The pace of all streams that are open."""
        streams = max(1, self._streams)
        return min(READS_PER_SECOND, max(READS_OF_MANY / streams, streams / LONGEST_REST_SECONDS))

    def take(self, events: int) -> bool:
        """Returns whether this many events may be worked on now; if not, await `wait` with the same number."""
        if self._waiting or events > self._left:
            return False
        self._count(events)
        return True

    async def wait(self, events: int) -> None:
        """Returns when this many events may be worked on. Safe to cancel.

        Args:
            events: At most `EVENTS_AT_ONCE`.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((future, events))
        self._plan_next_turn()
        await future

    def _count(self, events: int) -> None:
        self._left -= events
        self._plan_next_turn()

    def _plan_next_turn(self) -> None:
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_turn, context=Context())  # nobody's: for all streams

    def _next_turn(self) -> None:
        """Runs in the turn of the loop after one that counted events."""
        self._is_counting = False
        self._left = self._events_per_turn
        while self._waiting:
            future, events = self._waiting[0]
            if future.done():  # its stream was cancelled
                self._waiting.popleft()
                continue
            if events > self._left:
                break
            self._waiting.popleft()
            self._count(events)
            future.set_result(None)
