"""The tool calls of one step: calls of client tools wait for their results, calls of the server's tools run here.

A call that needs a permission waits for it first. A restart loses nothing: waiting calls are stored with the message,
from which this object can be rebuilt.
"""

import asyncio
import contextlib
import itertools
import sys
from asyncio import Future
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct

from turnwire.core.actor import LARGE_BYTES, Command, Decision, Done, Now, Owner, carry_out
from turnwire.core.environment import Environment
from turnwire.core.spans import client_tool_span, end_client_tool
from turnwire.core.tools.client_calls import CallLimits, ClaimCall, ReleaseLease, RenewLease, SubmitResult
from turnwire.core.tools.open_calls import CallPhase, OpenCalls, message_with_logs
from turnwire.core.tools.permission_requests import AnswerPermission
from turnwire.core.tools.questions import (
    EXPIRED,
    AnswerQuestion,
    AskQuestions,
    CloseQuestion,
    ResumeCall,
    ToolQuestions,
    answered,
)
from turnwire.core.tools.results import CallResult
from turnwire.core.tools.server_calls import EndCall, KeepLogs, ServerCalls, StartCall
from turnwire.domain.conversation.limits import MAX_LOG_CHARACTERS, MAX_LOG_LINES
from turnwire.domain.conversation.messages import Message, Part, ToolStatus
from turnwire.domain.conversation.questions import Question
from turnwire.domain.conversation.turns import Turn
from turnwire.ports.commit import Work
from turnwire.ports.telemetry.observer import CLIENT_TOOLS, ToolCallEnd
from turnwire.ports.telemetry.tracing import Span


class PassTime(Struct, frozen=True):
    """The passing of time: calls that no client answers fail, leases end, questions expire."""

    limits: CallLimits

    def decide(self, calls: OpenCalls, now: Now) -> Decision[OpenCalls]:
        """Returns the calls at this moment. Changes nothing when nothing is due."""
        late = self.limits.overdue(calls, now)
        work = Work()
        if late:
            calls, work = _parts(calls.with_results(late, now))
        if lapsed := self.limits.lapsed(calls, now):
            calls, more = _parts(calls.with_calls(lapsed, now))
            work += more
        if expired := [one for one in calls.questions.values() if one.is_open and one.ends_at <= now.seconds]:
            calls, more = _parts(answered(calls, expired, EXPIRED))
            work += more
        return Decision(calls, work)


_P = CallPhase

TRANSITIONS: dict[CallPhase, dict[type, frozenset[CallPhase]]] = {
    _P.ASKING: {AnswerPermission: frozenset({_P.FREE, _P.DUE, _P.SETTLED})},
    _P.FREE: {
        ClaimCall: frozenset({_P.HELD}),
        SubmitResult: frozenset({_P.SETTLED}),
        PassTime: frozenset({_P.SETTLED, _P.FREE}),
    },
    _P.HELD: {
        RenewLease: frozenset({_P.HELD}),
        ReleaseLease: frozenset({_P.FREE}),
        SubmitResult: frozenset({_P.SETTLED}),
        PassTime: frozenset({_P.SETTLED}),
    },
    _P.DUE: {StartCall: frozenset({_P.RUNNING}), EndCall: frozenset({_P.SETTLED})},
    _P.RUNNING: {
        AskQuestions: frozenset({_P.RUNNING, _P.PAUSED}),
        AnswerQuestion: frozenset({_P.RUNNING}),
        CloseQuestion: frozenset({_P.RUNNING}),
        KeepLogs: frozenset({_P.RUNNING}),
        PassTime: frozenset({_P.RUNNING}),
        EndCall: frozenset({_P.SETTLED}),
    },
    _P.PAUSED: {
        AnswerQuestion: frozenset({_P.PAUSED}),
        CloseQuestion: frozenset({_P.PAUSED}),
        PassTime: frozenset({_P.PAUSED}),
        ResumeCall: frozenset({_P.RUNNING}),
        EndCall: frozenset({_P.SETTLED}),
    },
    _P.SETTLED: {},
}
"""The phase of a call after each command that changes it. A call that is HELD becomes FREE without a command when its
lease ends; PassTime reports it. A test compares the table with the decisions; docs/internals/phases.md shows it."""


def count_requests(environment: Environment, tenant: str, before: OpenCalls | None, after: OpenCalls | None) -> None:
    """Updates the counts of a tenant's requests by the calls that wait in one session, before and after a change."""
    if before is after:
        return
    for calls, sign in ((before, -1), (after, 1)):
        if calls is not None:
            environment.permissions[tenant] += sign * len(calls.permissions)
            environment.open_questions[tenant] += sign * len(calls.open_questions)
    for count in (environment.permissions, environment.open_questions):
        if not count[tenant]:
            del count[tenant]


def _parts(decision: Decision[OpenCalls]) -> tuple[OpenCalls, Work]:
    return decision.state, decision.work


class ToolCalls:
    """Gives each call of one message a result. Used on the event loop only."""

    def __init__(self, environment: Environment, turn: Turn, owner: Owner[OpenCalls]) -> None:
        """Takes the ports and settings, the turn, and the owner that carries out the commands on its calls."""
        self._environment = environment
        self._turn = turn
        self._limits = CallLimits.of(environment.settings.limits)
        self._owner = owner
        self._questions = ToolQuestions(environment, turn, owner)
        self._server = ServerCalls(environment, turn, owner, self._questions)

    @property
    def message(self) -> Message:
        """The message with the results and log lines so far."""
        return message_with_logs(self._owner.state.message, self._server.logs)

    def part(self, index: int) -> Part:
        """Returns one part of the message, which costs less than the message."""
        if index in self._server.logs:
            return self.message.parts[index]
        return self._owner.state.message.parts[index]

    @property
    def state(self) -> OpenCalls:
        """The stored calls."""
        return self._owner.state

    async def settle(self) -> None:
        """Returns when every call has a durable result. Cancelling this cancels running calls of the server's tools.

        Raises:
            StorageError: a result could not be stored.
        """
        tasks = [*self._server.start(), asyncio.create_task(self._watch_time(), name="client tool calls")]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._server.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                task.result()  # raises the store's error

    async def flush(self) -> None:
        """Makes the log lines of running tools durable; the next flush retries lines that failed. Safe to cancel."""
        await self._server.flush()

    @property
    def logs(self) -> Mapping[int, tuple[str, ...]]:
        """The lines of running server tools by part index, including those not stored yet."""
        return self._server.logs

    def index_of(self, part_id: str) -> int | None:
        """Returns the index of the call with this part id; None when the message has no such call."""
        calls = self._owner.state.message.tool_calls()
        return next((part.index for part, _ in calls if part.part_id == part_id), None)

    async def submit(self, index: int, result: CallResult, lease_id: str = "") -> int:
        """Stores a client's result for the call in one part. Safe to cancel: the result is still stored.

        Idempotent: submitting the same result again succeeds, whatever the lease.

        Returns:
            A sequence of the session after that; 0 when an earlier process stored the result.

        Raises:
            ToolCallAlreadySettled, ToolCallNotReady, LeaseHeld, LeaseLost: see `SubmitResult`.
            MemoryShort: the results of other calls leave no memory for this one.
            StorageError: the result could not be stored.
        """
        content_bytes = result.content_bytes
        is_repeated = result.is_of(self._owner.state.call(index))
        size = 0 if is_repeated else result.size_bytes + content_bytes
        submitted = self._ask(SubmitResult(index, result, lease_id), size)
        submitted.add_done_callback(lambda done: self._grow(-content_bytes) if _has_changed(done) else None)
        committed = (await asyncio.shield(submitted)).committed
        return 0 if committed is None else committed.sequence

    def ask(self, command: Command[OpenCalls]) -> "Future[Done[Any]]":
        """Carries out a command on these calls that needs no memory; see `Actor.ask`. Shield the reply when awaiting
        it.

        The reply also raises CallsClosed: none of the calls waits any more.
        """
        return self._owner.ask(command)

    def renew(
        self, index: int, lease_id: str, duration: timedelta, lines: Iterable[str], further: Work
    ) -> "Future[Done[Any]]":
        """Stores more time for a lease, and as many lines of the log as fit; see `RenewLease`."""
        kept = tuple(itertools.islice(lines, MAX_LOG_LINES - len(self._owner.state.call(index).logs)))
        size = sum(sys.getsizeof(line[:MAX_LOG_CHARACTERS]) for line in kept)
        if not self._has_room(size):
            kept, size = (), 0
        return self._ask(RenewLease(index, lease_id, duration, kept, further), size)

    def check_lease(self, index: int, lease_id: str) -> None:
        """Raises ToolCallAlreadySettled or LeaseLost unless this lease of the call in one part is valid."""
        calls = self._owner.state
        calls.check_client_may_answer(index)
        calls.check_lease(index, lease_id, Now(self._environment.clock(), asyncio.get_running_loop().time()))

    def question(self, question_id: str) -> Question | None:
        """Returns a question of these calls; None when it is not one of theirs."""
        asked = self._owner.state.questions.get(question_id)
        return None if asked is None else asked.question

    async def _watch_time(self) -> None:
        """Applies the passing of time, until every call has its result."""
        waiting = dict[int, tuple[float, Span]]()
        try:
            while True:
                calls, loop = self._owner.state, asyncio.get_running_loop()
                self._report(calls, waiting, loop.time())
                if calls.is_settled:
                    return
                ends = (one.ends_at for one in calls.questions.values() if one.is_open)
                due_at = min((*ends, *filter(None, (self._limits.next_moment(calls),))), default=None)
                if due_at is not None and due_at <= loop.time():
                    await carry_out(self._owner, PassTime(self._limits))
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(due_at):
                        await self._owner.changed()
        finally:
            for index, (_, span) in waiting.items():
                end_client_tool(span, self._environment.tracer, calls.call(index))

    def _report(self, calls: OpenCalls, waiting: dict[int, tuple[float, Span]], now: float) -> None:
        """Reports the client's calls that wait from now on or have their results.

        `waiting` maps each call that waits to the time since when, and its span.
        """
        tracer = self._environment.tracer
        for index in [index for index in waiting if calls.call(index).status.settled]:
            call, (ready_since, span) = calls.call(index), waiting.pop(index)
            seconds = now - ready_since
            end_client_tool(span, tracer, call)
            is_error = call.status is ToolStatus.ERROR
            ended = ToolCallEnd(source=CLIENT_TOOLS, is_error=is_error, seconds=seconds)
            self._environment.observer.tool_call_ended(ended)
        for index, times in calls.times.items():
            if index not in waiting:
                waiting[index] = times.ready_since, client_tool_span(tracer, calls.call(index))

    def _ask(self, command: Command[OpenCalls], size: int) -> "Future[Done[Any]]":
        """Queues a command that takes memory, which is released unless the command stores it. Raises MemoryShort."""
        if not self._grow(size):
            raise self._environment.waiting_calls.full()
        asked = self._owner.ask(command, alone=size > LARGE_BYTES)
        asked.add_done_callback(lambda done: None if _has_changed(done) else self._grow(-size))
        return asked

    def _grow(self, by: int) -> bool:
        return self._environment.waiting_calls.grow(self._turn.turn_id, by)

    def _has_room(self, more: int) -> bool:
        if not self._grow(more):
            return False
        self._grow(-more)
        return True


def _has_changed(done: "Future[Done[Any]]") -> bool:
    return not done.cancelled() and done.exception() is None and done.result().has_changed
