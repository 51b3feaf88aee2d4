"""Wakes watchers at a pace, so that those of one session hold up nobody else.

An event wakes all watchers of its session, each of which then writes. Thousands of them at once would hold the event
loop, and at each event they would leave it no time for anything else. Who is woken later has more to write in one go.
"""

import asyncio
from collections import OrderedDict, deque

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
