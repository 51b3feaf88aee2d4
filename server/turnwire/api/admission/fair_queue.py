"""Pending calls, which have arrived and are not started: networks take turns, and so do the connections of a network.

In order of arrival, a call would wait for all calls of a client that sends thousands at once.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Generic, TypeVar

from turnwire.domain.networks import network_of_peer

BEGUN_AT_ONCE = 4
"""Calls started in one round of the event loop. With one a round, calls wait for each other where a round takes long:
with 200 turns that stream it takes 20 ms, and no more than 25 calls a second were started."""

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by network and connection, in turns (round robin); those of a connection keep their order.

    Hundreds of connections of one network have as many turns together as the only one of another network. Each
    operation takes constant time, whatever the number of items.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self._networks = OrderedDict[str, OrderedDict[str, deque[T]]]()
        """By network and connection, in the order of their turns."""
        self._sizes = _Sizes()
        """Sizes of the networks."""
        self._sizes_of: dict[str, _Sizes] = {}
        """Sizes of the connections of each network."""
        self.count = 0
        """Number of items."""

    def add(self, connection: str, item: T) -> None:
        """Adds an item."""
        network = network_of_peer(connection)
        connections = self._networks.setdefault(network, OrderedDict())
        connections.setdefault(connection, deque()).append(item)
        self._change(network, connection, 1)

    def take(self) -> tuple[str, T]:
        """Removes the first item of the connection whose turn it is, and returns both.

        Raises IndexError: there is none.
        """
        if not self.count:
            raise IndexError
        network, connections = next(iter(self._networks.items()))
        self._networks.move_to_end(network)
        connection, items = next(iter(connections.items()))
        connections.move_to_end(connection)
        item = items.popleft()
        self._change(network, connection, -1)
        return connection, item

    def take_newest_of_largest(self) -> tuple[str, T]:
        """Removes the newest item of the connection with most, in the network with most, and returns both.

        Raises IndexError: there is none.
        """
        if not self.count:
            raise IndexError
        network = self._sizes.largest()
        connection = self._sizes_of[network].largest()
        item = self._networks[network][connection].pop()
        self._change(network, connection, -1)
        return connection, item

    def _change(self, network: str, connection: str, by: int) -> None:
        """Takes that a connection has more or fewer items, and forgets what has none."""
        self.count += by
        self._sizes.change(network, by)
        sizes = self._sizes_of.setdefault(network, _Sizes())
        sizes.change(connection, by)
        if not self._networks[network][connection]:
            del self._networks[network][connection]
        if not self._networks[network]:
            del self._networks[network], self._sizes_of[network]


class PendingCalls(Generic[T]):
    """The calls of one listener that wait to begin. Used on the event loop only. `next` has one user."""

    def __init__(self, max_pending: int) -> None:
        """Takes how many may wait."""
        self._max_pending = max_pending
        self._queue = FairQueue[T]()
        self._wanted: asyncio.Future[T] | None = None
        """The future of `next`, while no call waits. Gets the next one that arrives."""
        self._begun = 0
        """Calls that `next` has given in this round of the loop."""
        self._ended_by: Exception | None = None

    @property
    def count(self) -> int:
        """Number of calls that wait."""
        return self._queue.count

    def add(self, connection: str, call: T) -> tuple[str, T] | None:
        """Lets a call wait. Returns one that is to be refused, and its connection, if there are too many."""
        if self._wanted is not None and not self._wanted.done():
            self._begin(self._wanted, call)
            return None
        self._queue.add(connection, call)
        return self._queue.take_newest_of_largest() if self._queue.count > self._max_pending else None

    def next(self) -> asyncio.Future[T]:
        """Returns a future of the call that begins next. The one before must be done.

        The future raises what `end` was given. A waiter gets it at once while calls are pending, but for each
        BEGUN_AT_ONCE-th time: then the loop does something else first.
        """
        loop = asyncio.get_running_loop()
        if self._ended_by is not None:
            wanted = self._wanted = loop.create_future()
            wanted.set_exception(self._ended_by)
            return wanted
        if self._begun == BEGUN_AT_ONCE or not self._queue.count:
            self._begun = 0
            wanted = self._wanted = loop.create_future()
        else:
            wanted = self._wanted = _AtOnce[T](loop=loop)
        if self._queue.count:
            self._begin(wanted, self._queue.take()[1])
        return wanted

    def _begin(self, wanted: asyncio.Future[T], call: T) -> None:
        self._begun += 1
        wanted.set_result(call)

    def end(self, error: Exception) -> Iterator[T]:
        """Ends `next` with an error. Returns the calls that wait, which do not begin any more.

        Each waits until it is taken: thousands at once take tens of milliseconds.
        """
        self._ended_by = error
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_exception(error)
        return self._rest()

    def _rest(self) -> Iterator[T]:
        while self._queue.count:
            yield self._queue.take()[1]

    @property
    def has_ended(self) -> bool:
        """Whether no further call begins."""
        return self._ended_by is not None


class _AtOnce(asyncio.Future[T]):
    """A future that tells who asks when it is done at once, not in the loop's next round.

    `asyncio.wait` so returns without giving way when it is done, as `await` of a future does.
    """

    def add_done_callback(
        self, callback: Callable[["_AtOnce[T]"], object], /, *, context: Context | None = None
    ) -> None:
        """Calls the function now, if this is done."""
        if self.done():
            callback(self)
        else:
            super().add_done_callback(callback, context=context)


class _Sizes:
    """Names by a number that each has, which is 0 for all at the beginning."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._names: list[dict[str, None]] = [{}]

    def change(self, name: str, by: int) -> None:
        """Takes a change of a number."""
        before = self._sizes.pop(name, 0)
        self._names[before].pop(name, None)
        if now := before + by:
            self._sizes[name] = now
            self._names += [{} for _ in range(len(self._names), now + 1)]
            self._names[now][name] = None
        while len(self._names) > 1 and not self._names[-1]:
            self._names.pop()

    def largest(self) -> str:
        """Returns the key with the largest size, and of several the last that reached it."""
        return next(reversed(self._names[-1]))
