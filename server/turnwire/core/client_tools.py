"""The tool calls of one step: those of declared client tools wait for their results, the others fail at once."""

import asyncio

import msgspec

from turnwire.core.closing import settle_call
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
        return self.apply_to(call) == call


class ClientToolCalls:
    """Settles the calls of one message.

    `_all_settled` wakes the turn. Results are taken one at a time and in memory first, so the first one wins however
    many come at once; used on the event loop only.
    """

    def __init__(self, environment: Environment, turn: Turn, message: Message) -> None:
        """Takes the ended message that holds the calls."""
        self._environment = environment
        self._turn = turn
        self._all_settled = asyncio.Event()
        self.message = message
        """The message with the results so far."""

    async def settle(self) -> None:
        """Returns when every call has its result. Calls that nobody can answer get an error result at once.

        A client that does not answer within the limit is answered for, with an error that the model reads.
        """
        declared = {tool.name for tool in self._turn.tools}
        for part, call in self.message.tool_calls():
            problem = _problem(call, declared)
            if problem and not call.status.settled:
                await self._store(part.index, call, CallResult(output=problem, is_error=True))
        self._note_progress()
        limit = self._environment.settings.limits.client_tool_timeout.total_seconds()
        try:
            async with asyncio.timeout(limit):
                await self._all_settled.wait()
        except TimeoutError:
            late = CallResult(output=f"the client did not answer within {limit:g} seconds", is_error=True)
            for part, call in self.message.tool_calls():
                if not call.status.settled:
                    await self._store(part.index, call, late)

    async def submit(self, index: int, result: CallResult) -> int:
        """Stores the result of the call in one part, which must wait for it.

        Returns:
            The session's sequence after that.
        """
        call = self.message.parts[index].content
        if not isinstance(call, ToolUse) or call.status.settled:
            raise ValueError(f"part {index} of {self.message.message_id} waits for no result")
        committed = await self._store(index, call, result)
        self._note_progress()
        return committed.sequence

    async def _store(self, index: int, call: ToolUse, result: CallResult) -> Committed:
        before = self.message
        now = self._environment.clock()
        settled = msgspec.structs.replace(result.apply_to(call), finished_at=now)
        self.message, work = settle_call(before, index, settled, now)
        try:
            return await self._environment.commit(before.session_id, work, now)
        except Exception:
            self.message, _ = settle_call(self.message, index, call, now)
            raise

    def _note_progress(self) -> None:
        if all(call.status.settled for _, call in self.message.tool_calls()):
            self._all_settled.set()


def _problem(call: ToolUse, declared: set[str]) -> str:
    """Returns why a call cannot be handed to the client; "" when it can."""
    if call.name not in declared:
        return f"there is no tool named {call.name!r}"
    try:
        msgspec.json.decode(call.input_json or "{}")
    except msgspec.DecodeError as error:
        return f"the arguments are not valid JSON: {error}"
    return ""
