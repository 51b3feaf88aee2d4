"""Calls of the client's tools: each waits until the client submits its result or the time limit passes."""

import asyncio
import contextlib
from datetime import timedelta

from turnwire.core.intake.attachments import load_file
from turnwire.core.intake.inputs import NewToolResult
from turnwire.core.intake.readable_files import ReadableFiles, too_large
from turnwire.core.settings import Limits
from turnwire.core.spans.tools import ClientToolSpans
from turnwire.core.tools.results import CallResult, StoredCalls
from turnwire.domain.errors import ToolCallAlreadySettled, ToolCallNotReady
from turnwire.ports.commit import PutFile
from turnwire.ports.telemetry.observer import CLIENT_TOOLS, Observer, ToolCallEnd
from turnwire.ports.telemetry.tracing import NO_TRACER, Tracer


async def client_result(new: NewToolResult, readable: ReadableFiles, limits: Limits) -> CallResult:
    """Reads the files of a submitted result and returns the result with their contents.

    Args:
        new: The result.
        readable: Which paths may be read.
        limits: Their `max_message_bytes` applies to output, metadata and files together.

    Raises:
        InvalidRequest: a file is invalid.
        MessageTooLarge: a file or the whole result is over its limit.
    """
    loaded, size = [], len(new.output.encode()) + len(new.metadata_json.encode())
    for index, file in enumerate(new.files):
        found = await load_file(file, f"files[{index}]", readable)
        loaded.append(found)
        size += len(found.content)
    if size > limits.max_message_bytes:
        raise too_large("output", size, limits.max_message_bytes)
    return CallResult(
        output=new.output,
        is_error=new.is_error,
        metadata_json=new.metadata_json,
        files=tuple(file.reference for file in loaded),
        contents=tuple(PutFile(file.reference.sha256, file.content) for file in loaded),
    )


class ClientCalls:
    """The calls of the client's tools in one message.

    `_ready_since` holds, by part index, the loop time from which the client may answer a call; a call that waits for a
    permission has no entry.
    """

    def __init__(
        self,
        calls: StoredCalls,
        client_tools: frozenset[str],
        timeout: timedelta,
        observer: Observer,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        """Args:
        calls: All calls of the message, including those of server tools.
        client_tools: Names of the tools that the client runs.
        timeout: How long the client may take for a call, counted from when it may answer.
        observer: Receives a report of each result.
        tracer: Starts the spans of the calls.
        """
        self._calls = calls
        self._client_tools = client_tools
        self._timeout_seconds = timeout.total_seconds()
        self._observer = observer
        self._ready_since: dict[int, float] = {}
        self._spans = ClientToolSpans(tracer)
        self._note_ready()

    async def submit(self, index: int, result: CallResult) -> int:
        """Stores the result for the call in one part. Safe to cancel: the result is still stored.

        Idempotent: submitting the same result again succeeds.

        Returns:
            The session's sequence after that; 0 when the call had this result before this object was created.

        Raises:
            ToolCallAlreadySettled: the call has another result, or is not a call of a client tool.
            ToolCallNotReady: the call waits for a permission, or is not stored yet.
            StorageError: the result could not be stored.
        """
        call, part_id = self._calls.call(index), self._calls.message.parts[index].part_id
        if not call.status.settled and call.name in self._client_tools:
            if not self._is_ready(index):
                missing = f"permission {call.permission_id!r}" if call.permission_id else "the answer to be stored"
                raise ToolCallNotReady(f"tool call {part_id!r} waits for {missing}", part_id)
            self._report(index, is_error=result.is_error)
            return (await asyncio.shield(self._calls.settle({index: result}))).sequence
        if not result.is_of(call):
            raise ToolCallAlreadySettled(
                f"tool call {part_id!r} is not the client's, or has another result already", part_id
            )
        storing = self._calls.last_commit(index)
        return 0 if storing is None else (await asyncio.shield(storing)).sequence

    async def wait_results(self) -> None:
        """Returns when every call has a result and no commit is pending. Safe to cancel.

        A call that the client does not answer in time gets an error result, which the model reads.
        """
        try:
            await self._wait_results()
        finally:
            self._spans.cancel()

    async def _wait_results(self) -> None:
        limit = self._timeout_seconds
        late = CallResult(output=f"the client did not answer within {limit:g} seconds", is_error=True)
        loop = asyncio.get_running_loop()
        while True:
            self._note_ready()
            waiting = self._open_indexes()
            ready = [index for index in waiting if self._is_ready(index)]
            self._note_spans(ready)
            if not waiting and self._calls.is_all_stored:
                return
            left = {index: self._ready_since[index] + limit - loop.time() for index in ready}
            if overdue := [index for index in ready if left[index] <= 0]:
                for index in overdue:
                    self._report(index, is_error=True)
                await asyncio.shield(self._calls.settle(dict.fromkeys(overdue, late)))
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left.values(), default=None)):
                    await self._calls.wait_changed()  # a result that could not be stored is missing again

    def _is_ready(self, index: int) -> bool:
        """Returns whether the client may answer an open call: it needs no permission, or the permission is durable.

        If the permission could still fail to be stored, its request could stay open behind a stored result.
        """
        return self._calls.is_stored(index) and not self._calls.call(index).permission_id

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
            else:
                self._ready_since.setdefault(index, now)
