"""Answers while they are sent: one memory budget for what clients have not read.

gRPC copies what it sends, and keeps it until its client has read it, for as long as the client likes. So large answers
have a part of the budget while they are sent. A unary call that gets none is refused; a stream waits with its next
answer. Whoever has not read an answer for long is cut off when another wants its part: nothing else makes gRPC forget
what it keeps.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator

from turnwire.api.admission.flow import Client
from turnwire.api.admission.requests import RETRY_AFTER
from turnwire.domain.errors import TooManyCalls
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.networks import network_of_peer
from turnwire.event_loop.owner import as_nobody

SMALL_BYTES = 16 * 1024
"""Answers up to this size do not count: 10,000 watches may have one each."""

UNREAD_SECONDS = 30.0
"""How long an answer keeps its part while others want it. Without others it may be read as slowly as its client
likes."""

WAITING_SHARE = 1 / 3
"""Bytes of answers that wait for their part, of those of the budget; what several of them share counts once."""

MAX_MADE = 2
"""Maximum responses of many objects that are made concurrently: each is in memory several times until it is sent."""

MAX_READ = 8
"""Maximum other responses that may be large and are read concurrently: the size of each is known once it is read."""

_LATER_SECONDS = 0.01
"""So that a timer never comes before its time."""


class Held:
    """The part of one answer."""

    __slots__ = ("client", "end", "is_held", "since", "size")

    def __init__(self, size: int, client: Client, end: Callable[[], object]) -> None:
        """Takes the bytes, whose they are, and what cuts its client off."""
        self.size, self.client, self.end = size, client, end
        self.since = asyncio.get_running_loop().time()
        self.is_held = True


class Sending:
    """The budget of answers that are being sent. Belongs to the event loop.

    A tenant has half of it where there are several, and a connection half of what its tenant may have, so that one
    that reads slowly leaves room for those beside it.

    `_unread` has the answers, the oldest first, but for those whose clients are cut off already. `_timer` runs while
    streams wait, for the time of the oldest answer.
    """

    def __init__(self, max_bytes: int) -> None:
        """Takes the bound of all answers together, of which one may be larger alone."""
        self._budget = FairSemaphore(max_bytes)
        self._unread = OrderedDict[Held, None]()
        self._refused = set[Client]()
        """Clients that were refused since a response was read."""
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._making = FairSemaphore(MAX_MADE, tenant_limit=MAX_MADE)
        self._reading = FairSemaphore(MAX_READ, tenant_limit=MAX_READ)
        """Both of answers, each of which counts as one, by network."""
        self.waiting_bytes = 0
        """Size of the waiting responses."""
        self._sharers: dict[object, list[int]] = {}
        """How many of these share an object, and its bytes, by its id: they have it, so no other has the id."""

    @property
    def bytes(self) -> int:
        """Size of the responses that are being sent."""
        return self._budget.in_use

    @contextlib.asynccontextmanager
    async def making(self, client: Client, *, of_objects: bool) -> AsyncIterator[None]:
        """Is entered while an answer is made that may be large, until it has its part. Safe to cancel.

        Args:
            client: Whose answer it is. Networks have turns, and in a network its connections.
            of_objects: Whether it is many objects first.
        """
        places = self._making if of_objects else self._reading
        with as_nobody():
            async with places.held(network_of_peer(client.connection), 1, client.connection):
                yield

    def check(self, client: Client) -> None:
        """Raises TooManyCalls when a client was refused and no answer was read since.

        So no answer after the other is made in vain.
        """
        if client in self._refused:
            self._end_old()
            raise self._full()

    def hold(self, size: int, client: Client, end: Callable[[], object]) -> Held:
        """Gives an answer its part. Returns what `release` takes.

        Args:
            size: Of the answer in bytes.
            client: Whose answer it is.
            end: Cuts its client off; called once at most, and before `release`.

        Raises:
            TooManyCalls: there is not as much.
        """
        size = min(size, self._budget.limit)
        if not self._budget.try_acquire(client.tenant, size, client.connection):
            self._end_old()
            self._refused.add(client)
            raise self._full()
        return self._take(size, client, end)

    def renew(self, held: Held) -> None:
        """Takes that the client has read some of an answer, so that it is not cut off for the rest."""
        if held in self._unread:
            held.since = asyncio.get_running_loop().time()
            self._unread.move_to_end(held)

    def release(self, held: Held) -> None:
        """Takes a part back. Idempotent."""
        if held.is_held:
            held.is_held = False
            self._unread.pop(held, None)
            self._refused.clear()
            self._budget.release(held.client.tenant, held.size, held.client.connection)

    @contextlib.asynccontextmanager
    async def place(
        self, size: int, client: Client, end: Callable[[], object], shared: object = None
    ) -> AsyncIterator[None]:
        """Has a part for an answer of a stream while the body runs; waits until there is one.

        Args:
            size: Of the answer in bytes.
            client: Whose stream it is.
            end: Cuts the client off; called once at most, while the body runs.
            shared: What holds the bytes of the answer while it waits, if other answers may have the same.

        Raises:
            TooManyCalls: there is none, and no memory to wait for one.
        """
        wanted = min(size, self._budget.limit)
        if not self._budget.try_acquire(client.tenant, wanted, client.connection):
            with self._memory(size, shared):
                await self._wait(client, wanted)
        held = self._take(wanted, client, end)
        try:
            yield
        finally:
            self.release(held)

    async def _wait(self, client: Client, size: int) -> None:
        self._waiting += 1
        try:
            self._watch()
            await self._budget.acquire(client.tenant, size, client.connection)
        finally:
            self._waiting -= 1

    @contextlib.contextmanager
    def _memory(self, size: int, shared: object) -> Iterator[None]:
        """Counts an answer while it waits. Raises TooManyCalls: too much waits already."""
        key = object() if shared is None else id(shared)
        if key not in self._sharers:
            if self.waiting_bytes and self.waiting_bytes + size > self._budget.limit * WAITING_SHARE:
                self._end_old()
                raise self._full()
            self._sharers[key] = [0, size]
            self.waiting_bytes += size
        sharers = self._sharers[key]
        sharers[0] += 1
        try:
            yield
        finally:
            sharers[0] -= 1
            if not sharers[0]:
                del self._sharers[key]
                self.waiting_bytes -= sharers[1]

    def _take(self, size: int, client: Client, end: Callable[[], object]) -> Held:
        held = Held(size, client, end)
        self._unread[held] = None
        self._watch()
        return held

    def _full(self) -> TooManyCalls:
        return TooManyCalls.at("limits.max_sending_bytes", self._budget.limit, RETRY_AFTER)

    def _watch(self) -> None:
        """Cuts off who has not read for long, now and when the next answer is old, as long as streams wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and (next_end := self._end_old()) is not None:
            self._timer = asyncio.get_running_loop().call_at(next_end + _LATER_SECONDS, self._watch)

    def _end_old(self) -> float | None:
        """Cuts off who has not read for long. Returns when the next one has not; None if there is none."""
        now = asyncio.get_running_loop().time()
        while self._unread:
            oldest = next(iter(self._unread))
            if oldest.since + UNREAD_SECONDS > now:
                return oldest.since + UNREAD_SECONDS
            del self._unread[oldest]
            oldest.end()
        return None
