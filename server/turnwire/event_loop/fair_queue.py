"""Callbacks of many owners, of which the one goes first who has had the least time."""

import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

from turnwire.event_loop.owner import group_of

SHARE_SECONDS = 0.0002
"""How long an owner's callbacks run before others have their turn. Each turn costs a microsecond."""

FEW = 16
"""Callbacks of an owner that has few. Calls of one who makes some at a time have fewer at any moment."""

FEW_SHARE = 0.75
"""Part of the time that owners with few callbacks have while those with many wait, too."""

DUE_SECONDS = 0.02
"""Most that either kind makes up for later: nobody pays for a moment in which the whole process stood still."""

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
    """Runs callbacks. Those of an owner run in their order. Groups share the time equally, and owners that of theirs.

    This is fair queueing with a virtual clock: an owner's `used` is the time that its callbacks have taken, counted
    from where the clock stood when it came; one of ten connections of an address pays ten times its time. The clock
    goes as fast as each owner would be served if all of those with callbacks were served at once. Who comes after a
    pause goes first, but its pause gives it no claim to more later; and a callback that took long is paid for before
    the owner's next one.

    Owners with few callbacks have three quarters of the time: beside hundreds of owners that take all they can get, an
    equal share would be too little for the few calls of another one. What one of them takes beyond that those with many
    get back, so callbacks that take as long as a round leave them their quarter.

    Those with few have a clock of their own, and who changes from one kind to the other begins there like a newcomer.

    `_lines` has all owners with callbacks or something to pay for, `_few` and `_many` the former. Used by one thread.
    """

    def __init__(self, on_error: Callable[[Ready, BaseException], None]) -> None:
        """Takes what is called with a callback that failed, and its error."""
        self._on_error = on_error
        self._lines: dict[str, _Line] = {}
        self._few, self._many = _Heap(), _Heap()
        self._due = 0.0
        """Seconds that owners with many callbacks have to get before those with few go on."""
        self._most_lines = KEPT_OWNERS

    def __bool__(self) -> bool:
        """Returns whether there are callbacks."""
        return bool(self._few.lines or self._many.lines)

    @property
    def owners(self) -> int:
        """How many owners are kept: those with callbacks, and some that have none now."""
        return len(self._lines)

    def add(self, owner: str, callback: Ready) -> None:
        """Adds a callback of an owner."""
        line = self._lines.get(owner)
        if line is None:
            line = self._lines[owner] = _Line(group_of(owner))
        line.callbacks.append(callback)
        if not line.is_waiting:
            self._wait(line)

    def run(self, seconds: float) -> None:
        """Runs callbacks until none are left or the time is over; the last one may take longer.

        KeyboardInterrupt and SystemExit of a callback come through. The others remain then.
        """
        few, many, clock = self._few.lines, self._many.lines, time.perf_counter
        now = clock()
        end = now + seconds
        while now < end and (few or many):
            if not (few and many):
                self._due = 0.0
            heap = self._few if few and (self._due <= 0 or not many) else self._many
            line = heap.pop()
            if heap is self._few and len(line.callbacks) > FEW:  # it had few when it began to wait
                self._wait(line)
                continue
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
                    if not callbacks or now >= end or ((few or many) and now - began >= SHARE_SECONDS):
                        break
            finally:
                heap.pay(line, now - began)
                self._pay(heap, now - began)
                if callbacks:
                    self._wait(line)
                else:
                    line.is_waiting = False
        if len(self._lines) > self._most_lines:
            self._forget_idle()

    def clear(self) -> None:
        """Forgets all callbacks."""
        self._few, self._many = _Heap(), _Heap()
        self._lines.clear()

    def _pay(self, heap: "_Heap", seconds: float) -> None:
        """Counts a time that owners of a kind have had, for the other kind."""
        due = self._due + seconds * (1 - FEW_SHARE if heap is self._few else -FEW_SHARE)
        self._due = max(-DUE_SECONDS, min(DUE_SECONDS, due))

    def _wait(self, line: "_Line") -> None:
        (self._few if len(line.callbacks) <= FEW else self._many).push(line)

    def _forget_idle(self) -> None:
        """Forgets owners without callbacks, as long as others wait only those who have nothing to pay for."""

        def is_kept(line: _Line) -> bool:
            return line.is_waiting or (bool(self) and line.heap is not None and line.used > line.heap.clock)

        self._lines = {owner: line for owner, line in self._lines.items() if is_kept(line)}
        self._most_lines = 2 * len(self._lines) + KEPT_OWNERS


class _Heap:
    """Lines by the time that they have used, on a clock of their own."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, int, _Line]] = []
        self.clock = 0.0
        self._groups = Counter[str]()
        """How many lines of each group wait."""
        self._order = count()

    def push(self, line: "_Line") -> None:
        """Lets a line wait. One that comes from another heap, or after a pause, begins where the clock stands."""
        if line.heap is not self:
            line.used, line.heap = self.clock, self
        elif not line.is_waiting:
            line.used = max(line.used, self.clock)
        line.is_waiting = True
        self._groups[line.group] += 1
        heappush(self.lines, (line.used, next(self._order), line))

    def pop(self) -> "_Line":
        """Returns the line that has used the least time."""
        used, _, line = heappop(self.lines)
        self.clock = max(self.clock, used)
        if self._groups[line.group] > 1:
            self._groups[line.group] -= 1
        else:
            del self._groups[line.group]
        return line

    def pay(self, line: "_Line", seconds: float) -> None:
        """Counts a time that a line has used, which all those of its group share with it."""
        others = self._groups.get(line.group, 0)
        line.used += seconds * (others + 1)
        self.clock += seconds / (len(self._groups) + (not others))


class _Line:
    """The callbacks of one owner."""

    __slots__ = ("callbacks", "group", "heap", "is_waiting", "used")

    def __init__(self, group: str) -> None:
        self.group = group
        self.callbacks = deque[Ready]()
        self.heap: _Heap | None = None
        """In which it waits, or has waited last."""
        self.is_waiting = False
        """Whether it is in a heap, or its callback runs."""
        self.used = 0.0
        """Seconds, on the clock of the heap."""
