"""Tool results from clients: delivers them to the waiting turn, or folds them into calls of ended turns."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import datetime

from turnwire.core.ending import settle_calls
from turnwire.core.environment import Environment
from turnwire.core.intake.readable_files import readable_files
from turnwire.core.intake.requests import NewToolResult
from turnwire.core.tools.client_calls import client_result
from turnwire.core.tools.folded_results import fold_results, name_calls
from turnwire.core.tools.open_calls import CallsClosed
from turnwire.core.tools.results import CallResult
from turnwire.core.turns.registry import Turns
from turnwire.core.turns.schedule import AppendMessage, Changed
from turnwire.core.turns.session import SessionTurns
from turnwire.domain.conversation.messages import Message, Part, ToolResult
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import InvalidRequest, LeaseLost, ToolCallAlreadySettled
from turnwire.domain.principal import Principal
from turnwire.ports.commit import Work

StoreFolded = Callable[[SessionTurns, Message, Work, int], Awaitable[int]]
"""Stores a message with results, and the work for the calls that they answer; returns the session's head before it.
Raises `Changed` if results were stored since the given version."""


class ToolResults:
    """Accepts tool results. Every method may raise SessionNotFound and StorageError."""

    def __init__(self, environment: Environment, turns: Turns) -> None:
        """Takes the ports and the turns."""
        self._environment = environment
        self._turns = turns

    async def submit(self, principal: Principal, session_id: str, part_id: str, new: NewToolResult) -> tuple[Part, int]:
        """Stores the result of a client tool call; the turn continues when all calls of its step have one.

        An open call of an appended message gets its result too, and no turn continues. Idempotent: submitting the same
        result again succeeds. Safe to cancel: a commit that has begun completes.

        Returns:
            The part of the call, and a sequence of the session after the result was stored.

        Raises:
            ToolCallNotFound: the session has no such call.
            ToolCallAlreadySettled: the call has another result, or its turn has ended.
            ToolCallNotReady: the call is still being written, or waits for a permission.
            LeaseHeld: no lease is given, and another client holds the call.
            LeaseLost: the lease has ended.
            UploadNotFound: a file names an upload that does not exist, or that another request has used.
            InvalidRequest: a file is invalid, or the result is too large.
        """
        session = await self._environment.store.of(principal.tenant).session(session_id)
        environment = self._environment
        readable = readable_files(environment, session, used_uploads_too=True)
        result = await client_result(new, readable, environment.settings.limits, environment.clock())
        part, sequence = await self.deliver(session, part_id, result, new.lease_id)
        return part, sequence or session.head_sequence

    async def deliver(self, session: Session, part_id: str, result: CallResult, lease_id: str) -> tuple[Part, int]:
        """Stores a result; see `submit`.

        Returns:
            The part of the call, and the session's sequence after the result was stored; 0 when that is unknown
            because an earlier request stored it.
        """
        while (waiting := self._turns.waiting_call(session.session_id, part_id)) is not None:
            calls, index = waiting
            with contextlib.suppress(CallsClosed):
                sequence = await calls.submit(index, result, lease_id)
                return calls.part(index), sequence
        return await self._settle_stored(session, part_id, result, lease_id)

    async def _settle_stored(
        self, session: Session, part_id: str, result: CallResult, lease_id: str
    ) -> tuple[Part, int]:
        """Stores the result of an open call of an appended message; compares it with the result of a settled one."""
        environment, session_id = self._environment, session.session_id
        with self._turns.held(session.tenant, session_id) as owner:
            while True:
                version = owner.schedule.results_version
                message = await environment.store.of(session.tenant).message_of_call(session_id, part_id)
                part, call = next((part, call) for part, call in message.tool_calls() if part.part_id == part_id)
                if result.is_of(call):
                    return part, 0
                if message.turn_id or call.status.settled:
                    text = f"tool call {part_id!r} has another result already, or its turn ended"
                    raise ToolCallAlreadySettled(text, part_id)
                if lease_id:
                    raise LeaseLost(part_id, lease_id)
                now = environment.clock()
                message, settling = settle_calls(message, {part.index: result.apply_to(call, now)}, now)
                command = AppendMessage(Work(result.contents) + settling, version)
                with contextlib.suppress(Changed):
                    done = await asyncio.shield(owner.ask(command))
                    return message.parts[part.index], done.before_sequence + len(settling.events)

    async def fold(self, principal: Principal, message: Message, now: datetime, store: StoreFolded) -> int:
        """Folds a TOOL_RESULT message into the calls that it answers, and stores it together with them.

        Repeats that when others stored results meanwhile. Returns the result of `store`.

        Raises:
            ToolCallNotFound: a result names a call that the conversation does not have.
            InvalidRequest: a result is for a call that the running turn waits for, or two different calls.
        """
        results = [part.content for part in message.parts if isinstance(part.content, ToolResult)]
        part_ids = frozenset(result.tool_call_id for result in results if result.tool_call_id)
        call_ids = frozenset(result.call_id for result in results if result.call_id and not result.tool_call_id)
        reads, session_id = self._environment.store.of(principal.tenant), message.session_id
        with self._turns.held(principal.tenant, session_id) as owner:
            while True:
                version, changing = owner.schedule.results_version, self._refuse_awaited(message)
                sizes = await reads.caller_sizes(session_id, part_ids, call_ids)
                async with self._environment.reads.to_read(principal.tenant, sum(sizes.values())):
                    callers = await reads.callers(session_id, sizes) if sizes else ()
                    ended = [stored for stored in callers if stored.turn_id not in changing]
                    folded, settling = fold_results(name_calls(message, callers), ended, now)
                    with contextlib.suppress(Changed):
                        return await store(owner, folded, settling, version)

    def _refuse_awaited(self, message: Message) -> frozenset[str]:
        """Returns the ids of turns whose messages may still change; no result is folded into these messages.

        Raises:
            InvalidRequest: a result is for a call that the running turn waits for.
        """
        live = self._turns.live(message.session_id)
        if live is None:
            return frozenset()
        awaited = live.awaited_call_ids
        for part in message.parts:
            if isinstance(part.content, ToolResult) and awaited & {part.content.tool_call_id, part.content.call_id}:
                name = "tool_call_id" if part.content.tool_call_id else "call_id"
                field = f"parts[{part.index}].tool_result.{name}"
                raise InvalidRequest.of(field, "the running turn waits for this result: use SubmitToolResult")
        return frozenset((live.turn.turn_id,))
