"""Calls of the client's tools: what a client may do with them, and the effects of time.

Each waits until a client submits its result or the time limit passes. Clients may claim calls: while a lease lasts,
only its holder's result counts, and the time limit is suspended.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from turnwire.core.actor import Decision, Now
from turnwire.core.intake.contents import load_file
from turnwire.core.intake.readable_files import ReadableFiles
from turnwire.core.intake.requests import NewToolResult
from turnwire.core.tools.open_calls import OpenCalls
from turnwire.core.tools.results import CallResult, with_log_line
from turnwire.domain.conversation.messages import Lease, ToolUse
from turnwire.domain.errors import MessageTooLarge
from turnwire.domain.limits import Limits
from turnwire.ports.commit import Work


async def client_result(new: NewToolResult, readable: ReadableFiles, limits: Limits, now: datetime) -> CallResult:
    """Reads the files of a submitted result; returns the result with the changes that store them.

    Args:
        new: The result.
        readable: The paths that may be read, and the uploads.
        limits: `max_message_bytes` applies to output, metadata and files together.
        now: When the result arrived.

    Raises:
        InvalidRequest: a file is invalid.
        UploadNotFound: a file names an upload that does not exist.
        MessageTooLarge: a file, or the complete result, is over its limit.
    """
    loaded, size = [], len(new.output.encode()) + len(new.metadata_json.encode())
    for index, file in enumerate(new.files):
        found = await load_file(file, f"files[{index}]", readable)
        loaded.append(found)
        size += found.reference.size_bytes
    if size > limits.max_message_bytes:
        raise MessageTooLarge.over("limits.max_message_bytes", limits.max_message_bytes, "output", size)
    return CallResult(
        output=new.output,
        is_error=new.is_error,
        metadata_json=new.metadata_json,
        files=tuple(file.reference for file in loaded),
        contents=tuple(file.change(now) for file in loaded),
    )


class SubmitResult(Struct, frozen=True):
    """A client's result for the call in one part."""

    index: int
    result: CallResult
    lease_id: str = ""
    """The lease that the client holds; "" for none."""

    def decide(self, calls: OpenCalls, now: Now) -> Decision[OpenCalls]:
        """Returns the calls with the result. Repeating the same result changes nothing, whatever the lease.

        Raises:
            ToolCallAlreadySettled: the call has another result, or is not a call of a client tool.
            ToolCallNotReady: the call waits for a permission.
            LeaseHeld: no lease is given, and another client holds the call.
            LeaseLost: the lease has ended.
        """
        if self.result.is_of(calls.call(self.index)):
            return Decision(calls)
        calls.check_client_may_answer(self.index)
        calls.check_lease(self.index, self.lease_id, now)
        return calls.with_results({self.index: self.result}, now)


class ClaimCall(Struct, frozen=True):
    """The claim of a client on the call in one part."""

    index: int
    lease_id: str
    """A new id."""
    holder: str
    duration: timedelta
    further: Work
    """More work for the same commit."""

    def decide(self, calls: OpenCalls, now: Now) -> Decision[OpenCalls]:
        """Returns the calls with the lease. Raises ToolCallAlreadySettled, ToolCallNotReady, LeaseHeld."""
        calls.check_client_may_answer(self.index)
        calls.check_lease(self.index, "", now)
        lease = Lease(lease_id=self.lease_id, holder=self.holder, expires_at=now.at + self.duration)
        claimed = msgspec.structs.replace(calls.call(self.index), lease=lease)
        return calls.with_calls({self.index: claimed}, now, self.further)


class RenewLease(Struct, frozen=True):
    """More time for a lease, with lines for the log of its call."""

    index: int
    lease_id: str
    duration: timedelta
    """Duration of the lease, from now."""
    log_lines: tuple[str, ...]
    further: Work
    """More work for the same commit."""

    def decide(self, calls: OpenCalls, now: Now) -> Decision[OpenCalls]:
        """Returns the calls with both. Raises ToolCallAlreadySettled, ToolCallNotReady, LeaseLost."""
        calls.check_client_may_answer(self.index)
        calls.check_lease(self.index, self.lease_id, now)
        call = _with_lines(calls.call(self.index), self.log_lines)
        if call.lease is not None:
            renewed = msgspec.structs.replace(call.lease, expires_at=now.at + self.duration)
            call = msgspec.structs.replace(call, lease=renewed)
        return calls.with_calls({self.index: call}, now, self.further)


class ReleaseLease(Struct, frozen=True):
    """The end of a lease before its time."""

    index: int
    lease_id: str
    further: Work
    """More work for the same commit."""

    def decide(self, calls: OpenCalls, now: Now) -> Decision[OpenCalls]:
        """Returns the calls without the lease. Raises ToolCallAlreadySettled, ToolCallNotReady, LeaseLost."""
        calls.check_client_may_answer(self.index)
        calls.check_lease(self.index, self.lease_id, now)
        free = msgspec.structs.replace(calls.call(self.index), lease=None)
        return calls.with_calls({self.index: free}, now, self.further)


class CallLimits(Struct, frozen=True):
    """The time that clients may take for a call, in seconds."""

    free: float
    """Limit while the call has no lease."""
    whole: float
    """Limit in total, leased or not."""

    @classmethod
    def of(cls, limits: Limits) -> "CallLimits":
        """Returns the configured limits."""
        free = limits.client_tool_timeout.total_seconds()
        return cls(free, max(limits.leased_tool_timeout.total_seconds(), free))

    def next_moment(self, calls: OpenCalls) -> float | None:
        """Returns the next time, by the loop's clock, at which a client's call is overdue or a lease ends; None without
        one.
        """
        moments = list[float]()
        for index, times in calls.times.items():
            is_held = calls.call(index).lease is not None
            moments.append(times.free_since + (0 if is_held else self.free))
            moments.append(times.ready_since + self.whole)
        return min(moments, default=None)

    def overdue(self, calls: OpenCalls, now: Now) -> dict[int, CallResult]:
        """Returns the results of the calls for which no client answered in time, by part index."""
        late = {}
        for index, times in calls.times.items():
            if times.ready_since + self.whole <= now.seconds:
                limit = self.whole
            elif times.free_since + self.free <= now.seconds:
                limit = self.free
            else:
                continue
            late[index] = CallResult(output=f"the client did not answer within {limit:g} seconds", is_error=True)
        return late

    def lapsed(self, calls: OpenCalls, now: Now) -> dict[int, ToolUse]:
        """Returns the calls whose leases have expired, without the leases, by part index."""
        ended = (index for index, times in calls.times.items() if times.free_since <= now.seconds)
        held = ((index, call) for index in ended if (call := calls.call(index)).lease is not None)
        return {index: msgspec.structs.replace(call, lease=None) for index, call in held}


def _with_lines(call: ToolUse, lines: Iterable[str]) -> ToolUse:
    for line in lines:
        call = with_log_line(call, line) or call
    return call
