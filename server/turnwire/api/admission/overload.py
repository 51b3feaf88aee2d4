"""The overload manager: how many calls there are, whatever listener they came by, and whether there is memory for more.

Memory pressure is normal, high, critical or exhausted (`telemetry/memory_monitor.py` measures it). High: what can be
made again is dropped. Critical: requests that are not whole are ended, and if that has not helped soon, what begins new
work is refused. Exhausted: it is refused at once.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from functools import partial

import structlog

from turnwire.api.admission.abuse import CutOffs
from turnwire.api.admission.reads import Reads
from turnwire.api.admission.requests import RETRY_AFTER, Requests
from turnwire.api.admission.sending import Sending
from turnwire.api.refusals import Refusals
from turnwire.domain.errors import MemoryShort, TooManyCalls
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.limits import Limits
from turnwire.domain.networks import network_of_peer

SMALL_METADATA_BYTES = 1024
"""Size of one call's metadata that is not counted: any call takes as much. A token has some hundred bytes."""

REFUSE_AFTER_SECONDS = 2.0
"""How long memory is critical before new work is refused and incomplete requests are spared for a moment only. By then
the end of the others has helped, or not: it takes some tenths of a second until their memory is free."""

SPARED_SECONDS = 0.1
"""Age up to which requests are still read then: a small one, such as an abort, has arrived by that time."""

READ_AT_ONCE = 8
"""Requests that are read at a time while memory is critical. Of those that are incomplete when it becomes critical, the
newest go on: those of honest clients are among them. As large as requests may be by default, they have half of what is
between critical memory and its limit."""

ANONYMOUS_SHARE = 1 / 4
"""Share of `limits.max_calls` that calls without credentials and health watches have together, and a network half of
it: anybody can begin them, and keep them for as long as they like."""

ANONYMOUS_READS = 32
"""Requests without credentials and for health that are read at a time, in addition to all others: each is small, but
gRPC receives as much as any request may have. One that has not come makes room soon; see `reads.CROWDED_SECONDS`."""

ANONYMOUS_READ_AT_ONCE = 4
"""Reads at a time while memory is critical. One arrives with the head of its call, so those that have not are spared
for a moment only, from the beginning."""

log = structlog.get_logger()


class InFlight:
    """A call that is counted."""

    __slots__ = ("is_anonymous", "metadata_bytes", "network")

    def __init__(self, network: str, metadata_bytes: int) -> None:
        """Takes what `Overload` has counted."""
        self.network = network
        self.metadata_bytes = metadata_bytes
        self.is_anonymous = False
        """Whether it counts for what callers without credentials have together, too."""


class Overload:
    """Counts the calls of one server, and sheds load. Used on the event loop only."""

    def __init__(self, limits: Limits) -> None:
        """Takes the bounds."""
        self._limits = limits
        self.cut_offs = CutOffs()
        self.refusals = Refusals()
        self.reads = Reads()
        too_many = partial(TooManyCalls.at, "ANONYMOUS_READS", ANONYMOUS_READS, RETRY_AFTER)
        self.anonymous_reads = Reads(ANONYMOUS_READS, too_many)
        self.requests = Requests(limits.max_request_memory_bytes)
        self.sending = Sending(limits.max_sending_bytes)
        self.calls = 0
        """Calls in flight: open streams and those whose answer is not read included."""
        self._calls_of = Counter[str]()
        """By network."""
        anonymous = max(1, int(limits.max_calls * ANONYMOUS_SHARE))
        self._anonymous = FairSemaphore(anonymous, tenant_limit=max(1, anonymous // 2))
        """Calls in flight that need no credentials, by network. None waits."""
        self._metadata_bytes = 0
        self._critical_bytes: int | None = None
        """The bytes that the process may have, while memory is critical; else None."""
        self._critical_since = 0.0
        self._is_exhausted = False
        self.caches = list[Callable[[], None]]()
        """Functions that drop caches, whose contents can be made again."""

    @property
    def is_memory_critical(self) -> bool:
        """Whether requests that are not whole are ended, and soon what begins new work is refused."""
        return self._critical_bytes is not None

    def enter(self, metadata_bytes: int, *, begins_work: bool, connection: str) -> InFlight:
        """Counts a call. Returns what `leave` takes.

        Args:
            metadata_bytes: Size of the metadata, which the caller sent before its request.
            begins_work: Whether others can wait until there is memory again.
            connection: By which it came.

        Raises:
            TooManyCalls: there are too many, of all or of the address, or their metadata is too much.
            MemoryShort: there is no memory for new work.
        """
        limits, network = self._limits, network_of_peer(connection)
        if begins_work and self._critical_bytes is not None and self._refuses_work():
            raise _memory_short(self._critical_bytes)
        if self.calls >= limits.max_calls:
            raise TooManyCalls.at("limits.max_calls", limits.max_calls, RETRY_AFTER)
        if self._calls_of[network] >= limits.max_calls_per_address:
            raise TooManyCalls.at("limits.max_calls_per_address", limits.max_calls_per_address, RETRY_AFTER)
        counted = self.enter_uncounted(metadata_bytes)
        self.calls += 1
        self._calls_of[network] += 1
        return InFlight(network, counted)

    def count_anonymous(self, call: InFlight) -> None:
        """Counts a call in flight as one that needs no credentials.

        Raises:
            TooManyCalls: there are too many of these, of all or of the network.
        """
        if not self._anonymous.try_acquire(call.network, 1):
            text = "the server has too many calls without credentials"
            raise TooManyCalls.of("limits.max_calls", self._limits.max_calls, text, RETRY_AFTER)
        call.is_anonymous = True

    def leave(self, call: InFlight) -> None:
        """Forgets a call that has ended and whose answer is no longer kept."""
        if call.is_anonymous:
            self._anonymous.release(call.network, 1)
        self.calls -= 1
        self.leave_uncounted(call.metadata_bytes)
        self._calls_of[call.network] -= 1
        if not self._calls_of[call.network]:
            del self._calls_of[call.network]

    def enter_uncounted(self, metadata_bytes: int) -> int:
        """Counts the metadata of a call that is none of `limits.max_calls`. Returns what `leave_uncounted` takes.

        Raises:
            TooManyCalls: the metadata of all calls is too much.
        """
        counted = metadata_bytes if metadata_bytes > SMALL_METADATA_BYTES else 0
        if counted and self._metadata_bytes + counted > self._limits.max_metadata_bytes:
            raise TooManyCalls.at("limits.max_metadata_bytes", self._limits.max_metadata_bytes, RETRY_AFTER)
        self._metadata_bytes += counted
        return counted

    def leave_uncounted(self, counted: int) -> None:
        """Forgets the metadata of a call that has ended."""
        self._metadata_bytes -= counted

    def drop_caches(self) -> None:
        """Drops what can be made again, because memory pressure is high. Called again and again while it is.

        What one of them raises is logged.
        """
        for drop in self.caches:
            try:
                drop()
            except Exception as error:  # the others have memory to give, too
                log.error("cache_not_dropped", exc_info=error)

    def memory_critical(self, max_bytes: int | None, *, is_exhausted: bool = False) -> None:
        """Sheds load while memory is critical. Called again and again while it is, and once when it no longer is.

        Args:
            max_bytes: Memory limit of the process; None when memory is no longer critical.
            is_exhausted: Whether it has nearly as much.
        """
        self._is_exhausted = is_exhausted
        if max_bytes is None:
            self._critical_bytes = None
            self.reads.unbound()
            self.anonymous_reads.unbound()
            return
        error = partial(_memory_short, max_bytes)
        if self._critical_bytes is None:
            self._critical_since = asyncio.get_running_loop().time()
            self.reads.bound(READ_AT_ONCE, error)
            self.anonymous_reads.bound(ANONYMOUS_READ_AT_ONCE, error)
        self._critical_bytes = max_bytes
        seconds = SPARED_SECONDS if self._is_critical_for_long() else math.inf
        self.reads.shed(error, READ_AT_ONCE, seconds)
        self.anonymous_reads.shed(error, ANONYMOUS_READ_AT_ONCE, SPARED_SECONDS)

    def _refuses_work(self) -> bool:
        return self._is_exhausted or self._is_critical_for_long()

    def _is_critical_for_long(self) -> bool:
        return asyncio.get_running_loop().time() - self._critical_since >= REFUSE_AFTER_SECONDS


def _memory_short(max_bytes: int) -> MemoryShort:
    return MemoryShort.at("limits.max_memory_bytes", max_bytes, RETRY_AFTER)
