"""Requests that are being read: each has a time to arrive, and slots bound how many begin at a time.

gRPC receives a request whole and tells nothing of it before, so each may bring as much as the largest. A hundred of
them come faster than memory is looked at. Most have come a moment after their call and give their slots back at once.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import takewhile

from turnwire.api.admission.read_slots import ReadSlots
from turnwire.domain.errors import DomainError, RequestTooSlow
from turnwire.domain.networks import network_of_peer
from turnwire.event_loop.owner import context_without_owner, without_owner

RECEIVE_SECONDS = 30.0
"""How long a request may take to arrive. What is too large for that on a slow line is uploaded in pieces."""

LENT_SECONDS = 0.1
"""How long a request has its slot. Memory has been looked at by then, and knows what a fast one has brought."""

MakeError = Callable[[], DomainError]
"""Makes the error of one caller: an error that several share would keep the frames of all their calls."""

SHED_AT_ONCE = 32
"""Requests that are ended in one round of the event loop: the end of a call takes up to 0.5 ms, and there may be tens
of thousands of them."""


class _Reading:
    """One request that is being read."""

    __slots__ = ("connection", "is_shed", "scope", "since")

    def __init__(self, connection: str) -> None:
        self.connection = connection
        self.since = asyncio.get_running_loop().time()
        self.scope = asyncio.timeout(RECEIVE_SECONDS)
        self.is_shed = False
        """Whether its end is due to the server, not to its client."""

    def come(self) -> None:
        """Ends the time limit: the request has arrived."""
        if not self.scope.expired():
            self.scope.reschedule(None)

    def shed(self) -> None:
        """Ends it, unless it has ended."""
        if not self.scope.expired():
            self.is_shed = True
            self.scope.reschedule(asyncio.get_running_loop().time())


class Reads:
    """Requests of all listeners that are being read. Used on the event loop only."""

    def __init__(self, slots: int, error: MakeError) -> None:
        """Args:
        slots: How many have slots at a time.
        error: Makes what the callers get that are shed, or wait too long for a slot.
        """
        self._slots = ReadSlots(slots)
        self._error = error
        self._holders = dict[_Reading, None]()
        """Those that have slots, in order of arrival."""
        self._reading: dict[str, dict[_Reading, None]] = {}
        """By network, in order of arrival."""
        self._shedding: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many are being read; those that wait until they may be are none of them."""
        return sum(map(len, self._reading.values()))

    async def read(self, connection: str, receive: Callable[[], Awaitable[bytes]]) -> bytes:
        """Returns a request. Safe to cancel.

        Args:
            connection: The connection of the request.
            receive: Returns the request once it has arrived. When it returns a future, that is not cancelled, and the
                request has arrived when it is done, though the call may wait long for its turn on the event loop.

        Raises:
            RequestTooSlow: it took too long.
            MemoryShort: memory became critical before it was there, or there was too little until it could be read.
        """
        reading = _Reading(connection)
        try:
            async with reading.scope:
                if not self._slots.try_acquire(connection):
                    await self._wait(reading)
                self._holders[reading] = None
                try:
                    return await self._read(reading, network_of_peer(connection), receive)
                finally:
                    self._release(reading)
        except TimeoutError:
            if not reading.scope.expired():
                raise
            if reading.is_shed:
                raise self._error() from None
            raise RequestTooSlow.at("RECEIVE_SECONDS", RECEIVE_SECONDS) from None

    async def _wait(self, reading: _Reading) -> None:
        """Waits for a slot. The time in which the request has to arrive begins then."""
        reading.is_shed = True
        with without_owner():  # it holds what others wait for
            await self._slots.acquire(reading.connection)
        reading.is_shed = False
        reading.since = asyncio.get_running_loop().time()
        reading.scope.reschedule(reading.since + RECEIVE_SECONDS)

    def resize(self, slots: int) -> None:
        """Changes how many slots there are."""
        self._slots.resize(slots)

    def lend(self) -> None:
        """Takes the slots of requests that have not come within `LENT_SECONDS`. They go on without: slow ones keep out
        nobody.
        """
        late = asyncio.get_running_loop().time() - LENT_SECONDS
        for reading in list(takewhile(lambda one: one.since <= late, self._holders)):
            self._release(reading)

    def _release(self, reading: _Reading) -> None:
        """Gives the slot of a request back. Idempotent."""
        if reading in self._holders:
            del self._holders[reading]
            self._slots.release(reading.connection)

    async def _read(self, reading: _Reading, network: str, receive: Callable[[], Awaitable[bytes]]) -> bytes:
        self._reading.setdefault(network, {})[reading] = None
        try:
            with without_owner():  # a future is done at once, whatever else its connection has to do
                received = receive()
            if not isinstance(received, asyncio.Future):
                return await received
            received.add_done_callback(partial(self._note, reading, network), context=context_without_owner())
            try:
                return await asyncio.shield(received)
            finally:
                del received  # its error has this frame, which would keep the call until a full collection
        finally:
            self._forget(reading, network)

    def _note(self, reading: _Reading, network: str, received: "asyncio.Future[bytes]") -> None:
        """Notes that a request has arrived, whether or not its call has run since."""
        # the error of a read that is no longer awaited is retrieved, so that asyncio does not log it
        if received.cancelled() or received.exception() is not None or reading not in self._reading.get(network, ()):
            return
        self._forget(reading, network)
        self._release(reading)
        reading.come()

    def _forget(self, reading: _Reading, network: str) -> None:
        if (readings := self._reading.get(network)) is not None and reading in readings:
            del readings[reading]
            if not readings:
                del self._reading[network]

    def shed(self, seconds: float = math.inf) -> None:
        """Ends requests that are being read, because the memory that each takes is unknown: all that have no slot.

        Those that wait until they may be read stay. Does nothing while it is at that already.

        Args:
            seconds: How long those that have slots have been read at most.
        """
        if self._reading and (self._shedding is None or self._shedding.done()):
            self._shedding = asyncio.create_task(self._shed(seconds), name="shedding")

    async def _shed(self, seconds: float) -> None:
        late = asyncio.get_running_loop().time() - seconds
        shed = [
            (readings, one)
            for readings in self._reading.values()
            for one in readings
            if one not in self._holders or one.since <= late
        ]
        for number, (readings, one) in enumerate(shed):
            if one in readings:  # else it has ended
                one.shed()
                self._release(one)  # its call may have to wait for its turn to end
            if number % SHED_AT_ONCE == SHED_AT_ONCE - 1:
                await asyncio.sleep(0)
