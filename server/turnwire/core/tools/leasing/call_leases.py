"""The leases of the client's calls in one message: who holds a call, and until when."""

import asyncio
import sys
from asyncio import Future
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from turnwire.core.tools.results import StoredCalls, with_log_line
from turnwire.core.work import Work
from turnwire.domain.conversation.limits import MAX_LEASE
from turnwire.domain.conversation.messages import Lease
from turnwire.domain.errors import LeaseHeld, LeaseLost
from turnwire.ports.clock import Clock
from turnwire.ports.commit import Committed


class CallLeases:
    """Gives, extends and ends leases. Whether a call is open is for the caller to know.

    A lease is stored with its call and takes effect in memory first, as every change of a call does. `_ends` has, by
    part index, the lease that was seen last and the loop time at which it ends: that clock never jumps, so a change of
    the time of day neither shortens nor extends a lease. Only what is left of a lease of an earlier process is read off
    the time of day. `_changing` has the last commit of each lease, `_lapsed` the ended leases whose removal was tried.
    Used on the event loop only.
    """

    def __init__(self, calls: StoredCalls, clock: Clock) -> None:
        """Takes all calls of the message, whose leases go on from now, and the time of day."""
        self._calls = calls
        self._clock = clock
        self._ends: dict[int, tuple[Lease, float]] = {}
        self._changing: dict[int, Future[Committed]] = {}
        self._lapsed: dict[int, Lease] = {}
        for part, _ in calls.message.tool_calls():
            self.seconds_left(part.index)

    def current(self, index: int) -> Lease | None:
        """Returns the lease of a call that lasts now; None when anybody may claim the call."""
        return self._calls.call(index).lease if self.seconds_left(index) > 0 else None

    def seconds_left(self, index: int) -> float:
        """Returns how long the lease of a call lasts; 0 or less when there is none or it has ended."""
        lease, now = self._calls.call(index).lease, asyncio.get_running_loop().time()
        if lease is None:
            return 0
        if index not in self._ends or self._ends[index][0] != lease:
            left = min(max(lease.expires_at - self._clock(), timedelta()), MAX_LEASE)
            self._ends[index] = lease, now + left.total_seconds()
        return self._ends[index][1] - now

    def is_changing(self, index: int) -> bool:
        """Returns whether the last change of a call was one of its lease: a result may be stored behind it."""
        storing = self._changing.get(index)
        return storing is not None and storing is self._calls.last_commit(index)

    def check(self, index: int, lease_id: str) -> None:
        """Refuses who does not hold a call.

        Args:
            index: The part of the call.
            lease_id: The lease that the caller holds; "" for none, which will do while nobody holds the call.

        Raises:
            LeaseLost: that lease has ended.
            LeaseHeld: no lease was given, and somebody holds the call.
        """
        current, part_id = self.current(index), self._calls.message.parts[index].part_id
        if lease_id and (current is None or current.lease_id != lease_id):
            raise LeaseLost(part_id, lease_id, current.holder if current is not None else "")
        if not lease_id and current is not None:
            raise LeaseHeld(part_id, current.holder, timedelta(seconds=self.seconds_left(index)))

    def give(self, index: int, lease: Lease, further: Work) -> "Future[Committed]":
        """Stores the claim of a call, with further work. Shield the commit when awaiting it. Raises LeaseHeld."""
        self.check(index, "")
        return self._change(index, lease, (), further)

    def renew(
        self, index: int, lease_id: str, expires_at: datetime, lines: Iterable[str], further: Work
    ) -> "Future[Committed]":
        """Stores when a lease ends, and lines of the call's log. Otherwise as `give`. Raises LeaseLost."""
        self.check(index, lease_id)
        lease = self._calls.call(index).lease
        renewed = None if lease is None else msgspec.structs.replace(lease, expires_at=expires_at)
        return self._change(index, renewed, lines, further)

    def release(self, index: int, lease_id: str, further: Work) -> "Future[Committed]":
        """Stores that nobody holds a call any more. Otherwise as `give`. Raises LeaseLost."""
        self.check(index, lease_id)
        return self._change(index, None, (), further)

    def remove_lapsed(self, indexes: Iterable[int]) -> None:
        """Tells that leases have ended by themselves: removes them in one commit, which is tried once.

        Anybody may claim such a call whether or not this could be stored.
        """
        lapsed = {index: lease for index in indexes if (lease := self._lapsed_lease(index)) is not None}
        if lapsed:
            self._lapsed |= lapsed
            free = {index: msgspec.structs.replace(self._calls.call(index), lease=None) for index in lapsed}
            self._changing |= dict.fromkeys(lapsed, self._calls.replace(free))

    def _lapsed_lease(self, index: int) -> Lease | None:
        lease = self._calls.call(index).lease
        is_due = lease is not None and self.seconds_left(index) <= 0 and self._lapsed.get(index) != lease
        return lease if is_due else None

    def _change(self, index: int, lease: Lease | None, lines: Iterable[str], further: Work) -> "Future[Committed]":
        call = self._calls.call(index)
        for line in lines:
            logged = with_log_line(call, line)
            call = logged if logged is not None and self._calls.has_room(sys.getsizeof(logged.logs[-1])) else call
        storing = self._calls.replace({index: msgspec.structs.replace(call, lease=lease)}, further)
        self._changing[index] = storing
        self._ends.pop(index, None)
        self.seconds_left(index)  # from now on, also when the clock that `expires_at` was read off stands still
        return storing
