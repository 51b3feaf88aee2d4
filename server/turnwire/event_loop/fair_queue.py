"""Callbacks of many owners, of which the one goes first who has had the least time."""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

SHARE_SECONDS = 0.0002
"""How long an owner's callbacks run before others have their turn. Each turn costs a microsecond."""

KEPT_OWNERS = 64
"""Owners without callbacks that are kept at least before they are looked through."""


class Ready(partial[Any]):
    """A callback that waits for its turn, with its arguments. Used as an `asyncio.Handle`.

    Most are made by the C code of tasks, and run once. `partial` is C too, so they cost little.
    """

    is_cancelled = False

    def cancel(self) -> None:
        """Keeps it from running. Idempotent."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Returns whether it was cancelled."""
        return self.is_cancelled

    def __repr__(self) -> str:
        """Returns its name without its arguments, which may be of clients."""
        callback = self.args[0] if self.args else self.func
        name = getattr(callback, "__qualname__", None) or type(callback).__qualname__
        return f"<{type(self).__name__}{' cancelled' if self.is_cancelled else ''} {name}>"


class FairQueue:
    """Runs callbacks. Those of one owner run in their order, and owners share the time equally.

    This is fair queueing with a virtual clock: an owner's `used` is the time that its callbacks have taken, counted
    from where the clock stood when it came. The clock goes as fast as each owner would be served if all of those with
    callbacks were served at once. Who comes after a pause goes first, but its pause gives it no claim to more later;
    and a callback that took long is paid for before the owner's next one.

    `_lines` has all owners with callbacks or something to pay for, `_waiting` the former as a heap. Used by one thread.
    """

    def __init__(self, on_error: Callable[[Ready, BaseException], None]) -> None:
        """Takes what is called with a callback that failed, and its error."""
        self._on_error = on_error
        self._lines: dict[str, _Line] = {}
        self._waiting: list[tuple[float, int, _Line]] = []
        self._order = count()
        self._clock = 0.0
        self._most_lines = KEPT_OWNERS

    def __bool__(self) -> bool:
        """Returns whether there are callbacks."""
        return bool(self._waiting)

    @property
    def owners(self) -> int:
        """How many owners are kept: those with callbacks, and some that have none now."""
        return len(self._lines)

    def add(self, owner: str, callback: Ready) -> None:
        """Adds a callback of an owner."""
        line = self._lines.get(owner)
        if line is None:
            line = self._lines[owner] = _Line()
        line.callbacks.append(callback)
        if not line.is_waiting:
            line.used = max(line.used, self._clock)
            line.is_waiting = True
            heappush(self._waiting, (line.used, next(self._order), line))

    def run(self, seconds: float) -> None:
        """Runs callbacks until none are left or the time is over; the last one may take longer.

        KeyboardInterrupt and SystemExit of a callback come through. The others remain then.
        """
        waiting, clock = self._waiting, time.perf_counter
        now = clock()
        end = now + seconds
        while waiting and now < end:
            used, _, line = heappop(waiting)
            self._clock = max(self._clock, used)
            callbacks, began = line.callbacks, now
            try:
                while True:
                    callback = callbacks.popleft()
                    if not callback.is_cancelled:
                        try:
                            callback()
                        except (SystemExit, KeyboardInterrupt):
                            raise
                        except BaseException as error:
                            self._on_error(callback, error)
                    now = clock()
                    if not callbacks or now >= end or (waiting and now - began >= SHARE_SECONDS):
                        break
            finally:
                line.used = used + now - began
                self._clock += (now - began) / (len(waiting) + 1)
                if callbacks:
                    heappush(waiting, (line.used, next(self._order), line))
                else:
                    line.is_waiting = False
        if len(self._lines) > self._most_lines:
            self._forget_idle()

    def clear(self) -> None:
        """Forgets all callbacks."""
        self._waiting.clear()
        self._lines.clear()

    def _forget_idle(self) -> None:
        """Forgets owners without callbacks, as long as others wait only those who have nothing to pay for."""
        clock = self._clock if self._waiting else float("inf")
        self._lines = {o: line for o, line in self._lines.items() if line.is_waiting or line.used > clock}
        self._most_lines = 2 * len(self._lines) + KEPT_OWNERS


class _Line:
    """The callbacks of one owner."""

    __slots__ = ("callbacks", "is_waiting", "used")

    def __init__(self) -> None:
        self.callbacks = deque[Ready]()
        self.is_waiting = False
        """Whether it is in the heap, or its callback runs."""
        self.used = 0.0
        """Seconds, on the clock of the queue."""
