"""Slots of requests that are being read: few while memory is critical, and always few of those without credentials."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable

from turnwire.api.admission.fair_queue import FairQueue
from turnwire.domain.errors import DomainError
from turnwire.domain.networks import network_of_peer

MAX_WAITING_READS = 1_000
"""Requests that wait until they may be read, while memory is critical. Of more, the newest of the connection that has
most is refused."""

WIDEN_SECONDS = 0.1
"""How often the bound is doubled when memory is no longer critical: what is read meanwhile shows by then."""

_UNBOUNDED = sys.maxsize

MakeError = Callable[[], DomainError]
"""Makes the error of one caller: an error that several share would keep the frames of all their calls."""


class ReadSlots:
    """Grants requests their turn to be read: networks take turns, and so do the connections of a network.

    Where requests of several networks have come, each network has half of the slots at most, so that the next one of
    another finds one. Used on the event loop only.
    """

    def __init__(self, max_slots: int = _UNBOUNDED, error: MakeError | None = None) -> None:
        """Takes the bound of normal times, and what makes the error of those that wait too long for it."""
        self._max, self._usual_error = max_slots, error
        self._limit = max_slots
        self._in_use = 0
        self._in_use_of = Counter[str]()
        """By network."""
        self._waiting = FairQueue[asyncio.Future[None]]()
        """Some have been cancelled; they are taken out in their turn."""
        self._first_network: str | None = None
        self._is_shared = False
        """Whether a second network has come."""
        self.error = error
        """Makes what a request gets that waits too long; None while there is no bound."""
        self._widening: asyncio.TimerHandle | None = None
        """The timer of `unbound`, until no request waits or there is a bound again."""

    @property
    def are_wanted(self) -> bool:
        """Whether requests wait for a slot."""
        return self._waiting.count > 0

    @property
    def are_bounded(self) -> bool:
        """Whether requests may have to wait."""
        return self.error is not None

    def bound(self, limit: int, error: MakeError) -> None:
        """Grants no further slots while `limit` are in use."""
        self._limit, self.error = limit, error
        if self._widening is not None:
            self._widening.cancel()

    def unbound(self) -> None:
        """Doubles the bound, again and again, until it is as in normal times: requests that wait are not read all at
        once.
        """
        if self._waiting.count:
            self._limit = min(self._max, max(1, self._limit * 2))
            self._grant()
        if self._waiting.count and self._limit < self._max:
            self._widening = asyncio.get_running_loop().call_later(WIDEN_SECONDS, self.unbound)
        else:
            self._limit, self.error = self._max, self._usual_error

    async def acquire(self, connection: str) -> None:
        """Waits for a slot of a connection. Safe to cancel. Raises what `bound` was given: too many wait."""
        network = network_of_peer(connection)
        if self._first_network is None:
            self._first_network = network
        self._is_shared |= network != self._first_network
        if not self.are_bounded:
            self._take(network)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(connection, turn)
        self._grant()
        self._refuse_surplus()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.release(connection)
            raise
        finally:
            del turn  # its error has this frame

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
        while self._in_use < self._limit and self._waiting.count:
            try:
                connection, turn = self._waiting.take(self._has_its_share)
            except IndexError:
                return
            if not turn.done():
                self._take(network_of_peer(connection))
                turn.set_result(None)

    def _has_its_share(self, network: str) -> bool:
        return self._is_shared and self._in_use_of[network] >= max(1, self._limit // 2)

    def _refuse_surplus(self) -> None:
        if self._waiting.count > MAX_WAITING_READS:
            _, turn = self._waiting.take_newest_of_largest()
            if not turn.done():
                assert self.error is not None
                turn.set_exception(self.error())
