"""The tool calls of one step: those of client tools wait for their results, those of the server's tools are run."""

import asyncio
from collections.abc import Mapping
from functools import partial

import msgspec

from turnwire.core.closing import Work, settle_calls
from turnwire.core.environment import Environment
from turnwire.core.part_stream import join_surrogates
from turnwire.core.toolbox import Toolbox
from turnwire.domain.events import ToolLog
from turnwire.domain.messages import Message, ToolStatus, ToolUse
from turnwire.ports.store import Committed, PutMessage

MAX_LOG_LINES = 200
"""Lines that are kept of one call; a tool may report its progress a thousand times a second."""

MAX_LOG_CHARS = 500
"""Characters of one line."""


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool answered."""

    output: str
    is_error: bool = False
    metadata_json: str = ""

    def apply_to(self, call: ToolUse) -> ToolUse:
        """Returns the call with this result, without the time."""
        return msgspec.structs.replace(
            call,
            status=ToolStatus.ERROR if self.is_error else ToolStatus.SUCCESS,
            output=None if self.is_error else self.output,
            error=self.output if self.is_error else None,
            metadata_json=self.metadata_json,
        )

    def is_of(self, call: ToolUse) -> bool:
        """Tells whether the call holds exactly this result."""
        return call.status.settled and self.apply_to(call) == call


class ToolCalls:
    """Settles the calls of one message.

    A result counts in memory first and is then stored, so the first one wins however many come at once. `_storing`
    holds the commits by part index; a failed one opens its call again. `_all_settled` wakes the turn, `_client_settled`
    ends the wait for the client. `_unsaved_logs` are the parts with lines that are not stored yet. Used on the event
    loop only.
    """

    def __init__(self, environment: Environment, toolbox: Toolbox, message: Message) -> None:
        """Takes the ended message that holds the calls; those that cannot run have their result already."""
        self._environment = environment
        self._toolbox = toolbox
        self._storing: dict[int, asyncio.Future[Committed]] = {}
        self._unsaved_logs: set[int] = set()
        self._all_settled = asyncio.Event()
        self._client_settled = asyncio.Event()
        self.message = message
        """The message with the results so far."""

    async def settle(self) -> None:
        """Returns when every call has its result. Cancelling it cancels the calls of the server's tools.

        A client that does not answer within the limit is answered for, with an error that the model reads.
        """
        slots = asyncio.Semaphore(self._environment.settings.limits.max_parallel_tool_calls)
        self._note_progress()
        tasks = [
            asyncio.create_task(self._run(part.index, call, slots), name=f"tool call {part.part_id}")
            for part, call in self.message.tool_calls()
            if not call.status.settled and self._toolbox.is_servers(call.name)
        ]
        tasks.append(asyncio.create_task(self._await_client(), name="client tool calls"))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                task.result()  # raises what the store raised
        await self._all_settled.wait()  # a client's result may still be on its way to the disk

    async def flush(self) -> None:
        """Makes durable what running tools have said so far. Safe to cancel."""
        if self._unsaved_logs:
            indexes, now = tuple(sorted(self._unsaved_logs)), self._environment.clock()
            self._unsaved_logs.clear()
            work = Work((PutMessage(self.message, indexes),))
            await asyncio.shield(self._environment.commit(self.message.session_id, work, now))

    async def submit(self, index: int, result: CallResult) -> int | None:
        """Stores a client's result for the call in one part. Safe to cancel: the result is stored all the same.

        Returns:
            The session's sequence after that; None when the call holds another result, or is not the client's.
        """
        call = self._call(index)
        if not call.status.settled:
            if self._toolbox.is_servers(call.name):
                return None
            return (await asyncio.shield(self._store({index: result}))).sequence
        if index not in self._storing or not result.is_of(call):
            return None
        return (await asyncio.shield(self._storing[index])).sequence

    async def stored(self) -> None:
        """Returns when no result is on its way to the disk. Safe to cancel."""
        while pending := [storing for storing in self._storing.values() if not storing.done()]:
            await asyncio.wait(pending)

    async def _await_client(self) -> None:
        limit = self._environment.settings.limits.client_tool_timeout.total_seconds()
        try:
            async with asyncio.timeout(limit):
                await self._client_settled.wait()
        except TimeoutError:
            late = CallResult(output=f"the client did not answer within {limit:g} seconds", is_error=True)
            while not self._client_settled.is_set():
                if waiting := [index for index, call in self._client_calls() if not call.status.settled]:
                    await asyncio.shield(self._store(dict.fromkeys(waiting, late)))
                await self.stored()
                self._note_progress()

    async def _run(self, index: int, call: ToolUse, slots: asyncio.Semaphore) -> None:
        """Runs one call of a server's tool."""
        async with slots:
            now = self._environment.clock()
            running = msgspec.structs.replace(call, status=ToolStatus.RUNNING, started_at=now)
            self.message, work = settle_calls(self.message, {index: running}, now)
            started = self._environment.commit(self.message.session_id, work, now)
            started.add_done_callback(_ignore_failure)  # the result that follows says it all, or fails as well
            outcome = await self._environment.tools.call(call.name, call.input_json or "{}", partial(self._log, index))
            limit = self._environment.settings.limits.max_tool_output_bytes
            result = CallResult(
                output=bounded(join_surrogates(outcome.output), limit),
                is_error=outcome.is_error,
                metadata_json=join_surrogates(outcome.metadata_json),
            )
            await asyncio.shield(self._store({index: result}))

    def _log(self, index: int, line: str) -> None:
        """Keeps a line that a tool says, and tells watchers; lines beyond the limit are dropped."""
        call = self._call(index)
        number = len(call.logs)
        if call.status.settled or number >= MAX_LOG_LINES:
            return
        text = join_surrogates(line[:MAX_LOG_CHARS]) if number < MAX_LOG_LINES - 1 else "further lines are not kept"
        logged = msgspec.structs.replace(call, logs=(*call.logs, text))
        self.message, _ = settle_calls(self.message, {index: logged}, self.message.updated_at)
        self._unsaved_logs.add(index)
        self._environment.publish(self.message.session_id, ToolLog(self.message.message_id, index, number, text))

    def _call(self, index: int) -> ToolUse:
        call = self.message.parts[index].content
        if not isinstance(call, ToolUse):
            raise TypeError(f"part {index} of {self.message.message_id} is no tool call")
        return call

    def _client_calls(self) -> list[tuple[int, ToolUse]]:
        calls = self.message.tool_calls()
        return [(part.index, call) for part, call in calls if not self._toolbox.is_servers(call.name)]

    def _store(self, results: Mapping[int, CallResult]) -> asyncio.Future[Committed]:
        """Stores results by the index of their part, all in one commit."""
        now = self._environment.clock()
        calls = {index: self._call(index) for index in results}
        settled = {
            index: msgspec.structs.replace(results[index].apply_to(call), finished_at=now)
            for index, call in calls.items()
        }
        self.message, work = settle_calls(self.message, settled, now)
        storing = self._environment.commit(self.message.session_id, work, now)
        self._storing.update(dict.fromkeys(calls, storing))
        self._unsaved_logs -= calls.keys()
        storing.add_done_callback(partial(self._stored, calls))
        return storing

    def _stored(self, calls: Mapping[int, ToolUse], storing: asyncio.Future[Committed]) -> None:
        if storing.cancelled() or storing.exception() is not None:
            for index in calls:
                del self._storing[index]
            self.message, _ = settle_calls(self.message, calls, self._environment.clock())
        self._note_progress()

    def _note_progress(self) -> None:
        if any(not storing.done() for storing in self._storing.values()):
            return
        if all(call.status.settled for _, call in self.message.tool_calls()):
            self._all_settled.set()
        if all(call.status.settled for _, call in self._client_calls()):
            self._client_settled.set()


def bounded(text: str, max_bytes: int) -> str:
    """Returns the text, cut between two characters and with a note when it is longer than the limit."""
    if len(text) * 4 <= max_bytes:
        return text
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    kept = data[:max_bytes].decode("utf-8", "ignore")
    return f"{kept}\n[cut: the output has {len(data)} bytes, these are the first {max_bytes}]"


def _ignore_failure(storing: asyncio.Future[Committed]) -> None:
    if not storing.cancelled():
        storing.exception()
