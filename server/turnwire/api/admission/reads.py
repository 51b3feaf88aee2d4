"""Requests that are being read: each has a time to arrive, and slots bound how many begin at a time.

gRPC receives a request whole and tells nothing of it before, so each may bring as much as the largest. A hundred of
them come faster than memory is looked at. Most have come a moment after their call and give their slots back at once.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial

from turnwire.api.admission.read_slots import ReadSlots
from turnwire.domain.errors import DomainError, RequestTooSlow
from turnwire.domain.networks import network_of_peer
from turnwire.event_loop.owner import context_without_owner, without_owner

RECEIVE_SECONDS = 30.0
"""Maximum time in which a request arrives. What is too large for that on a slow line is uploaded in pieces."""

LENT_SECONDS = 0.1
"""Time for which a request has its slot. Memory has been looked at by then, and knows what a fast one has brought."""

SMALL_BYTES = 64 * 1024
"""Size below which requests tell that others of their network are small, too."""

SMALL_IN_SEQUENCE = 8
"""Small requests of a network after its last large one, from which on it has further slots. A slot is held for several
rounds of the event loop, and on a busy one a few slots let through fewer small requests than come."""

SMALL_SLOTS = 2
"""Slots of such networks for each other slot. Those that are large for once come on top of the others, and any number
of networks can send small ones first."""

SMALL_SECONDS = 1.0
"""Time for which requests have such a slot: on a busy event loop it takes so long until even a small one is seen to
have come."""

KNOWN_NETWORKS = 4096
"""Networks of which it is known what they send."""

MakeError = Callable[[], DomainError]
"""Makes the error of one caller: an error that several share would keep the frames of all their calls."""

SHED_AT_ONCE = 32
"""Requests that are ended in one round of the event loop: the end of a call takes up to 0.5 ms, and there may be tens
of thousands of them."""


class _Reading:
    """One request that is being read."""

    __slots__ = ("is_shed", "scope")

    def __init__(self) -> None:
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
        self._small_slots = ReadSlots(SMALL_SLOTS * slots)
        """Further ones for networks that send small requests. None waits for these."""
        self._error = error
        self._reading = dict[_Reading, str]()
        """Those that are being read, in order of arrival, and their networks."""
        self._small = dict[str, int]()
        """Number of small requests of each network since its last large one, at most `SMALL_IN_SEQUENCE`."""
        self._shedding: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """Number of requests that are being read, without those that wait."""
        return len(self._reading)

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
        reading, network = _Reading(), network_of_peer(connection)
        try:
            async with reading.scope:
                try:
                    if not self._try_acquire(reading, connection):
                        await self._wait(reading, connection)
                    return await self._read(reading, network, receive)
                finally:
                    self._release(reading)
        except TimeoutError:
            if not reading.scope.expired():
                raise
            if reading.is_shed:
                raise self._error() from None
            raise RequestTooSlow.at("RECEIVE_SECONDS", RECEIVE_SECONDS) from None
        finally:
            del reading.scope  # it has the task, whose error has this frame: both would stay until a full collection

    def _try_acquire(self, reading: _Reading, connection: str) -> bool:
        sends_small = self._small.get(network_of_peer(connection)) == SMALL_IN_SEQUENCE
        if sends_small and self._small_slots.try_acquire(reading, connection):
            return True
        return self._slots.try_acquire(reading, connection)

    def _note_size(self, network: str, size: int) -> None:
        before = self._small.pop(network, 0)
        self._small[network] = min(before + 1, SMALL_IN_SEQUENCE) if size < SMALL_BYTES else 0
        if len(self._small) > KNOWN_NETWORKS:
            del self._small[next(iter(self._small))]

    async def _wait(self, reading: _Reading, connection: str) -> None:
        """Waits for a slot. The time in which the request has to arrive begins then."""
        reading.is_shed = True
        with without_owner():  # it holds what others wait for
            await self._slots.acquire(reading, connection)
        reading.is_shed = False
        reading.scope.reschedule(asyncio.get_running_loop().time() + RECEIVE_SECONDS)

    def resize(self, slots: int) -> None:
        """Changes how many slots there are."""
        self._slots.resize(slots)
        self._small_slots.resize(SMALL_SLOTS * slots)

    def lend(self, most: int) -> None:
        """Takes the slots of requests that have not come in their time. They go on without: slow ones keep out
        nobody.

        Args:
            most: Number of requests without slots up to which they do. Above it, one does at a time: each may bring as
                much as the largest, and all of them in the same moment.
        """
        without = len(self._reading) - self._slots.in_use - self._small_slots.in_use
        further = max(1, most - without)
        self._slots.take_back(LENT_SECONDS, further)
        self._small_slots.take_back(SMALL_SECONDS, further)

    def _release(self, reading: _Reading) -> None:
        """Gives the slot of a request back. Idempotent."""
        self._slots.release(reading)
        self._small_slots.release(reading)

    async def _read(self, reading: _Reading, network: str, receive: Callable[[], Awaitable[bytes]]) -> bytes:
        self._reading[reading] = network
        try:
            with without_owner():  # a future is done at once, whatever else its connection has to do
                received = receive()
            if not isinstance(received, asyncio.Future):
                data = await received
                self._note_size(network, len(data))
                return data
            received.add_done_callback(partial(self._note, reading, network), context=context_without_owner())
            try:
                return await asyncio.shield(received)
            finally:
                del received  # its error has this frame, which would keep the call until a full collection
        finally:
            self._reading.pop(reading, None)

    def _note(self, reading: _Reading, network: str, received: "asyncio.Future[bytes]") -> None:
        """Notes that a request has arrived, whether or not its call has run since."""
        # the error of a read that is no longer awaited is retrieved, so that asyncio does not log it
        if received.cancelled() or received.exception() is not None or reading not in self._reading:
            return
        size = len(received.result())
        self._note_size(network, size)
        del self._reading[reading]
        reading.come()
        if size < SMALL_BYTES:
            self._release(reading)  # a large one is in no budget until its call goes on

    def shed(self, seconds: float = math.inf) -> None:
        """Ends requests that are being read, because the memory that each takes is unknown: all that have no slot.

        Those that wait until they may be read stay. Does nothing while it is at that already.

        Args:
            seconds: How long those that have slots have been read at most. Slots of networks that send small requests
                are spared for `SMALL_SECONDS`.
        """
        if self._reading and (self._shedding is None or self._shedding.done()):
            self._shedding = asyncio.create_task(self._shed(seconds), name="shedding")

    async def _shed(self, seconds: float) -> None:
        shed = [
            reading
            for reading in self._reading
            if self._slots.age(reading) >= seconds and self._small_slots.age(reading) >= SMALL_SECONDS
        ]
        for number, reading in enumerate(shed):
            if reading in self._reading:  # else it has ended
                reading.shed()
                self._release(reading)  # its call may have to wait for its turn to end
                self._small.pop(self._reading[reading], None)
            if number % SHED_AT_ONCE == SHED_AT_ONCE - 1:
                await asyncio.sleep(0)
