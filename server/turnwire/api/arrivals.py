"""Calls that have come and have not begun: which of them begins next.

In the order in which they come, a call would begin behind all calls of whoever sends thousands at once. So connections
have turns, and those with few calls go before those with many.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Generic, TypeVar

from turnwire.api.turns import Turns

T = TypeVar("T")


class Arrivals(Generic[T]):
    """The calls of one listener that wait to begin, by connection. Belongs to the event loop. `next` has one user."""

    def __init__(self, max_waiting: int) -> None:
        """Takes how many may wait."""
        self._max_waiting = max_waiting
        self._running = Counter[str]()
        """Calls that have begun, by connection."""
        self._waiting = Turns[T](lambda connection: self._running[connection])
        self._asked: asyncio.Future[T] | None = None
        """Of `next`, while no call waits. Gets the next one that comes."""
        self._ended_by: Exception | None = None

    @property
    def count(self) -> int:
        """How many wait."""
        return self._waiting.count

    def add(self, connection: str, call: T) -> tuple[str, T] | None:
        """Lets a call wait. Returns the newest one of the connection that has most, and its connection, if there are
        too many; it waits no more.
        """
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(call)
            return None
        self._waiting.add(connection, call)
        if self._waiting.count <= self._max_waiting:
            return None
        most = self._waiting.owner_of_most()
        return most, self._waiting.take_newest(most)

    def next(self) -> asyncio.Future[T]:
        """Returns a future of the call that begins next. The one before must be done.

        The future raises what `end` was given.
        """
        asked = self._asked = asyncio.get_running_loop().create_future()
        if self._ended_by is not None:
            asked.set_exception(self._ended_by)
        elif self._waiting.count:
            asked.set_result(self._waiting.take()[1])
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
        self._waiting.changed(connection)

    def drop(self, connection: str) -> Collection[T]:
        """Forgets all calls of a connection that is closed and that wait. Returns them."""
        return self._waiting.drop(connection)

    def end(self, error: Exception) -> Iterator[T]:
        """Ends `next` with an error. Returns the calls that wait, which do not begin any more.

        Each waits until it is taken: thousands at once take tens of milliseconds.
        """
        self._ended_by = error
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(error)
        return self._rest()

    def _rest(self) -> Iterator[T]:
        while self._waiting.count:
            yield self._waiting.take()[1]

    @property
    def has_ended(self) -> bool:
        """Whether no further call begins."""
        return self._ended_by is not None
