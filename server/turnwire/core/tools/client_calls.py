"""Calls of the client's tools: each waits until the client submits its result or the time limit passes.

Clients may claim calls. While a lease lasts, only its holder's result counts, and the time limit waits.
"""

import asyncio
import contextlib
from asyncio import Future
from collections.abc import Iterable
from datetime import datetime

from turnwire.core.environment import Environment
from turnwire.core.intake.attachments import load_file
from turnwire.core.intake.inputs import NewToolResult
from turnwire.core.intake.readable_files import ReadableFiles
from turnwire.core.spans.tools import ClientToolSpans
from turnwire.core.tools.leasing.call_leases import CallLeases
from turnwire.core.tools.results import CallResult, StoredCalls
from turnwire.core.work import Work
from turnwire.domain.conversation.messages import Lease
from turnwire.domain.errors import MessageTooLarge, ToolCallAlreadySettled, ToolCallNotReady
from turnwire.domain.limits import Limits
from turnwire.ports.commit import Committed
from turnwire.ports.telemetry.observer import CLIENT_TOOLS, ToolCallEnd


async def client_result(new: NewToolResult, readable: ReadableFiles, limits: Limits, now: datetime) -> CallResult:
    """Reads the files of a submitted result and returns the result with what stores them.

    Args:
        new: The result.
        readable: Which paths may be read, and the uploads.
        limits: Their `max_message_bytes` applies to output, metadata and files together.
        now: When the result arrived.

    Raises:
        InvalidRequest: a file is invalid.
        UploadNotFound: there is no upload that a file names.
        MessageTooLarge: a file or the whole result is over its limit.
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


class ClientCalls:
    """The calls of the client's tools in one message.

    `_ready_since` holds, by part index, the loop time from which the client may answer a call; a call that waits for a
    permission has no entry. `_free_since` holds the loop time from which nobody has held such a call.
    """

    def __init__(self, environment: Environment, calls: StoredCalls, client_tools: frozenset[str]) -> None:
        """Args:
        environment: Ports and settings; its limits say how long clients may take for a call.
        calls: All calls of the message, including those of server tools.
        client_tools: Names of the tools that the client runs.
        """
        limits = environment.settings.limits
        self._calls = calls
        self._client_tools = client_tools
        self._free_seconds = limits.client_tool_timeout.total_seconds()
        self._whole_seconds = max(limits.leased_tool_timeout.total_seconds(), self._free_seconds)
        self._observer = environment.observer
        self._leases = CallLeases(calls, environment.clock)
        self._ready_since: dict[int, float] = {}
        self._free_since: dict[int, float] = {}
        self._spans = ClientToolSpans(environment.tracer)
        self._note_ready()

    async def submit(self, index: int, result: CallResult, lease_id: str = "") -> int:
        """Stores the result for the call in one part. Safe to cancel: the result is still stored.

        Idempotent: submitting the same result again succeeds, whatever the lease.

        Returns:
            The session's sequence after that; 0 when the call had this result before this object was created.

        Raises:
            ToolCallAlreadySettled: the call has another result, or is not a call of a client tool.
            ToolCallNotReady: the call waits for a permission, or is not stored yet.
            LeaseHeld: no lease is given, and somebody holds the call.
            LeaseLost: the lease has ended.
            MemoryShort: there is no room for the result beside those of other calls.
            StorageError: the result could not be stored.
        """
        call = self._calls.call(index)
        if call.status.settled and result.is_of(call):
            storing = self._calls.last_commit(index)
            return 0 if storing is None else (await asyncio.shield(storing)).sequence
        self._check_open(index)
        self._leases.check(index, lease_id)
        content_bytes = result.content_bytes
        if not self._calls.has_room(result.size_bytes + content_bytes):
            raise self._calls.full()
        self._report(index, is_error=result.is_error)
        storing = self._calls.settle({index: result})
        storing.add_done_callback(lambda _: self._calls.has_room(-content_bytes))
        return (await asyncio.shield(storing)).sequence

    def claim(self, index: int, lease: Lease, further: Work) -> "Future[Committed]":
        """Stores who runs the call in one part, with further work. Shield the commit when awaiting it.

        Raises:
            ToolCallAlreadySettled, ToolCallNotReady: see `submit`.
            LeaseHeld: somebody holds the call.
        """
        self._check_open(index)
        return self._leases.give(index, lease, further)

    def renew(
        self, index: int, lease_id: str, expires_at: datetime, lines: Iterable[str], further: Work
    ) -> "Future[Committed]":
        """Stores when a lease ends, and lines of the log; otherwise as `claim`. Raises LeaseLost, not LeaseHeld."""
        self._check_open(index)
        return self._leases.renew(index, lease_id, expires_at, lines, further)

    def release(self, index: int, lease_id: str, further: Work) -> "Future[Committed]":
        """Stores that nobody runs the call any more; otherwise as `renew`."""
        self._check_open(index)
        return self._leases.release(index, lease_id, further)

    def check_lease(self, index: int, lease_id: str) -> None:
        """Raises ToolCallAlreadySettled or LeaseLost unless a lease of the call in one part lasts."""
        self._check_open(index)
        self._leases.check(index, lease_id)

    async def wait_results(self) -> None:
        """Returns when every call has a result and no commit is pending. Safe to cancel.

        A call that the client does not answer in time gets an error result, which the model reads.
        """
        try:
            await self._wait_results()
        finally:
            self._spans.cancel()

    async def _wait_results(self) -> None:
        while True:
            self._note_ready()
            waiting = self._open_indexes()
            ready = [index for index in waiting if self._is_ready(index)]
            self._note_spans(ready)
            if not waiting and self._calls.is_all_stored:
                return
            if overdue := {index: late for index in ready if (late := self._lateness(index)) is not None}:
                for index in overdue:
                    self._report(index, is_error=True)
                await asyncio.shield(self._calls.settle(overdue))
                continue
            self._leases.remove_lapsed(ready)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(map(self._seconds_left, ready), default=None)):
                    await self._calls.wait_changed()  # a result that could not be stored is missing again

    def _lateness(self, index: int) -> CallResult | None:
        """Returns the result of a call for which nobody answered in time; None while there is time."""
        now = asyncio.get_running_loop().time()
        if self._ready_since[index] + self._whole_seconds <= now:
            limit = self._whole_seconds
        elif index in self._free_since and self._free_since[index] + self._free_seconds <= now:
            limit = self._free_seconds
        else:
            return None
        return CallResult(output=f"the client did not answer within {limit:g} seconds", is_error=True)

    def _seconds_left(self, index: int) -> float:
        """Returns the time until the call is overdue, or its lease ends."""
        now = asyncio.get_running_loop().time()
        free_since = self._free_since.get(index)
        left = self._leases.seconds_left(index) if free_since is None else free_since + self._free_seconds - now
        return min(left, self._ready_since[index] + self._whole_seconds - now)

    def _check_open(self, index: int) -> None:
        """Raises ToolCallAlreadySettled or ToolCallNotReady unless the client may answer the call."""
        call, part_id = self._calls.call(index), self._calls.message.parts[index].part_id
        if call.status.settled or call.name not in self._client_tools:
            text = f"tool call {part_id!r} is not the client's, or has another result already"
            raise ToolCallAlreadySettled(text, part_id)
        if not self._is_ready(index):
            missing = f"permission {call.permission_id!r}" if call.permission_id else "the answer to be stored"
            raise ToolCallNotReady(f"tool call {part_id!r} waits for {missing}", part_id)

    def _is_ready(self, index: int) -> bool:
        """Returns whether the client may answer an open call: it needs no permission, or the permission is durable.

        If the permission could still fail to be stored, its request could stay open behind a stored result.
        """
        is_stored = self._calls.is_stored(index) or self._leases.is_changing(index)
        return is_stored and not self._calls.call(index).permission_id

    def _open_indexes(self) -> list[int]:
        calls = self._calls.message.tool_calls()
        return [part.index for part, call in calls if call.name in self._client_tools and not call.status.settled]

    def _report(self, index: int, *, is_error: bool) -> None:
        now = asyncio.get_running_loop().time()
        seconds = now - self._ready_since.get(index, now)
        self._observer.tool_call_ended(ToolCallEnd(source=CLIENT_TOOLS, is_error=is_error, seconds=seconds))

    def _note_spans(self, ready: list[int]) -> None:
        for index in self._spans.waiting():
            if self._calls.call(index).status.settled:
                self._spans.finish(index, self._calls.call(index))
        for index in ready:
            self._spans.begin(index, self._calls.call(index))

    def _note_ready(self) -> None:
        now = asyncio.get_running_loop().time()
        for index in self._open_indexes():
            if self._calls.call(index).permission_id:
                self._ready_since.pop(index, None)
                self._free_since.pop(index, None)
                continue
            self._ready_since.setdefault(index, now)
            if self._leases.current(index) is None:
                self._free_since.setdefault(index, now)
            else:
                self._free_since.pop(index, None)
