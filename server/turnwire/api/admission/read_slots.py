"""Slots of requests that are being read."""

import asyncio
import math
from collections import Counter
from itertools import takewhile
from typing import NamedTuple

from turnwire.api.admission.fair_queue import FairQueue
from turnwire.domain.networks import network_of_peer


class _Held(NamedTuple):
    """A slot that is in use."""

    network: str
    since: float
    """Time of the event loop at which it was granted."""


class ReadSlots:
    """Grants requests their turn to be read: networks take turns, and so do the connections of a network.

    Where requests of several networks have come, each network has half of the slots at most, so that the next one of
    another finds one. Used on the event loop only.
    """

    def __init__(self, slots: int) -> None:
        """Takes how many there are."""
        self._slots = slots
        self._held = dict[object, _Held]()
        """By request, in the order in which they were granted."""
        self._in_use_of = Counter[str]()
        """By network."""
        self._waiting = FairQueue[tuple[object, asyncio.Future[None]]]()
        """Some have been cancelled; they are taken out in their turn."""
        self._first_network: str | None = None
        self._is_shared = False
        """Whether a second network has come."""

    def resize(self, slots: int) -> None:
        """Changes how many there are. Those that are in use stay in use."""
        self._slots = slots
        self._grant()

    def try_acquire(self, request: object, connection: str) -> bool:
        """Takes a slot for a request if there is one and no other waits. Returns whether it did.

        Args:
            request: Any object; it has no slot yet.
            connection: Its connection.
        """
        network = network_of_peer(connection)
        if self._first_network is None:
            self._first_network = network
        self._is_shared |= network != self._first_network
        if self._waiting.count or len(self._held) >= self._slots or self._has_its_share(network):
            return False
        self._take(request, network)
        return True

    async def acquire(self, request: object, connection: str) -> None:
        """Waits for a slot; see `try_acquire`. Safe to cancel."""
        if self.try_acquire(request, connection):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(connection, (request, turn))
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            self.release(request)
            raise

    def release(self, request: object) -> None:
        """Gives the slot of a request, if it has one, to the next one that waits. Idempotent."""
        if (held := self._held.pop(request, None)) is None:
            return
        self._in_use_of[held.network] -= 1
        if not self._in_use_of[held.network]:
            del self._in_use_of[held.network]
        self._grant()

    def take_back(self, seconds: float) -> None:
        """Takes the slots back that were granted at least so long ago."""
        late = asyncio.get_running_loop().time() - seconds
        for request, _ in list(takewhile(lambda item: item[1].since <= late, self._held.items())):
            self.release(request)

    def age(self, request: object) -> float:
        """Returns how many seconds ago a request got its slot; infinity if it has none."""
        held = self._held.get(request)
        return math.inf if held is None else asyncio.get_running_loop().time() - held.since

    def _take(self, request: object, network: str) -> None:
        self._held[request] = _Held(network, asyncio.get_running_loop().time())
        self._in_use_of[network] += 1

    def _grant(self) -> None:
        while len(self._held) < self._slots and self._waiting.count:
            try:
                connection, (request, turn) = self._waiting.take(self._has_its_share)
            except IndexError:
                return
            if not turn.done():
                self._take(request, network_of_peer(connection))
                turn.set_result(None)

    def _has_its_share(self, network: str) -> bool:
        return self._is_shared and self._in_use_of[network] >= max(1, self._slots // 2)
