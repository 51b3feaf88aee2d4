"""Requests that are being read: each has a time to arrive, and when memory is critical few are read at a time."""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from turnwire.api.admission.read_slots import MakeError, ReadSlots
from turnwire.domain.errors import RequestTooSlow
from turnwire.domain.networks import network_of_peer
from turnwire.event_loop.owner import context_without_owner, without_owner

RECEIVE_SECONDS = 30.0
"""How long a request may take to arrive. What is too large for that on a slow line is uploaded in pieces."""

CROWDED_SECONDS = 0.25
"""How long a request of those that always have a bound may take while another one waits for a slot. Such a request
arrives with the head of its call."""

SHED_AT_ONCE = 32
"""Requests that are ended in one round of the event loop: the end of a call takes up to 0.5 ms, and there may be tens
of thousands of them."""


class _Reading:
    """One request that is being read."""

    __slots__ = ("connection", "error", "has_slot", "scope", "since")

    def __init__(self, connection: str) -> None:
        self.connection = connection
        self.since = asyncio.get_running_loop().time()
        self.scope = asyncio.timeout(RECEIVE_SECONDS)
        self.error: MakeError | None = None
        self.has_slot = False

    def come(self) -> None:
        """Ends the time limit: the request has arrived."""
        if not self.scope.expired():
            self.scope.reschedule(None)

    def end(self, error: MakeError) -> None:
        """Ends it with an error, unless it has ended."""
        if not self.scope.expired():
            self.error = error
            self.scope.reschedule(asyncio.get_running_loop().time())


class Reads:
    """Requests of all listeners that are being read. Used on the event loop only."""

    def __init__(self, max_reads: int | None = None, error: MakeError | None = None) -> None:
        """Args:
        max_reads: How many are read at a time in normal times; None for all that come. With a bound, those that have
            not come soon make room for those that wait.
        error: Makes what the callers get for which there was no room.
        """
        self._slots = ReadSlots() if max_reads is None else ReadSlots(max_reads, error)
        self._max_reads = max_reads
        self._making_room: asyncio.TimerHandle | None = None
        """Runs until no request waits for a slot."""
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
            MemoryShort: memory became critical before it was there, or stayed so until it could be read.
        """
        if self._slots.are_bounded:
            with without_owner():  # it holds what others wait for
                return await self._read_in_time(connection, receive)
        return await self._read_in_time(connection, receive)

    async def _read_in_time(self, connection: str, receive: Callable[[], Awaitable[bytes]]) -> bytes:
        reading = _Reading(connection)
        try:
            async with reading.scope:
                reading.error = self._slots.error
                if self._max_reads is not None and self._making_room is None:
                    loop = asyncio.get_running_loop()
                    self._making_room = loop.call_later(CROWDED_SECONDS, self._make_room)
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

    def _make_room(self) -> None:
        """Ends requests that have not come soon, again and again while others wait."""
        self._making_room = None
        if self._max_reads is None or self._slots.error is None or not self._slots.are_wanted:
            return
        self.shed(self._slots.error, self._max_reads, CROWDED_SECONDS)
        self._making_room = asyncio.get_running_loop().call_later(CROWDED_SECONDS, self._make_room)

    def _release(self, reading: _Reading) -> None:
        """Gives the slot of a request back. Idempotent."""
        if reading.has_slot:
            reading.has_slot = False
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

    def bound(self, slots: int, error: MakeError) -> None:
        """Lets further requests be read only while fewer than `slots` are; see `ReadSlots`.

        Args:
            slots: How many are read at a time.
            error: Makes what the callers of those get that wait too long.
        """
        self._slots.bound(slots, error)

    def unbound(self) -> None:
        """Lets more and more requests be read at once, until none waits."""
        self._slots.unbound()

    def shed(self, error: MakeError, spared: int = 0, seconds: float = math.inf) -> None:
        """Ends requests that are being read, the oldest first, because the memory that each takes is unknown.

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
