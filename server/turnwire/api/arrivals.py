"""Calls that have come and have not begun: which of them begins next.

In the order in which they come, a call would begin behind all calls of whoever sends thousands at once. So connections
have turns, and those with few calls go before those with many.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

T = TypeVar("T")

_FEW = 4
"""Calls of a connection that do not matter for its turns; from there on each doubling puts it behind others."""

_LONGEST_WAITING = 4
"""One of so many turns is of the connection that has waited longest, so that none waits for ever."""


class Arrivals(Generic[T]):
    """The calls of one listener that wait to begin, by connection. Belongs to the event loop. `next` has one user."""

    def __init__(self, max_waiting: int) -> None:
        """Takes how many may wait."""
        self._max_waiting = max_waiting
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        """In the order of their last turns."""
        self._levels: list[OrderedDict[str, None]] = []
        """The same connections by how many calls they have, the fewest first."""
        self._level_of: dict[str, int] = {}
        self._sizes: list[dict[str, None]] = [{}]
        """The same connections by how many of their calls wait; the last place has those with most."""
        self._running = Counter[str]()
        """Calls that have begun, by connection."""
        self._turns = 0
        self._asked: asyncio.Future[T] | None = None
        """Of `next`, while no call waits. Gets the next one that comes."""
        self._ended_by: Exception | None = None
        self.count = 0
        """How many wait."""

    def add(self, connection: str, call: T) -> tuple[str, T] | None:
        """Lets a call wait. Returns the newest one of the connection that has most, and its connection, if there are
        too many; it waits no more.
        """
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(call)
            return None
        calls = self._waiting.get(connection)
        if calls is None:
            calls = self._waiting[connection] = deque()
            self._enter(connection)
        self._resize(connection, len(calls), 1)
        calls.append(call)
        self.count += 1
        if self.count <= self._max_waiting:
            return None
        most = next(reversed(self._sizes[-1]))
        return most, self._taken(most, self._waiting[most].pop)

    def next(self) -> asyncio.Future[T]:
        """Returns a future of the call that begins next. The one before must be done.

        The future raises what `end` was given once no call waits.
        """
        asked = self._asked = asyncio.get_running_loop().create_future()
        if self.count:
            asked.set_result(self._first())
        elif self._ended_by is not None:
            asked.set_exception(self._ended_by)
        return asked

    def begun(self, connection: str) -> None:
        """Takes that a call of a connection runs."""
        self._run(connection, 1)

    def ended(self, connection: str) -> None:
        """Takes that a call of a connection runs no more."""
        self._run(connection, -1)

    def _run(self, connection: str, more: int) -> None:
        self._running[connection] += more
        if not self._running[connection]:
            del self._running[connection]
        if connection in self._waiting and self._level(connection) != self._level_of[connection]:
            self._leave(connection)
            self._enter(connection)

    def drop(self, connection: str) -> Collection[T]:
        """Forgets all calls of a connection that is closed and that wait. Returns them."""
        if (calls := self._waiting.pop(connection, None)) is None:
            return ()
        self.count -= len(calls)
        self._resize(connection, len(calls), -len(calls))
        self._leave(connection)
        return calls

    def end(self, error: Exception) -> list[T]:
        """Ends `next` with an error. Returns the calls that wait, which do not begin any more."""
        calls = [call for connection in list(self._waiting) for call in self.drop(connection)]
        self._ended_by = error
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(error)
        return calls

    @property
    def has_ended(self) -> bool:
        """Whether no further call begins."""
        return self._ended_by is not None

    def _first(self) -> T:
        self._turns += 1
        longest = self._turns % _LONGEST_WAITING == 0
        connection = next(iter(self._waiting if longest else next(filter(None, self._levels))))
        call = self._taken(connection, self._waiting[connection].popleft)
        if connection in self._waiting:
            self._waiting.move_to_end(connection)
            self._leave(connection)
            self._enter(connection)
        return call

    def _taken(self, connection: str, take: Callable[[], T]) -> T:
        calls = self._waiting[connection]
        self._resize(connection, len(calls), -1)
        self.count -= 1
        call = take()
        if not calls:
            del self._waiting[connection]
            self._leave(connection)
        return call

    def _resize(self, connection: str, size: int, more: int) -> None:
        """Notes that so many more calls of a connection wait, of which so many do."""
        self._sizes[size].pop(connection, None)
        while size + more >= len(self._sizes):
            self._sizes.append({})
        if size + more:
            self._sizes[size + more][connection] = None
        while len(self._sizes) > 1 and not self._sizes[-1]:
            self._sizes.pop()

    def _level(self, connection: str) -> int:
        return (self._running[connection] // _FEW).bit_length()

    def _enter(self, connection: str) -> None:
        """Puts a connection behind those with about as many calls."""
        level = self._level_of[connection] = self._level(connection)
        while level >= len(self._levels):
            self._levels.append(OrderedDict())
        self._levels[level][connection] = None

    def _leave(self, connection: str) -> None:
        del self._levels[self._level_of.pop(connection)][connection]
