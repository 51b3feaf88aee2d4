"""The overload manager: how many calls there are, whatever listener they came by, and whether there is memory for more.

Memory pressure is normal, high, critical or exhausted (`telemetry/memory_monitor.py` measures it). High: what can be
made again is dropped. Critical: requests that come without a slot are ended, and if that has not helped soon, so are
all slow ones, and what begins new work is refused. Exhausted: it is refused at once.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable

import structlog

from turnwire.api.admission.abuse import CutOffs
from turnwire.api.admission.reads import LENT_SECONDS, Reads
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
"""Time for which memory is critical before new work is refused and requests with slots are spared for a moment only. By
then the end of the others has helped, or not: it takes some tenths of a second until their memory is free."""

SPARED_SECONDS = LENT_SECONDS
"""Age up to which requests are still read then: a small one, such as an abort, has arrived by that time."""

READ_COPIES = 4
"""Room for a request that is being read, as a multiple of the largest: gRPC copies its bytes, and the allocator keeps
what is free for a while."""

LEAST_READ_SHARE = 1 / 8
"""Share of `limits.max_memory_bytes` into which requests fit that have slots at least: all that there are while memory
is critical. It is less than half of what is between critical memory and its limit."""

ANONYMOUS_SHARE = 1 / 4
"""Share of `limits.max_calls` that calls without credentials and health watches have together, and a network half of
it: anybody can begin them, and keep them for as long as they like."""

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

    def __init__(self, limits: Limits, max_message_bytes: int) -> None:
        """Takes the bounds, and the size of the largest request."""
        self._limits = limits
        self.cut_offs = CutOffs()
        self.refusals = Refusals()
        self._max_message_bytes = max_message_bytes
        self._least_slots = max(2, int(limits.max_memory_bytes * LEAST_READ_SHARE) // max_message_bytes)
        self.reads = Reads(self._least_slots, self._memory_short)
        self.anonymous_reads = Reads(self._least_slots // 2, self._memory_short)
        """Those without credentials and for health. They have slots of their own: health is answered beside a flood."""
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
        self.is_memory_critical = False
        """Whether slow requests are ended, and soon what begins new work is refused."""
        self._critical_since = 0.0
        self._is_exhausted = False
        self.caches = list[Callable[[], None]]()
        """Functions that drop caches, whose contents can be made again."""

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
        if begins_work and self._refuses_work():
            raise self._memory_short()
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

    def note_memory(self, room: int, *, is_critical: bool, is_exhausted: bool = False) -> None:
        """Bounds what is read until the next look at the memory, and sheds load while memory is critical.

        Called at each look.

        Args:
            room: Bytes that are left until memory is critical; negative beyond.
            is_critical: Whether it is, and until there is enough again.
            is_exhausted: Whether the process has nearly as much as it may.
        """
        if is_critical and not self.is_memory_critical:
            self._critical_since = asyncio.get_running_loop().time()
        self.is_memory_critical, self._is_exhausted = is_critical, is_exhausted
        slots = max(self._least_slots, room // (READ_COPIES * self._max_message_bytes))
        self.reads.resize(slots)
        self.anonymous_reads.resize(slots // 2)
        if is_critical:
            self.reads.shed(SPARED_SECONDS if self._is_critical_for_long() else math.inf)
            self.anonymous_reads.shed(SPARED_SECONDS)  # they arrive with the heads of their calls
        else:
            fitting = room // self._max_message_bytes
            self.reads.lend(fitting)
            self.anonymous_reads.lend(fitting // 2)

    def _refuses_work(self) -> bool:
        return self.is_memory_critical and (self._is_exhausted or self._is_critical_for_long())

    def _is_critical_for_long(self) -> bool:
        return asyncio.get_running_loop().time() - self._critical_since >= REFUSE_AFTER_SECONDS

    def _memory_short(self) -> MemoryShort:
        return MemoryShort.at("limits.max_memory_bytes", self._limits.max_memory_bytes, RETRY_AFTER)
