"""Responses while they are sent: one memory budget for those that clients have not read.

gRPC copies a response and keeps the copy until its client has read it, however long that takes. So large responses
reserve a part of the budget while they are sent. A unary call that gets none is refused; a stream waits with its next
response. A client that has not read a response for long is disconnected when another one needs its part: nothing else
makes gRPC drop the copy.
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
from turnwire.event_loop.owner import without_owner

SMALL_BYTES = 16 * 1024
"""Responses up to this size do not count: 10,000 watches may have one each."""

UNREAD_SECONDS = 30.0
"""Time for which an unread response keeps its part while others wait for it. While no other waits, a client may read as
slowly as it likes."""

WAITING_SHARE = 1 / 3
"""Maximum size of waiting responses, as a share of the budget; bytes that several of them share count once."""

MAX_MADE = 2
"""Maximum responses of many objects that are made concurrently: each is in memory several times until it is sent."""

MAX_READ = 8
"""Maximum other responses that may be large and are read concurrently: the size of each is known once it is read."""

_LATER_SECONDS = 0.01
"""Added to a timer's delay, so that it never fires early."""


class Reservation:
    """The part of the budget that one response holds."""

    __slots__ = ("client", "end", "is_held", "since", "size")

    def __init__(self, size: int, client: Client, end: Callable[[], object]) -> None:
        """Takes the size in bytes, the client, and the function that disconnects it."""
        self.size, self.client, self.end = size, client, end
        self.since = asyncio.get_running_loop().time()
        self.is_held = True


class Sending:
    """The budget of responses that are being sent. Used on the event loop only.

    With several tenants, each has at most half of it, and a connection at most half of its tenant's share, so that a
    slow reader leaves room for the others.

    `_unread` has the reservations, the oldest first, without those whose clients are disconnected already. `_timer`
    runs while streams wait, until the oldest response is due.
    """

    def __init__(self, max_bytes: int) -> None:
        """Takes the limit of all responses together; a single one may be larger."""
        self._budget = FairSemaphore(max_bytes)
        self._unread = OrderedDict[Reservation, None]()
        self._refused = set[Client]()
        """Clients that were refused since a response was read."""
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._making = FairSemaphore(MAX_MADE, tenant_limit=MAX_MADE)
        self._reading = FairSemaphore(MAX_READ, tenant_limit=MAX_READ)
        """Both limit responses, each of which counts as one, by network."""
        self.waiting_bytes = 0
        """Size of the waiting responses."""
        self._sharers: dict[object, list[int]] = {}
        """Number of waiting responses that share an object, and its bytes, by its id, which is unique meanwhile."""

    @property
    def bytes(self) -> int:
        """Size of the responses that are being sent."""
        return self._budget.in_use

    @contextlib.asynccontextmanager
    async def making(self, client: Client, *, of_objects: bool) -> AsyncIterator[None]:
        """Limits the responses that are made concurrently: entered before one is made, left when it has its part.

        Safe to cancel.

        Args:
            client: The client of the response. Networks take turns, and so do the connections of a network.
            of_objects: Whether it is many objects before it is encoded.
        """
        places = self._making if of_objects else self._reading
        with without_owner():
            async with places.held(network_of_peer(client.connection), 1, client.connection):
                yield

    def check(self, client: Client) -> None:
        """Raises TooManyCalls when a client was refused and no response was read since.

        So responses that would be refused are not made.
        """
        if client in self._refused:
            self._end_old()
            raise self._full()

    def reserve(self, size: int, client: Client, end: Callable[[], object]) -> Reservation:
        """Reserves memory for a response, until `release`.

        Args:
            size: Size of the response in bytes.
            client: Its client.
            end: Disconnects the client; called once at most, and before `release`.

        Raises:
            TooManyCalls: the budget has less.
        """
        size = min(size, self._budget.limit)
        if not self._budget.try_acquire(client.tenant, size, client.connection):
            self._end_old()
            self._refused.add(client)
            raise self._full()
        return self._take(size, client, end)

    def renew(self, reservation: Reservation) -> None:
        """Notes that the client has read a part of a response, so that it is not disconnected for the rest."""
        if reservation in self._unread:
            reservation.since = asyncio.get_running_loop().time()
            self._unread.move_to_end(reservation)

    def release(self, reservation: Reservation) -> None:
        """Releases a reservation. Idempotent."""
        if reservation.is_held:
            reservation.is_held = False
            self._unread.pop(reservation, None)
            self._refused.clear()
            self._budget.release(reservation.client.tenant, reservation.size, reservation.client.connection)

    @contextlib.asynccontextmanager
    async def place(
        self, size: int, client: Client, end: Callable[[], object], shared: object = None
    ) -> AsyncIterator[None]:
        """Reserves memory for a response of a stream while the body runs; waits for it.

        Args:
            size: Size of the response in bytes.
            client: The client of the stream.
            end: Disconnects the client; called once at most, while the body runs.
            shared: The object that holds the bytes of the waiting response, if other responses may share it.

        Raises:
            TooManyCalls: the budget is used up, and so is the memory for waiting responses.
        """
        wanted = min(size, self._budget.limit)
        if not self._budget.try_acquire(client.tenant, wanted, client.connection):
            with self._memory(size, shared):
                await self._wait(client, wanted)
        reservation = self._take(wanted, client, end)
        try:
            yield
        finally:
            self.release(reservation)

    async def _wait(self, client: Client, size: int) -> None:
        self._waiting += 1
        try:
            self._watch()
            await self._budget.acquire(client.tenant, size, client.connection)
        finally:
            self._waiting -= 1

    @contextlib.contextmanager
    def _memory(self, size: int, shared: object) -> Iterator[None]:
        """Counts a response while it waits. Raises TooManyCalls: too many bytes wait already."""
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

    def _take(self, size: int, client: Client, end: Callable[[], object]) -> Reservation:
        reservation = Reservation(size, client, end)
        self._unread[reservation] = None
        self._watch()
        return reservation

    def _full(self) -> TooManyCalls:
        return TooManyCalls.at("limits.max_sending_bytes", self._budget.limit, RETRY_AFTER)

    def _watch(self) -> None:
        """Disconnects clients that have not read for long, now and whenever the next is due, while streams wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and (next_end := self._end_old()) is not None:
            self._timer = asyncio.get_running_loop().call_at(next_end + _LATER_SECONDS, self._watch)

    def _end_old(self) -> float | None:
        """Disconnects clients that have not read for long. Returns when the next one is due; None for no other."""
        now = asyncio.get_running_loop().time()
        while self._unread:
            oldest = next(iter(self._unread))
            if oldest.since + UNREAD_SECONDS > now:
                return oldest.since + UNREAD_SECONDS
            del self._unread[oldest]
            oldest.end()
        return None
