"""Calls of the server's tools: each runs once it is allowed, and its log lines are published while it runs."""

import asyncio
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from turnwire.core.actor import Decision, Done, Now, Owner, carry_out
from turnwire.core.environment import Environment
from turnwire.core.intake.contents import reference_to
from turnwire.core.spans import note_outcome, server_tool_span
from turnwire.core.tools.open_calls import OpenCalls, message_with_logs, with_questions_ended
from turnwire.core.tools.permission_requests import denial
from turnwire.core.tools.questions import ToolQuestions
from turnwire.core.tools.results import CallResult, with_log_line
from turnwire.domain.conversation.events import ToolLog
from turnwire.domain.conversation.messages import File, ToolStatus, ToolUse
from turnwire.domain.conversation.permissions import PermissionAction
from turnwire.domain.conversation.questions import QuestionReply
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import StorageError
from turnwire.domain.fair_semaphore import FairSemaphore, Permit
from turnwire.domain.text import join_surrogates
from turnwire.ports.commit import PutFile, PutMessage, Work
from turnwire.ports.telemetry.observer import ToolCallEnd
from turnwire.ports.tools import NewQuestion, QuestionRefused, ToolOutcome, ToolPause, ToolResumption

MAX_NAME_CHARS = 255
"""Longest name of a tool's file: the limit of common file systems."""

LARGE_RESULT_CHARS = 64 * 1024
"""Length of a result above which a thread cuts and hashes it."""

INTERRUPTED_RUN = "the server was restarted while the tool ran; it may or may not have had its effect"

log = structlog.get_logger()


def server_result(outcome: ToolOutcome, max_output_bytes: int, max_file_bytes: int) -> CallResult:
    """Returns the result of a server tool. Output over the limit is cut, and the complete output is added as a file."""
    output = join_surrogates(outcome.output)
    kept = cut_to_bytes(output, max_output_bytes)
    fitting = [file for file in outcome.files if len(file.content) <= max_file_bytes]
    files = [(_reference(file.content, file.mime, file.filename), file.content) for file in fitting]
    whole = []
    if kept is not output and len(data := output.encode()) <= max_file_bytes:
        whole = [(_reference(data, "text/plain", "output.txt"), data)]
    if len(fitting) < len(outcome.files):
        left_out = len(outcome.files) - len(fitting)
        kept += f"\n[{left_out} files of the result are larger than {max_file_bytes} bytes and were left out]"
    return CallResult(
        output=kept,
        is_error=outcome.is_error,
        metadata_json=join_surrogates(outcome.metadata_json),
        files=tuple(reference for reference, _ in files),
        full_output=whole[0][0] if whole else None,
        contents=tuple(PutFile(reference.sha256, content) for reference, content in [*files, *whole]),
    )


def cut_to_bytes(text: str, max_bytes: int) -> str:
    """Returns the text, cut between two characters and with a note if it is longer than the limit in UTF-8."""
    if len(text) * 4 <= max_bytes:
        return text
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    kept = data[:max_bytes].decode("utf-8", "ignore")
    return f"{kept}\n[cut: the output has {len(data)} bytes, these are the first {max_bytes}]"


def _reference(content: bytes, mime: str, filename: str) -> File:
    name = join_surrogates(filename).replace("\0", "")[:MAX_NAME_CHARS]
    return reference_to(content, join_surrogates(mime), name)


class StartCall(Struct, frozen=True):
    """The call of a server's tool in one part begins to run."""

    index: int

    def decide(self, calls: OpenCalls, now: Now) -> Decision[OpenCalls]:
        """Returns the calls with this one running."""
        running = msgspec.structs.replace(calls.call(self.index), status=ToolStatus.RUNNING, started_at=now.at)
        return calls.with_calls({self.index: running}, now)


class EndCall(Struct, frozen=True):
    """The result of a server's tool for the call in one part, which ends its questions."""

    index: int
    result: CallResult
    logs: tuple[str, ...] | None = None
    """All lines of its log; None keeps the stored ones."""

    def decide(self, calls: OpenCalls, now: Now) -> Decision[OpenCalls]:
        """Returns the calls with the result, and none of its questions open."""
        calls, ending = with_questions_ended(calls, self.index)
        if self.logs is not None:
            calls = with_logs(calls, {self.index: self.logs})
        return calls.with_results({self.index: self.result}, now, ending)


class KeepLogs(Struct, frozen=True):
    """Log lines of running calls, by part index. No event reports them: they were published when they arrived."""

    logs: Mapping[int, tuple[str, ...]]

    def decide(self, calls: OpenCalls, now: Now) -> Decision[OpenCalls]:
        """Returns the calls with the lines. A call that has its result already has its lines."""
        running = {index: lines for index, lines in self.logs.items() if not calls.call(index).status.settled}
        if not running:
            return Decision(calls)
        logged = with_logs(calls, running)
        return Decision(logged, Work((PutMessage(logged.message),)))


def with_logs(calls: OpenCalls, logs: Mapping[int, tuple[str, ...]]) -> OpenCalls:
    """Returns calls with other logs, by part index."""
    return msgspec.structs.replace(calls, message=message_with_logs(calls.message, logs))


class ServerCalls:
    """Runs the calls of the server's tools in one message.

    `_slots` bounds the calls that run at the same time; one that asks a person releases its slot. `_logs` has all lines
    of the running calls, by part index, and `_unsaved_logs` the indexes of those with lines that are not stored yet.
    `_ending` has the calls whose results are being stored, with the lines so far. `_is_over` is set by `end`. Both stop
    later lines of a tool, which would be published and not kept.
    """

    def __init__(self, environment: Environment, turn: Turn, owner: Owner[OpenCalls], questions: ToolQuestions) -> None:
        """Args:
        environment: Ports and settings.
        turn: The turn of the message.
        owner: The owner of all calls of the message, including those of client tools.
        questions: The questions of the calls.
        """
        self._questions = questions
        self._environment = environment
        self._owner = owner
        self._turn = turn
        max_calls = environment.settings.limits.max_parallel_tool_calls
        self._slots = FairSemaphore(max_calls, tenant_limit=max_calls)
        self._logs: dict[int, tuple[str, ...]] = {}
        self._unsaved_logs: set[int] = set()
        self._ending: set[int] = set()
        self._is_over = False

    def start(self) -> list["asyncio.Task[None]"]:
        """Starts a task for each call without a result. It ends when the result is durable. Cancelling stops the run.

        A call that was running when an earlier process died gets an error result. It is not run again, because it may
        have had its effect. A call that had paused with questions resumes.
        """
        calls = self._owner.state
        return [
            asyncio.create_task(self._run(part.index), name=f"tool call {part.part_id}")
            for part, call in calls.message.tool_calls()
            if not call.status.settled and call.name not in calls.client_tools
        ]

    def end(self) -> None:
        """Ignores all further log lines."""
        self._is_over = True
        self._questions.end()

    @property
    def logs(self) -> Mapping[int, tuple[str, ...]]:
        """The lines of running calls by part index, including those not stored yet."""
        return self._logs

    async def flush(self) -> None:
        """Makes the log lines of running tools durable; the next flush retries lines that failed. Safe to cancel."""
        if not self._unsaved_logs:
            return
        unsaved = frozenset(self._unsaved_logs)
        self._unsaved_logs.clear()
        keeping = self._owner.ask(KeepLogs({index: self._logs[index] for index in sorted(unsaved)}))

        def finish(kept: "asyncio.Future[Done[Any]]") -> None:
            if kept.cancelled() or kept.exception() is not None:
                self._unsaved_logs.update(unsaved - self._ending)  # the result of a call has its lines

        keeping.add_done_callback(finish)
        await asyncio.wait((keeping,))

    async def _run(self, index: int) -> None:
        """Runs one call, once it is allowed."""
        is_paused = bool(self._owner.state.held_questions(index))
        if self._owner.state.call(index).status is ToolStatus.RUNNING and not is_paused:
            await self._end(index, CallResult(output=INTERRUPTED_RUN, is_error=True))
            return
        while self._owner.state.call(index).permission_id:
            await self._owner.changed()
        call = self._owner.state.call(index)
        if call.status.settled:  # it was rejected
            return
        if self._is_denied(call.name):  # a restart may have changed the rules
            await self._end(index, CallResult(output=denial(call.name), is_error=True))
            return
        await self._environment.tools.wait_discovered()
        resumption = await self._questions.resumption(index) if is_paused else None
        async with self._slots.held(self._turn.tenant, 1) as slot:
            if resumption is None:
                # durable before it runs: after a crash, a call that is not RUNNING has not been run
                await asyncio.shield(self._owner.ask(StartCall(index)))
            outcome = await self._call(call, index, slot, resumption)
            await self._end(index, await self._result(outcome))

    async def _result(self, outcome: ToolOutcome) -> CallResult:
        settings = self._environment.settings
        limits = settings.limits.max_tool_output_bytes, settings.files.max_bytes
        if len(outcome.output) <= LARGE_RESULT_CHARS and not outcome.files:
            return server_result(outcome, *limits)
        return await asyncio.to_thread(server_result, outcome, *limits)

    async def _call(self, call: ToolUse, index: int, slot: Permit, resumption: ToolResumption | None) -> ToolOutcome:
        environment, loop = self._environment, asyncio.get_running_loop()
        started_at = loop.time()
        with server_tool_span(environment.tracer, call) as span:
            outcome = await self._outcome(call, index, slot, resumption)
            note_outcome(span, environment.tracer, outcome)
        source = call.name.partition(".")[0]
        ended = ToolCallEnd(source=source, is_error=outcome.is_error, seconds=loop.time() - started_at)
        environment.observer.tool_call_ended(ended)
        return outcome

    async def _outcome(self, call: ToolUse, index: int, slot: Permit, resumption: ToolResumption | None) -> ToolOutcome:
        """Calls the tool, and again after each pause. Each pause has questions, whose number per call is limited."""
        log, ask, tools = partial(self._log, index), partial(self._ask, index, slot), self._environment.tools
        while True:
            outcome = await tools.call(call.name, call.input_json or "{}", log, ask, resumption)
            if not isinstance(outcome, ToolPause):
                return outcome
            slot.release()
            try:
                resumption = await self._questions.pause(index, outcome)
            except QuestionRefused as refused:
                return ToolOutcome(output=f"the tool asked a question that cannot be asked: {refused}", is_error=True)
            await slot.acquire(1)

    async def _ask(self, index: int, slot: Permit, question: NewQuestion) -> QuestionReply:
        slot.release()  # not acquired again: a call that resumes must not wait for another one
        return await self._questions.ask(index, question)

    async def _end(self, index: int, result: CallResult) -> None:
        """Stores the result of a tool that may have had its effect; retries as long as that may help."""
        self._ending.add(index)
        self._unsaved_logs.discard(index)
        content_bytes = result.content_bytes
        if not self._fits(result.size_bytes + content_bytes):
            result, content_bytes = self._left_out(), 0
        try:
            await carry_out(self._owner, EndCall(index, result, self._logs.get(index)), self._note_unsaved)
            self._logs.pop(index, None)
        finally:
            self._fits(-content_bytes)

    def _note_unsaved(self, error: StorageError) -> None:
        log.warning("tool_result_not_saved_yet", session_id=self._turn.session_id, reason=error.reason)

    def _fits(self, more: int) -> bool:
        """Reserves memory for `more` bytes. Returns False when they do not fit."""
        return self._environment.waiting_calls.grow(self._turn.turn_id, more)

    def _left_out(self) -> CallResult:
        why = self._environment.waiting_calls.full().message
        return CallResult(output=f"the call ran, and its result was left out: {why}", is_error=True)

    def _is_denied(self, tool: str) -> bool:
        settings = self._environment.settings
        may_use = settings.agent(self._turn.agent).may_use(tool)
        return not may_use or settings.permission(self._turn.agent, tool) is PermissionAction.DENY

    def _log(self, index: int, line: str) -> None:
        """Keeps and publishes a log line of a tool; drops lines beyond the limits."""
        stored = self._owner.state.call(index)
        call = msgspec.structs.replace(stored, logs=self._logs.get(index, stored.logs))
        if self._is_over or index in self._ending or (logged := with_log_line(call, line)) is None:
            return
        if not self._fits(sys.getsizeof(logged.logs[-1])):
            return
        self._logs[index] = logged.logs
        self._unsaved_logs.add(index)
        message_id = self._owner.state.message.message_id
        self._environment.publish(self._turn, ToolLog(message_id, index, len(call.logs), logged.logs[-1]))
