"""Callbacks of many owners, of which the one goes first who has had the least time."""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, Generic, TypeVar

from turnwire.domain.networks import network_of_peer

SHARE_SECONDS = 0.0002
"""Time that an owner's callbacks run before others have their turn. Each turn costs a microsecond."""

FEW = 16
"""Callbacks of an owner that has few. Calls of one who makes some at a time have fewer at any moment."""

FEW_SHARE = 0.75
"""Part of the time that owners with few callbacks have while those with many wait, too."""

DUE_SECONDS = 0.02
"""Maximum time that either kind makes up for later: a moment in which the whole process stood still is not charged."""

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


class FairScheduler:
    """Runs callbacks. Groups share the time equally, and so do the owners of a group. An owner's callbacks keep order.

    This is fair queueing with a virtual clock: a group's `used` is the time that its callbacks have taken, counted from
    the clock at its arrival. The clock advances as fast as each group would be served if all of those with callbacks
    were served at once. A group that arrives after a pause runs first, but the pause gives it no claim to more later;
    and a long callback is charged before the next one. Owners share the time of their group in the same way, on a clock
    of the group: a thousand connections of one address, also new ones, do not delay one of another.

    Owners with few callbacks have three quarters of the time: next to hundreds of owners that use all they can get, an
    equal share would be too little for the few calls of another one. When owners with few callbacks take more than
    that, owners with many get it back, so callbacks that take as long as a round leave them their quarter.

    Owners with few have clocks of their own, and an owner that changes from one kind to the other starts there anew.

    `_lines` has all owners with callbacks or something to pay for, `_few` and `_many` the former. Used by one thread.
    """

    def __init__(self, on_error: Callable[[Ready, BaseException], None]) -> None:
        """Takes what is called with a callback that failed, and its error."""
        self._on_error = on_error
        self._lines: dict[str, _Line] = {}
        self._few, self._many = _Kind(), _Kind()
        self._due = 0.0
        """Seconds that owners with many callbacks have to get before those with few go on."""
        self._most_lines = KEPT_OWNERS

    def __bool__(self) -> bool:
        """Returns whether there are callbacks."""
        return bool(self._few.count or self._many.count)

    @property
    def owners(self) -> int:
        """Number of owners that are kept: those with callbacks, and some that have none now."""
        return len(self._lines)

    def add(self, owner: str, callback: Ready) -> None:
        """Adds a callback of an owner."""
        line = self._lines.get(owner)
        if line is None:
            line = self._lines[owner] = _Line(network_of_peer(owner))
        line.callbacks.append(callback)
        if not line.is_waiting:
            self._wait(line)

    def run(self, seconds: float) -> None:
        """Runs callbacks until none are left or the time is over; the last one may take longer.

        KeyboardInterrupt and SystemExit of a callback come through. The others remain then.
        """
        few, many, clock = self._few, self._many, time.perf_counter
        now = clock()
        end = now + seconds
        while now < end and (few.count or many.count):
            if not (few.count and many.count):
                self._due = 0.0
            kind = few if few.count and (self._due <= 0 or not many.count) else many
            line = kind.begin()
            group: _Group = line.heap
            if kind is few and len(line.callbacks) > FEW:  # it had few when it began to wait
                self._wait(line)
                few.end(group)
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
                    if not callbacks or now >= end or ((few.count or many.count) and now - began >= SHARE_SECONDS):
                        break
            finally:
                kind.pay(line, now - began)
                self._pay(kind, now - began)
                if callbacks:
                    self._wait(line)
                else:
                    line.is_waiting = False
                kind.end(group)
        if len(self._lines) > self._most_lines:
            self._forget_idle()

    def clear(self) -> None:
        """Forgets all callbacks."""
        self._few, self._many = _Kind(), _Kind()
        self._lines.clear()

    def _pay(self, kind: "_Kind", seconds: float) -> None:
        """Counts a time that owners of a kind have had, for the other kind."""
        due = self._due + seconds * (1 - FEW_SHARE if kind is self._few else -FEW_SHARE)
        self._due = max(-DUE_SECONDS, min(DUE_SECONDS, due))

    def _wait(self, line: "_Line") -> None:
        (self._few if len(line.callbacks) <= FEW else self._many).add(line)

    def _forget_idle(self) -> None:
        """Forgets owners without callbacks, as long as others wait only those who have nothing to pay for."""
        is_idle = not self
        for kind in (self._few, self._many):
            kind.forget(is_idle)
        self._lines = {
            owner: line
            for owner, line in self._lines.items()
            if line.is_waiting or not (is_idle or line.heap is None or line.heap.is_forgotten or line.is_paid)
        }
        self._most_lines = 2 * len(self._lines) + KEPT_OWNERS


class _Waiting:
    """An entry of a heap: the callbacks of an owner, or a group of owners."""

    __slots__ = ("heap", "is_waiting", "used")

    def __init__(self) -> None:
        self.heap: Any = None
        """The heap in which it waits, or has waited last."""
        self.is_waiting = False
        """Whether it is in a heap, or runs."""
        self.used = 0.0
        """Seconds, on the clock of the heap."""

    @property
    def is_paid(self) -> bool:
        """Whether it has used no more than what the others may have had, too."""
        return bool(self.used <= self.heap.clock)


W = TypeVar("W", bound=_Waiting)


class _Heap(Generic[W]):
    """Waiting entries, ordered by the time that they have used, on a clock of their own."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, int, W]] = []
        self.clock = 0.0
        self._order = count()

    def push(self, one: W) -> None:
        """Lets one wait. One that comes from another heap, or after a pause, begins where the clock stands."""
        if one.heap is not self:
            one.used, one.heap = self.clock, self
        elif not one.is_waiting:
            one.used = max(one.used, self.clock)
        one.is_waiting = True
        heappush(self.waiting, (one.used, next(self._order), one))

    def pop(self) -> W:
        """Returns the one that has used the least time. It runs now."""
        used, _, one = heappop(self.waiting)
        self.clock = max(self.clock, used)
        return one

    def pay(self, one: W, seconds: float) -> None:
        """Counts a time that the one that runs has used."""
        one.used += seconds
        self.clock += seconds / (len(self.waiting) + 1)


class _Line(_Waiting):
    """The callbacks of one owner."""

    __slots__ = ("callbacks", "group")

    def __init__(self, group: str) -> None:
        super().__init__()
        self.group = group
        self.callbacks = deque[Ready]()


class _Group(_Waiting, _Heap[_Line]):
    """Lines of a group."""

    is_forgotten = False

    def __init__(self, name: str) -> None:
        _Waiting.__init__(self)
        _Heap.__init__(self)
        self.name = name


class _Kind:
    """Groups of lines that take turns."""

    def __init__(self) -> None:
        self.count = 0
        """Lines that wait, without the one that runs."""
        self._heap = _Heap[_Group]()
        self._groups: dict[str, _Group] = {}
        """Those that wait, and some that do not."""

    def add(self, line: _Line) -> None:
        """Lets a line wait."""
        group = self._groups.get(line.group)
        if group is None:
            group = self._groups[line.group] = _Group(line.group)
        group.push(line)
        self.count += 1
        if not group.is_waiting:
            self._heap.push(group)

    def begin(self) -> _Line:
        """Returns the line whose turn it is. `end` has to follow."""
        self.count -= 1
        return self._heap.pop().pop()

    def pay(self, line: _Line, seconds: float) -> None:
        """Counts a time that the line whose turn it is has used."""
        line.heap.pay(line, seconds)
        self._heap.pay(line.heap, seconds)

    def end(self, group: _Group) -> None:
        """Ends the turn of a group, of which a line has run."""
        group.is_waiting = bool(group.waiting)
        if group.waiting:
            self._heap.push(group)

    def forget(self, is_idle: bool) -> None:
        """Forgets groups that do not wait and have nothing to pay for; all of them when nothing else waits."""
        for group in [one for one in self._groups.values() if not one.is_waiting and (is_idle or one.is_paid)]:
            group.is_forgotten = True
            del self._groups[group.name]
