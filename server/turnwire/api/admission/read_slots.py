"""Slots of requests that are being read."""

import asyncio
import math
from itertools import islice, takewhile
from typing import NamedTuple

from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.networks import network_of_peer


class _Held(NamedTuple):
    """A slot that is in use."""

    connection: str
    since: float
    """Time of the event loop at which it was acquired."""


class ReadSlots:
    """Grants requests their turn to be read: networks take turns, and so do the connections of a network.

    Where requests of several networks have come, each network has half of the slots at most, so that the next one of
    another finds one. Used on the event loop only.
    """

    def __init__(self, slots: int) -> None:
        """Takes how many there are."""
        self._slots = FairSemaphore(slots, limits_connections=False)
        self._held = dict[object, _Held]()
        """By request, in the order in which they were acquired."""

    def resize(self, slots: int) -> None:
        """Changes how many there are. Those that are in use stay in use."""
        self._slots.resize(slots)

    def try_acquire(self, request: object, connection: str) -> bool:
        """Takes a slot for a request if there is one and no other waits. Returns whether it did.

        Args:
            request: Any object; it has no slot yet.
            connection: Its connection.
        """
        if not self._slots.try_acquire(network_of_peer(connection), 1, connection):
            return False
        self._note(request, connection)
        return True

    async def acquire(self, request: object, connection: str) -> None:
        """Waits for a slot; see `try_acquire`. Safe to cancel."""
        await self._slots.acquire(network_of_peer(connection), 1, connection)
        self._note(request, connection)

    def release(self, request: object) -> None:
        """Gives the slot of a request, if it has one, to the next one that waits. Idempotent."""
        if (held := self._held.pop(request, None)) is not None:
            self._slots.release(network_of_peer(held.connection), 1, held.connection)

    @property
    def in_use(self) -> int:
        """Number of slots that requests have."""
        return len(self._held)

    def take_back(self, seconds: float, most: int) -> None:
        """Takes slots back, the oldest first.

        Args:
            seconds: Those that were acquired at least so long ago.
            most: Maximum number of them.
        """
        late = asyncio.get_running_loop().time() - seconds
        old = takewhile(lambda item: item[1].since <= late, self._held.items())
        for request, _ in list(islice(old, most)):
            self.release(request)

    def age(self, request: object) -> float:
        """Returns how many seconds ago a request got its slot; infinity if it has none."""
        held = self._held.get(request)
        return math.inf if held is None else asyncio.get_running_loop().time() - held.since

    def _note(self, request: object, connection: str) -> None:
        self._held[request] = _Held(connection, asyncio.get_running_loop().time())
