"""One turn: asks the model, streams the answer, waits for tools, asks again, until the model has finished.

A turn ends in exactly one way, through `end_turn` in one commit, whatever happened before: an answer in order, an
abort, a provider's error, a bug. Start with `TurnRun.run`.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence

import msgspec
import structlog

from turnwire.core.answer.journal import StepJournal
from turnwire.core.answer.message_stream import MessageStream
from turnwire.core.answer.model_call import ModelCall
from turnwire.core.answer.slots import Slot
from turnwire.core.context.next_request import StepRequest, StepRequests
from turnwire.core.ending.closing import Ending, close_message, end_turn
from turnwire.core.ending.host_messages import note_ending
from turnwire.core.environment import Environment
from turnwire.core.tools.calls import ToolCalls
from turnwire.core.tools.permission_requests import ask_permissions, asked, replied
from turnwire.core.tools.toolbox import Toolbox
from turnwire.core.turns.budgets import check_budgets
from turnwire.core.turns.resuming import ResumePoint, goes_on
from turnwire.core.work import Work
from turnwire.domain.conversation.events import CompactionStarted, EphemeralKind, MessageAdded, RetryScheduled
from turnwire.domain.conversation.messages import (
    Failure,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRun,
    Part,
    SentContext,
    ToolUse,
)
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice, PermissionRequest
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import DomainError, ProviderContextFull, ProviderError, ProviderStreamCut
from turnwire.domain.text import join_surrogates
from turnwire.ports.commit import Committed, NewEvent, PutMessage
from turnwire.ports.provider import StepFinished

END_WAIT_SECONDS = 2.0
"""How long a reader waits for the commit that ends a turn: many times what a commit takes."""

MAX_PAUSES = 10
"""How often one turn goes on by itself after the provider paused it."""

log = structlog.get_logger()


class TurnRun:
    """Runs one turn. One task calls `run`; `stop` and `submit` may be called by others on the same event loop."""

    def __init__(self, environment: Environment, turn: Turn, resume: ResumePoint | None = None) -> None:
        """Takes a turn whose user message is stored, or about to be.

        Args:
            environment: Ports and settings.
            turn: The turn.
            resume: Where a turn of a dead process goes on; None for a new one.
        """
        self.turn = turn
        self._environment = environment
        self._messages: list[Message] = list(resume.steps) if resume else []
        self._reopened = resume.open_message if resume else None
        self._permissions: tuple[PermissionRequest, ...] = resume.permissions if resume else ()
        self._stream: MessageStream | None = None
        self._journal: StepJournal | None = None
        self._model_call: ModelCall | None = None
        self._calls: ToolCalls | None = None
        self._toolbox = Toolbox((), ())
        self._requests = StepRequests(environment, turn, resume.summaries if resume else ())
        self._added: asyncio.Future[Committed] | None = None
        self._closing = Work()
        self._closing_commit: asyncio.Future[Committed] | None = None
        self._task: asyncio.Task[Ending] | None = None
        self._stopped: Ending | None = None
        self._suspended = False
        self._ending = False
        self.ended = asyncio.Event()
        """Set by the owner once the turn's end is durable, or was given up."""

    async def run(self, slots: asyncio.Semaphore) -> Work | None:
        """Runs the turn to its end; one of `slots` is held while a model is asked.

        Never raises. Returns the work that ends the turn, which the caller must commit; None when it was suspended and
        goes on at the next start.
        """
        if self._stopped is None:
            self._task = asyncio.create_task(self._steps(slots), name=f"turn {self.turn.turn_id}")
            await asyncio.wait((self._task,))
        ending = self._ending_of(self._task)
        await self._settle_commits()
        if self._suspended and ending is self._stopped and self._is_resumable():
            return None
        messages, work = [*self._requests.paid_summaries(), *self._messages], self._closing
        if self._stream is not None and self._added is not None:
            messages.append(streaming := self._environment.priced(self._stream.snapshot()))
            if self._added.exception() is not None:
                work += Work((), (_added(streaming),))
        elif self._reopened is not None:
            messages.append(self._reopened)
        self._ending = True
        self._stream = self._journal = None  # a reader's flush must not write the open message over the ended one
        now = self._environment.clock()
        further = replied(self._permissions, PermissionAnswer(PermissionChoice.CANCELLED))
        further += note_ending(self._environment, self.turn, ending, now)
        return work + end_turn(self.turn, messages, ending, now, further)

    def stop(self, ending: Ending) -> None:
        """Ends the turn early: cancels the provider and whatever is waited for. Only the first call counts."""
        if self._stopped is None:
            self._stopped = ending
            if self._task is not None:
                self._task.cancel()

    def suspend(self, ending: Ending) -> None:
        """Stops the turn so that it can go on after a restart; where it cannot, it ends in this way."""
        self._suspended = self._stopped is None
        self.stop(ending)

    def open_message(self) -> Message | None:
        """Returns the message that streams now, as far as it has come, or whose tool calls wait for their results."""
        if self._stream is not None:
            return self._stream.snapshot()
        return self._calls.message if self._calls is not None else None

    def open_part(self, message_id: str, index: int) -> Part | None:
        """Returns one part of that message; cheaper than all of it. None when it is not open any more."""
        if self._stream is not None and self._stream.message_id == message_id:
            return self._stream.part(index)
        if self._calls is not None and self._calls.message.message_id == message_id:
            return self._calls.message.parts[index]
        return None

    @property
    def open_permissions(self) -> tuple[PermissionRequest, ...]:
        """The permission requests that nobody has answered, oldest first."""
        return self.calls.open_permissions if self.calls is not None else ()

    @property
    def delay(self) -> CompactionStarted | RetryScheduled | None:
        """What keeps the model from answering now: an older part being summarised, or the wait before another try."""
        resting = self._model_call.rests if self._model_call is not None else None
        return self._requests.compacting or resting

    @property
    def calls(self) -> ToolCalls | None:
        """The tool calls that wait for their results now; None until the end of their step is durable.

        What came for them before that would be written over by the end of the step, when its commit has failed.
        """
        return None if self._closing.changes and not _is_stored(self._closing_commit) else self._calls

    async def flush(self) -> None:
        """Makes durable what has streamed so far. Safe to cancel."""
        if self._ending:
            # the rest of the text is in the commit that ends the turn; on a full disk that one may not come for long
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), END_WAIT_SECONDS)
        if self._closing_commit is not None:  # it holds the rest of the step's text
            await asyncio.wait((self._closing_commit,), timeout=END_WAIT_SECONDS)
        if self._journal is not None:
            await self._journal.flush()
        if self._calls is not None:
            await self._calls.flush()

    def _ending_of(self, task: asyncio.Task[Ending] | None) -> Ending:
        if self._stopped is not None and (task is None or task.cancelled() or task.exception() is not None):
            return self._stopped
        if task is None or task.cancelled():
            return Ending(FinishReason.INTERRUPTED)
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, DomainError):
            return ending_of_error(error)
        log.error("turn_failed", turn_id=self.turn.turn_id, session_id=self.turn.session_id, exc_info=error)
        return Ending(FinishReason.ERROR, Failure("INTERNAL", "the server failed while it ran the turn"))

    def _is_resumable(self) -> bool:
        """Tells whether all that there is of the turn is stored, and a further step can follow."""
        if self._closing.changes:
            return False
        if self._stream is not None and (self._stream.has_parts or self._added is None or self._added.exception()):
            return False
        return not self._messages or goes_on(self._messages[-1])

    async def _steps(self, slots: asyncio.Semaphore) -> Ending:
        limit = self._environment.settings.limits.max_steps
        max_steps = min(self.turn.options.max_steps or limit, limit)
        while True:
            if self._messages and (ending := await self._after_step(self._messages[-1])):
                return ending
            if len(self._messages) >= max_steps:
                return Ending(FinishReason.MAX_STEPS)
            used = (*self._requests.paid_summaries(), *self._messages)
            if exhausted := await check_budgets(self._environment, self.turn, used):
                return exhausted
            async with Slot(slots) as slot:  # not while tools are awaited: a person may be asked
                self._messages.append(await self._step(slot))

    async def _after_step(self, message: Message) -> Ending | None:
        """Does what the newest step asks for. Returns the end of the turn; None when another step follows."""
        if not goes_on(message) or paused_too_often(self._messages):
            self._ending = True
            return Ending(message.finish_reason or FinishReason.ERROR, message.failure)
        if message.finish_reason is FinishReason.PAUSED:
            await self._commit_closing(message)
            return None
        settled = await self._settle_calls(message)
        times = repetitions(self._messages)
        if times >= self._environment.settings.limits.max_repeated_calls:
            return Ending(FinishReason.ERROR, Failure("TOOL_CALL_REPEATED", _repeated(settled, times)))
        return None

    async def _step(self, slot: Slot) -> Message:
        """Calls the model once. Returns the ended message; the work that ends it waits in `_closing`."""
        environment, turn = self._environment, self.turn
        step = await self._request()
        message, announced = self._begin_message(step.sent)
        stream = MessageStream(message, self._publish, environment.new_id)
        journal = StepJournal(environment, stream)
        self._added = added = environment.commit(turn.session_id, announced, message.updated_at)
        self._stream, self._journal = stream, journal
        self._model_call = call = ModelCall(environment, stream, journal, self._publish, slot)
        models = (turn.model, *environment.settings.fallbacks(turn.agent))
        failure = await call.run(step.request, models, added)
        if isinstance(failure, ProviderContextFull) and not stream.has_parts:
            shorter = await self._requests.shorter(step)
            if shorter is not None:
                step, self._toolbox = shorter, shorter.toolbox
                stream.note_sent(step.sent)
                failure = await call.run(step.request, models, added)
        stream.note_sent(step.draft.sent_to(stream.model))  # a fallback may have answered
        await asyncio.shield(added)
        await journal.settle()
        ending = step_ending(stream.finished, failure, stream.snapshot())
        answer = environment.priced(stream.snapshot())
        problems: dict[int, str] = {}
        permissions: tuple[PermissionRequest, ...] = ()
        if ending.finish_reason is FinishReason.TOOL_USE:
            problems = await self._toolbox.problems(answer)
            answer, permissions = await ask_permissions(environment, turn, answer, problems)
        ended, closing = close_message(answer, ending, environment.clock(), problems)
        self._closing, self._permissions = closing + asked(permissions), permissions
        self._stream = self._journal = None
        return ended

    def _begin_message(self, sent: SentContext) -> tuple[Message, Work]:
        """Returns the message of the next step, and the work that stores it."""
        now, turn = self._environment.clock(), self.turn
        if self._reopened is not None:  # watchers know it from before the restart
            message = msgspec.structs.replace(self._reopened, updated_at=now, sent_context=sent)
            self._reopened = None
            return message, Work((PutMessage(message, ()),))
        message = Message(
            message_id=self._environment.new_id("msg"),
            session_id=turn.session_id,
            type=MessageType.ASSISTANT,
            status=MessageStatus.STREAMING,
            created_at=now,
            updated_at=now,
            turn_id=turn.turn_id,
            answers_message_id=turn.user_message_id,
            model_run=ModelRun(provider_id=turn.model.provider_id, model_requested=turn.model.model_id),
            sent_context=sent,
        )
        return message, Work((PutMessage(message, ()),), (_added(message),))

    async def _request(self) -> StepRequest:
        step = await self._requests.next()
        self._toolbox = step.toolbox
        return step

    async def _settle_calls(self, message: Message) -> Message:
        """Commits the ended step, then waits until each of its calls has a result. Returns the message with them."""
        client_tools = frozenset(tool.name for tool in self.turn.tools)
        self._calls = calls = ToolCalls(self._environment, message, client_tools, self._permissions, self.turn.agent)
        await self._commit_closing(message)
        await calls.settle()
        self._messages[-1], self._permissions = calls.message, ()
        self._calls = None
        return calls.message

    async def _commit_closing(self, message: Message) -> None:
        """Commits the end of a step; of a resumed one it is stored already."""
        if not self._closing.changes:
            return
        self._closing_commit = self._environment.commit(self.turn.session_id, self._closing, message.updated_at)
        await asyncio.shield(self._closing_commit)
        self._closing, self._closing_commit = Work(), None

    async def _settle_commits(self) -> None:
        """Waits for the commits that the stopped turn left under way, and keeps what could not be stored."""
        if self._journal is not None:
            await self._journal.settle()
        if self._added is not None:
            await asyncio.wait((self._added,))
        if self._closing_commit is not None:
            await asyncio.wait((self._closing_commit,))
            if self._closing_commit.exception() is None:
                self._closing = Work()
        if self._calls is not None:
            await self._calls.stored()
            self._messages[-1] = self._calls.message
            self._permissions = self._calls.open_permissions
            if self._suspended:
                await self._calls.flush()  # lines that a tool said
            self._calls = None

    def _publish(self, kind: EphemeralKind) -> None:
        self._environment.publish(self.turn.session_id, kind)


def _is_stored(commit: asyncio.Future[Committed] | None) -> bool:
    return commit is not None and commit.done() and commit.exception() is None


def _added(message: Message) -> NewEvent:
    return NewEvent(MessageAdded(msgspec.structs.replace(message, parts=())), message.turn_id)


def paused_too_often(steps: Sequence[Message]) -> bool:
    """Tells whether the newest step was paused once more than a turn goes on by itself."""
    pauses = sum(step.finish_reason is FinishReason.PAUSED for step in steps)
    return steps[-1].finish_reason is FinishReason.PAUSED and pauses > MAX_PAUSES


def repetitions(steps: Sequence[Message]) -> int:
    """Returns how many of the newest steps called the same tools with the same arguments and got the same results."""
    calls = _calls_of(steps[-1])
    return sum(1 for _ in itertools.takewhile(lambda step: calls and _calls_of(step) == calls, reversed(steps)))


def _calls_of(message: Message) -> list[tuple[str, str, str | None, str | None]]:
    return [(call.name, call.input_json, call.output, call.error) for _, call in message.tool_calls()]


def _repeated(message: Message, times: int) -> str:
    names = ", ".join(sorted({call.name for _, call in message.tool_calls()}))
    return f"the model called {names} {times} times in a row with the same arguments and got the same result"


def step_ending(finished: StepFinished | None, failure: ProviderError | None, message: Message) -> Ending:
    """Returns how a step ended, from the provider's end marker or its error."""
    if failure is not None:
        word = finished.provider_reason if finished is not None else ""
        return msgspec.structs.replace(ending_of_error(failure), provider_finish_reason=word)
    if finished is None:
        return ending_of_error(ProviderStreamCut("the provider's stream ended without its end marker"))
    reason = finished.reason
    if reason is FinishReason.STOP and any(isinstance(part.content, ToolUse) for part in message.parts):
        reason = FinishReason.TOOL_USE  # some servers say "stop" beside complete calls
    return Ending(reason, None, finished.provider_reason)


def ending_of_error(error: DomainError) -> Ending:
    """Returns how a step or turn ended that this error ended."""
    failure = Failure(error.reason, join_surrogates(error.message))
    if isinstance(error, ProviderStreamCut):
        return Ending(FinishReason.INTERRUPTED, failure)
    if isinstance(error, ProviderContextFull):
        return Ending(FinishReason.CONTEXT_FULL, failure)
    return Ending(FinishReason.ERROR, failure)
