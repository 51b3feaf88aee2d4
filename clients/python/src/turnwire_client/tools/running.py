"""Runs the calls of tools that a watch shows, each by one client."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Self

import grpc
from google.protobuf.duration_pb2 import Duration

from opencode.message.content_pb2 import SessionMessage
from opencode.tool.tool_pb2 import (
    ClaimToolCallRequest,
    ReleaseToolCallRequest,
    RenewToolCallRequest,
    SubmitToolResultRequest,
    ToolCallState,
)
from opencode.tool.tool_pb2_grpc import ToolServiceStub
from turnwire_client.calls import Caller
from turnwire_client.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, TurnwireError
from turnwire_client.tools.functions import Result, Tool
from turnwire_client.watching import Update

MAX_RUNNING = 16
"""Calls of one watch that run at once; the others wait."""

LEASE_SECONDS = 60
"""Duration of a claim, renewed after half of it. When this client crashes, others can run the call after this time."""

SUBMIT_SECONDS = 3_600.0
"""Maximum time for which a result is sent again while no server answers."""

RELEASE_SECONDS = 2.0

_log = logging.getLogger("turnwire_client")


class ToolRunner:
    """Runs each call of its tools that is ready and that nobody else has claimed. Owns a task for each.

    A call is claimed before it runs, so that of several clients one runs it. A call that is still open after a lost
    connection or a restart of the server is not run twice here.
    """

    def __init__(self, channel: grpc.aio.Channel, caller: Caller, session_id: str, tools: Iterable[Tool], holder: str):
        """Args:
        channel: An open channel; its owner closes it.
        caller: Makes the calls.
        session_id: The session that is watched.
        tools: What it can run.
        holder: The client's name for itself, shown to people.
        """
        self._service = ToolServiceStub(channel)
        self._caller = caller
        self._session_id = session_id
        self._tools: Mapping[str, Tool] = {tool.name: tool for tool in tools}
        self._holder = holder
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Tasks of the calls that run or wait for their turn, by the id of the call."""
        self._submitting: set[str] = set()
        """Calls whose result is on its way: an update may tell it before the answer to the request comes."""
        self._free = asyncio.Semaphore(MAX_RUNNING)

    async def __aenter__(self) -> Self:
        """Returns itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancels what runs and waits for its end."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def notice(self, update: Update) -> None:
        """Begins the calls that an update shows as ready, and ends those that somebody else has ended."""
        for call in _calls(update):
            task = self._tasks.get(call.id)
            if call.status != "pending":
                if task is not None and call.id not in self._submitting:
                    task.cancel()
                    del self._tasks[call.id]
            elif task is None and call.name in self._tools and _is_ready(call):
                self._tasks[call.id] = asyncio.create_task(self._run(call.id, call.name, call.input_json))

    async def _run(self, call_id: str, tool_name: str, input_json: str) -> None:
        async with self._free:
            try:
                claim = ClaimToolCallRequest(
                    session_id=self._session_id, tool_call_id=call_id, holder=self._holder, duration=_lease()
                )
                claimed = await self._caller.call(self._service.ClaimToolCall, claim)
                await self._run_claimed(call_id, claimed.lease.lease_id, self._tools[tool_name], input_json)
            except (FailedPreconditionError, NotFoundError) as problem:
                # Another client has it, or it is over. When the lease of the other ends, an update tells it.
                _log.debug("tool call %s of %s: %s", call_id, tool_name, problem.reason)
            except TurnwireError as problem:
                _log.warning("tool call %s of %s was given up: %s", call_id, tool_name, problem)
            finally:
                self._submitting.discard(call_id)
                if self._tasks.get(call_id) is asyncio.current_task():
                    del self._tasks[call_id]

    async def _run_claimed(self, call_id: str, lease_id: str, tool: Tool, input_json: str) -> None:
        renewing = asyncio.create_task(self._renew(call_id, lease_id))
        try:
            result = await tool.run(input_json)
            self._submitting.add(call_id)
            await self._submit(call_id, lease_id, result)
        except asyncio.CancelledError:
            await self._release(call_id, lease_id)
            raise
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def _submit(self, call_id: str, lease_id: str, result: Result) -> None:
        request = SubmitToolResultRequest(
            session_id=self._session_id, tool_call_id=call_id, is_error=result.is_error, lease_id=lease_id
        )
        if result.is_json:
            request.output_json = result.output
        else:
            request.output = result.output
        try:
            await self._caller.call(self._service.SubmitToolResult, request, retry_seconds=SUBMIT_SECONDS)
        except InvalidArgumentError as problem:  # such as an output that is too large: the model reads why
            if result.is_error:
                raise
            await self._submit(call_id, lease_id, Result(f"the output was refused: {problem.message}", is_error=True))

    async def _renew(self, call_id: str, lease_id: str) -> None:
        """Renews a lease until it is cancelled, or lost. Then the result is taken only if nobody else has the call."""
        while True:
            await asyncio.sleep(LEASE_SECONDS / 2)
            request = RenewToolCallRequest(
                session_id=self._session_id, tool_call_id=call_id, lease_id=lease_id, duration=_lease()
            )
            try:
                await self._caller.call(self._service.RenewToolCall, request)
            except (FailedPreconditionError, NotFoundError):
                return
            except TurnwireError as problem:
                _log.warning("the lease of tool call %s was not renewed: %s", call_id, problem)

    async def _release(self, call_id: str, lease_id: str) -> None:
        """Lets others run the call at once; without an answer they can when the lease ends."""
        request = ReleaseToolCallRequest(session_id=self._session_id, tool_call_id=call_id, lease_id=lease_id)
        with suppress(TurnwireError):
            await self._caller.call(
                self._service.ReleaseToolCall, request, timeout_seconds=RELEASE_SECONDS, retry_seconds=0
            )


def _lease() -> Duration:
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=LEASE_SECONDS))
    return duration


def _is_ready(call: ToolCallState) -> bool:
    """Returns whether a client may run a pending call: it is complete, permitted, and nobody has claimed it."""
    return call.HasField("started_at") and not call.permission_id and not call.HasField("lease")


def _calls(update: Update) -> Iterator[ToolCallState]:
    """Yields the calls that an update shows."""
    match update.kind:
        case "tool_call_updated":
            assert update.event is not None
            yield update.event.tool_call_updated.state
        case "message_snapshot":
            assert update.event is not None
            yield from _calls_of(update.event.message_snapshot.message)
        case "read":
            for message in update.conversation.messages:
                yield from _calls_of(message)


def _calls_of(message: SessionMessage) -> Iterator[ToolCallState]:
    for part in message.parts:
        if part.WhichOneof("content") == "tool_use":
            yield part.tool_use
