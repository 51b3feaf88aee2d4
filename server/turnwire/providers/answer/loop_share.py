"""How the streams of all providers share the event loop.

A provider can send faster than anything else here works. Each event that is read costs work in the same task: decoding,
encoding for watchers, noting what is to be saved. So the events that one turn of the loop works on are counted, over
all streams together. What does not fit waits for the next turn, in the order of asking; between two turns the loop does
what else is ready. A stream that waits is not read: the network slows its provider down, and nothing grows in memory.
"""

import asyncio
from collections import deque

EVENTS_PER_TURN = 64
"""About half a millisecond of work; what another session sends passes the loop a few times on its way to a watcher. A
turn may have twice as many, because counting begins anew within it."""

EVENTS_AT_ONCE = 16
"""Most events that one stream takes before others that wait have theirs."""


class LoopShare:
    """Counts the events of each turn of the event loop. Used on one event loop only.

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
            asyncio.get_running_loop().call_soon(self._next_turn)

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
