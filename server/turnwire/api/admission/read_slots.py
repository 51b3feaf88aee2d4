"""Slots of requests that are being read."""

import asyncio
from collections import Counter

from turnwire.api.admission.fair_queue import FairQueue
from turnwire.domain.networks import network_of_peer


class ReadSlots:
    """Grants requests their turn to be read: networks take turns, and so do the connections of a network.

    Where requests of several networks have come, each network has half of the slots at most, so that the next one of
    another finds one. Used on the event loop only.
    """

    def __init__(self, slots: int) -> None:
        """Takes how many there are."""
        self._slots = slots
        self._in_use = 0
        self._in_use_of = Counter[str]()
        """By network."""
        self._waiting = FairQueue[asyncio.Future[None]]()
        """Some have been cancelled; they are taken out in their turn."""
        self._first_network: str | None = None
        self._is_shared = False
        """Whether a second network has come."""

    def resize(self, slots: int) -> None:
        """Changes how many there are. Those that are in use stay in use."""
        self._slots = slots
        self._grant()

    def try_acquire(self, connection: str) -> bool:
        """Takes a slot for a connection if there is one and no request waits. Returns whether it did."""
        network = network_of_peer(connection)
        if self._first_network is None:
            self._first_network = network
        self._is_shared |= network != self._first_network
        if self._waiting.count or self._in_use >= self._slots or self._has_its_share(network):
            return False
        self._take(network)
        return True

    async def acquire(self, connection: str) -> None:
        """Waits for a slot of a connection. Safe to cancel."""
        if self.try_acquire(connection):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(connection, turn)
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(connection)
            raise

    def release(self, connection: str) -> None:
        """Gives a slot back, to the next one that waits."""
        network = network_of_peer(connection)
        self._in_use -= 1
        self._in_use_of[network] -= 1
        if not self._in_use_of[network]:
            del self._in_use_of[network]
        self._grant()

    def _take(self, network: str) -> None:
        self._in_use += 1
        self._in_use_of[network] += 1

    def _grant(self) -> None:
        while self._in_use < self._slots and self._waiting.count:
            try:
                connection, turn = self._waiting.take(self._has_its_share)
            except IndexError:
                return
            if not turn.done():
                self._take(network_of_peer(connection))
                turn.set_result(None)

    def _has_its_share(self, network: str) -> bool:
        return self._is_shared and self._in_use_of[network] >= max(1, self._slots // 2)
