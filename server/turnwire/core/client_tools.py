"""The tool calls of one step: those of declared client tools wait for their results, the others fail at once."""

import asyncio
from collections.abc import Mapping
from functools import partial

import msgspec

from turnwire.core.closing import settle_calls
from turnwire.core.environment import Environment
from turnwire.domain.messages import Message, ToolStatus, ToolUse
from turnwire.domain.sessions import Turn
from turnwire.ports.store import Committed


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


class ClientToolCalls:
    """Settles the calls of one message.

    A result counts in memory first and is then stored, so the first one wins however many come at once. `_storing`
    holds the commits by part index; a failed one opens its call again. `_all_settled` wakes the turn. Used on the event
    loop only.
    """

    def __init__(self, environment: Environment, turn: Turn, message: Message) -> None:
        """Takes the ended message that holds the calls."""
        self._environment = environment
        self._turn = turn
        self._storing: dict[int, asyncio.Future[Committed]] = {}
        self._all_settled = asyncio.Event()
        self.message = message
        """The message with the results so far."""

    async def settle(self) -> None:
        """Returns when every call has its result. Calls that nobody can answer get an error result at once.

        A client that does not answer within the limit is answered for, with an error that the model reads.
        """
        declared = {tool.name for tool in self._turn.tools}
        problems = {part.index: _problem(call, declared) for part, call in self.message.tool_calls()}
        await self._answer({index: problem for index, problem in problems.items() if problem})
        limit = self._environment.settings.limits.client_tool_timeout.total_seconds()
        try:
            async with asyncio.timeout(limit):
                await self._all_settled.wait()
        except TimeoutError:
            late = f"the client did not answer within {limit:g} seconds"
            while not self._all_settled.is_set():
                await self._answer({part.index: late for part, _ in self.message.tool_calls()})
                await self.stored()
                self._note_progress()

    async def stored(self) -> None:
        """Returns when no result is on its way to the disk. Safe to cancel."""
        while pending := [storing for storing in self._storing.values() if not storing.done()]:
            await asyncio.wait(pending)

    async def submit(self, index: int, result: CallResult) -> int | None:
        """Stores a result for the call in one part. Safe to cancel: the result is stored all the same.

        Returns:
            The session's sequence after that; None when the call holds another result.
        """
        call = self.message.parts[index].content
        if not isinstance(call, ToolUse):
            raise TypeError(f"part {index} of {self.message.message_id} is no tool call")
        if not call.status.settled:
            return (await asyncio.shield(self._store({index: call}, {index: result}))).sequence
        if index not in self._storing or not result.is_of(call):
            return None
        return (await asyncio.shield(self._storing[index])).sequence

    async def _answer(self, errors: Mapping[int, str]) -> None:
        """Stores errors of our own for calls, by part index, but for those that have a result by now."""
        calls = {
            part.index: call
            for part, call in self.message.tool_calls()
            if part.index in errors and not call.status.settled
        }
        if calls:
            results = {index: CallResult(output=errors[index], is_error=True) for index in calls}
            await asyncio.shield(self._store(calls, results))
        self._note_progress()

    def _store(self, calls: Mapping[int, ToolUse], results: Mapping[int, CallResult]) -> asyncio.Future[Committed]:
        now = self._environment.clock()
        settled = {
            index: msgspec.structs.replace(results[index].apply_to(call), finished_at=now)
            for index, call in calls.items()
        }
        self.message, work = settle_calls(self.message, settled, now)
        storing = self._environment.commit(self.message.session_id, work, now)
        self._storing.update(dict.fromkeys(calls, storing))
        storing.add_done_callback(partial(self._stored, calls))
        return storing

    def _stored(self, calls: Mapping[int, ToolUse], storing: asyncio.Future[Committed]) -> None:
        if storing.cancelled() or storing.exception() is not None:
            for index in calls:
                del self._storing[index]
            self.message, _ = settle_calls(self.message, calls, self._environment.clock())
        self._note_progress()

    def _note_progress(self) -> None:
        calls = self.message.tool_calls()
        if all(call.status.settled for _, call in calls) and all(s.done() for s in self._storing.values()):
            self._all_settled.set()


def _problem(call: ToolUse, declared: set[str]) -> str:
    """Returns why a call cannot be handed to the client; "" when it can."""
    if call.name not in declared:
        return f"there is no tool named {call.name!r}"
    try:
        msgspec.json.decode(call.input_json or "{}")
    except (msgspec.DecodeError, RecursionError) as error:
        return f"the arguments are not valid JSON: {error}"
    return ""
