"""Requests: each is read within a time, and large ones have a part of one memory budget until they are carried out.

A request is in memory several times: as its bytes, as a message of protobuf, as texts, in which each character takes
four bytes when one of them is wide, and as what waits for the disk. Requests come faster than they are stored, so
without a budget a hundred large ones would wait in memory, whatever the server refuses by then.
"""

import asyncio
import contextlib
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Protocol, TypeVar

from turnwire.api.admission.flow import Client
from turnwire.api.admission.read_slots import MakeError, ReadSlots
from turnwire.domain.errors import RequestTooSlow, TooManyCalls
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.networks import network_of_peer
from turnwire.domain.text import WIDEST_BYTES
from turnwire.event_loop.owner import as_nobody, for_all

RECEIVE_SECONDS = 30.0
"""How long a request may take to arrive. What is too large for that on a slow line is uploaded in pieces."""

COUNTED_BYTES = 4096
"""A smaller request has no part in the budget: a call takes several times as much by itself, and it would wait behind
large ones."""

MEMORY_OF_BYTE = 1 + WIDEST_BYTES
"""What a byte of a request may take: in its message, and in a text with a wide character."""

MAX_WAITING_REQUESTS_BYTES = 64 * 2**20
"""Of requests that are there and wait for their part; one flow has half of it at most. Further ones are refused."""

SHED_AT_ONCE = 32
"""Requests that are ended in one round of the event loop: the end of a call takes up to 0.5 ms, and there may be tens
of thousands of them."""

RETRY_AFTER = timedelta(seconds=1)
"""When whoever is refused because of too many calls, or too little memory, may try again."""

T = TypeVar("T")


class CallerGone(Exception):
    """The caller has left its call."""


class Finish(Protocol):
    """Does what a request asks for."""

    def __call__(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Returns what the work returns."""
        ...


class _Reading:
    """One request that is being read."""

    __slots__ = ("connection", "error", "has_slot", "is_large", "scope", "since")

    def __init__(self, connection: str) -> None:
        self.connection = connection
        self.since = asyncio.get_running_loop().time()
        self.scope = asyncio.timeout(RECEIVE_SECONDS)
        self.error: MakeError | None = None
        self.has_slot = False
        self.is_large = False
        """Set when it is there, large, and its call waits for its turn on the event loop."""

    def come(self) -> None:
        """Ends the time for it: it is there."""
        if not self.scope.expired():
            self.scope.reschedule(None)

    def end(self, error: MakeError) -> None:
        """Ends it with an error, unless it has ended."""
        if not self.scope.expired():
            self.error = error
            self.scope.reschedule(asyncio.get_running_loop().time())


class Requests:
    """The requests of all listeners. Belongs to the event loop."""

    def __init__(self, max_bytes: int) -> None:
        """Takes the memory that requests may have from 4 KiB on."""
        self._memory = FairSemaphore(max_bytes)
        self._waiting = FairSemaphore(MAX_WAITING_REQUESTS_BYTES, tenant_limit=MAX_WAITING_REQUESTS_BYTES // 2)
        self._slots = ReadSlots()
        self._reading: dict[str, dict[_Reading, None]] = {}
        """By network, in order of arrival."""
        self._taken = Counter[str]()
        """By network, large requests that are there and whose call waits for its turn on the event loop."""
        self._shedding: asyncio.Task[None] | None = None

    def reading_of(self, network: str) -> int:
        """Returns how many requests of a network may take much memory soon: they have not come, or are large and new.

        Those that wait until they may be read are none of them.
        """
        return len(self._reading.get(network, ())) + self._taken[network]

    async def read(self, connection: str, receive: Callable[[], Awaitable[bytes]]) -> bytes:
        """Returns a request. Safe to cancel.

        Args:
            connection: Whose request it is.
            receive: Returns the request once it is there. When it returns a future, that is not cancelled, and the
                request is there when it is done, though the call may wait long for its turn on the event loop.

        Raises:
            RequestTooSlow: it took too long.
            MemoryShort: memory became critical before it was there, or stayed so until it could be read.
        """
        if self._slots.are_bounded:
            with as_nobody():  # it holds what others wait for
                return await self._read_in_time(connection, receive)
        return await self._read_in_time(connection, receive)

    async def _read_in_time(self, connection: str, receive: Callable[[], Awaitable[bytes]]) -> bytes:
        reading = _Reading(connection)
        try:
            async with reading.scope:
                reading.error = self._slots.error
                await self._slots.acquire(connection)
                reading.has_slot = True
                if reading.error is not None:
                    reading.error, reading.since = None, asyncio.get_running_loop().time()
                    reading.scope.reschedule(reading.since + RECEIVE_SECONDS)
                try:
                    return await self._read(reading, network_of_peer(connection), receive)
                finally:
                    self._release(reading)
        except TimeoutError:
            if not reading.scope.expired():
                raise
            if reading.error is not None:
                raise reading.error() from None
            raise RequestTooSlow.at("RECEIVE_SECONDS", RECEIVE_SECONDS) from None

    def _release(self, reading: _Reading) -> None:
        """Gives the slot of a request back. Idempotent."""
        if reading.has_slot:
            reading.has_slot = False
            self._slots.release(reading.connection)

    async def _read(self, reading: _Reading, network: str, receive: Callable[[], Awaitable[bytes]]) -> bytes:
        self._reading.setdefault(network, {})[reading] = None
        try:
            with as_nobody():  # a future is done at once, whatever else its connection has to do
                received = receive()
            if not isinstance(received, asyncio.Future):
                return await received
            received.add_done_callback(partial(self._note, reading, network), context=for_all())
            try:
                return await asyncio.shield(received)
            finally:
                del received  # its error has this frame, which would keep the call until a full collection
        finally:
            self._forget(reading, network)

    def _note(self, reading: _Reading, network: str, received: "asyncio.Future[bytes]") -> None:
        """Takes that a request is there, had its call a turn since or not."""
        # the error of what nobody waits for is retrieved, so that asyncio does not log it
        if received.cancelled() or received.exception() is not None or reading not in self._reading.get(network, ()):
            return
        self._forget(reading, network)
        self._release(reading)
        reading.come()
        if len(received.result()) >= COUNTED_BYTES:
            reading.is_large = True
            self._taken[network] += 1

    def _forget(self, reading: _Reading, network: str) -> None:
        if reading.is_large:
            reading.is_large = False
            self._taken[network] -= 1
            if not self._taken[network]:
                del self._taken[network]
        elif (readings := self._reading.get(network)) is not None and reading in readings:
            del readings[reading]
            if not readings:
                del self._reading[network]

    def bound_reading(self, slots: int, error: MakeError) -> None:
        """Lets further requests be read only while fewer than so many are; see `ReadSlots`.

        Args:
            slots: How many are read at a time.
            error: Makes what the callers of those get that wait too long.
        """
        self._slots.bound(slots, error)

    def unbound_reading(self) -> None:
        """Lets more and more requests be read at once, until none waits."""
        self._slots.unbound()

    def shed_incomplete(self, error: MakeError, spared: int = 0, seconds: float = math.inf) -> None:
        """Ends requests that are being read, the oldest first: nobody knows how much of them is in memory.

        Those that wait until they may be read stay. Does nothing while it is at that already.

        Args:
            error: Makes what their callers get.
            spared: How many go on: the newest of each network in turns.
            seconds: How long those have been read at most.
        """
        if self._reading and (self._shedding is None or self._shedding.done()):
            self._shedding = asyncio.create_task(self._shed(error, spared, seconds), name="shedding")

    def _newest(self, count: int, seconds: float) -> set[_Reading]:
        """Returns the newest requests; networks have turns, of which those come first that have begun last."""
        begun_after = asyncio.get_running_loop().time() - seconds
        newest = set[_Reading]()
        turns = deque(reversed(readings) for readings in reversed(self._reading.values()))
        while turns and len(newest) < count:
            readings = turns.popleft()
            if (one := next(readings, None)) is not None and one.since > begun_after:
                newest.add(one)
                turns.append(readings)
        return newest

    async def _shed(self, error: MakeError, spared: int, seconds: float) -> None:
        newest = self._newest(spared, seconds)
        shed = [(readings, one) for readings in self._reading.values() for one in readings if one not in newest]
        for number, (readings, one) in enumerate(shed):
            if one in readings:  # else it has ended
                one.end(error)
                self._release(one)  # its call may have to wait for its turn to end
            if number % SHED_AT_ONCE == SHED_AT_ONCE - 1:
                await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def memory(self, client: Client, size: int, *, only_reads: bool = False) -> AsyncIterator[Finish]:
        """Has memory for a request of so many bytes; waits for it.

        Safe to cancel. What its body does by the yielded `Finish` is done to its end, and the memory is in use until
        then.

        Args:
            client: Whose request it is.
            size: Of the request.
            only_reads: What it asks for ends when it is cancelled, so it is not done to its end.

        Raises:
            TooManyCalls: too much waits.
        """
        if size < COUNTED_BYTES:
            yield _directly
            return
        flow, cost = client.flow, min(size * MEMORY_OF_BYTE, self._memory.limit)
        if not self._memory.try_acquire(flow, cost):
            await self._wait(flow, size, cost)
        try:
            yield _directly if only_reads else run_to_completion
        finally:
            self._memory.release(flow, cost)

    async def _wait(self, flow: str, size: int, cost: int) -> None:
        if not self._waiting.try_acquire(flow, size):
            text = "too many large requests wait"
            limit = "limits.max_request_memory_bytes"
            raise TooManyCalls.of(limit, self._memory.limit, text, RETRY_AFTER)
        try:
            await self._memory.acquire(flow, cost)
        finally:
            self._waiting.release(flow, size)


def _directly(work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    return work()


async def run_to_completion(work: Callable[[], Awaitable[T]]) -> T:
    """Returns what the work returns. When this is cancelled, the work goes on, and this ends when it has ended.

    What a caller has begun may go on without it; while it does, its request is in memory.
    """
    task = asyncio.ensure_future(work())
    left: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            left = error
    if left is None:
        try:
            return task.result()
        finally:
            del task, work  # its error has this frame, which would keep the request until a full collection
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it
    raise left
