"""One turn: asks the model, streams the answer, waits for tools, and asks again until the model has finished.

Every turn ends through `end_turn`, in one commit, whether the cause is a complete answer, an abort, a provider's error
or a bug. Start with `TurnRun.run`.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import structlog

from turnwire.core.computing import compute
from turnwire.core.context.next_request import StepRequests
from turnwire.core.ending.closing import Ending, end_turn
from turnwire.core.ending.host_messages import note_ending
from turnwire.core.environment import Environment
from turnwire.core.quotas.checks import spending_exceeded
from turnwire.core.tools.calls import ToolCalls
from turnwire.core.tools.permission_requests import closing_work
from turnwire.core.tools.questions.work import ending_work
from turnwire.core.turns.budgets import check_budgets
from turnwire.core.turns.resuming import ResumePoint
from turnwire.core.turns.step import END_WAIT_SECONDS, EndedStep, Step, StepEnd
from turnwire.core.turns.verdict import Repetitions, ending_after, ending_of_error
from turnwire.core.work import Work
from turnwire.domain.conversation.events import CompactionStarted, RetryScheduled
from turnwire.domain.conversation.messages import Failure, FinishReason, Message, Part
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice, PermissionRequest
from turnwire.domain.conversation.questions import HeldQuestion, Question
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import DomainError, QuotaExceeded
from turnwire.domain.fair_semaphore import FairSemaphore, Lease

log = structlog.get_logger()


class TurnRun:
    """Runs one turn. One task calls `run`; others on the same event loop may call `stop` and read.

    `_settled` holds the messages of finished steps, whose calls all have results, without their parts: nothing of a
    step stays in memory that is large. `_phase` is the current step: it asks
    the model or waits for tools. `_end` is the end of the newest step while that step is not in `_settled`. `_reopened`
    is the message of a step that an earlier process began, until the model is asked again.
    """

    def __init__(
        self,
        environment: Environment,
        turn: Turn,
        resume: ResumePoint | None = None,
        take_in: Callable[["TurnRun"], Awaitable[None]] | None = None,
    ) -> None:
        """Prepares a turn whose user message is stored or about to be; nothing runs before `run`.

        Args:
            environment: Ports and settings.
            turn: The turn.
            resume: Where a turn of an earlier process continues; None for a new turn.
            take_in: Called before a model is asked: adds the messages to the conversation that are to join the turn.
        """
        self._take_in = take_in
        self._environment = environment
        self._requests = StepRequests(environment, turn, resume.summaries if resume else ())
        self._client_tools = frozenset(tool.name for tool in turn.tools)
        self.turn = self._requests.kept(turn)
        """The turn; an outline when it has large tools or a large system prompt."""
        self._settled: list[Message] = list(resume.steps[:-1]) if resume else []
        self._repetitions = Repetitions(environment.settings.limits.max_repeated_calls)
        self._end = StepEnd(resume.steps[-1], resume.permissions, resume.questions) if resume and resume.steps else None
        self._reopened = resume.open_message if resume else None
        self._phase: Step | EndedStep | None = None
        self._task: asyncio.Task[Ending] | None = None
        self._stopped_with: Ending | None = None
        self._is_suspended = False
        self._is_ending = False
        self._started_at: float | None = None  # by the loop's clock; stays None for a resumed turn
        self._is_resumed = resume is not None
        self.first_output_seconds: float | None = None
        """From the start of the turn to its first content; None before that, and for a resumed turn."""
        self.ended = asyncio.Event()
        """Set by the owner once the turn's end is durable, or once the owner gave up storing it."""

    async def run(self, slots: FairSemaphore) -> Work | None:
        """Runs the turn to its end; one of `slots` is held while a model is asked.

        Never raises. Returns the work that ends the turn, which the caller must commit; None when it was suspended and
        continues at the next start.
        """
        if not self._is_resumed:
            self._started_at = asyncio.get_running_loop().time()
        if self._stopped_with is None:
            self._task = asyncio.create_task(self._steps(slots), name=f"turn {self.turn.turn_id}")
            await asyncio.wait((self._task,))
        ending = self._ending_of(self._task)
        self._task = None  # its error has the frames of this turn, which would keep its answer until a collection
        if self._phase is not None:
            self._end = await self._phase.stop()
        if self._is_suspended and ending is self._stopped_with and (self._end is None or self._end.is_resumable):
            if self._phase is not None:
                await self._phase.flush()  # log lines of running tools
            return None
        self._is_ending = True
        self._phase = None  # a reader's flush must not write the open message over the ended one
        return self._closing_work(ending)

    @property
    def is_outline(self) -> bool:
        """Whether `turn` is an outline."""
        return self._requests.is_outline

    def stop(self, ending: Ending) -> None:
        """Ends the turn early: cancels the model call and all waiting. Only the first call has an effect."""
        if self._stopped_with is None:
            self._stopped_with = ending
            if self._task is not None:
                self._task.cancel()

    def suspend(self, ending: Ending) -> None:
        """Stops the turn so that it can continue after a restart. If it cannot, it gets this ending."""
        self._is_suspended = self._stopped_with is None
        self.stop(ending)

    def open_message(self) -> Message | None:
        """Returns the message that streams now, or whose tool calls wait for results; None when there is none."""
        return self._phase.open_message() if self._phase is not None else None

    def open_part(self, message_id: str, index: int) -> Part | None:
        """Returns one part of the open message, which costs less than the message. None when it is no longer open."""
        return self._phase.open_part(message_id, index) if self._phase is not None else None

    @property
    def takes_messages(self) -> bool:
        """False once the turn is to end."""
        return self._stopped_with is None and not self._is_ending

    @property
    def awaited_call_ids(self) -> frozenset[str]:
        """The ids of tool calls that have no result, both ours and the provider's; includes calls being written now."""
        message = self.open_message()
        calls = message.tool_calls() if message is not None else ()
        unsettled = [(part.part_id, call.call_id) for part, call in calls if not call.status.settled]
        return frozenset(filter(None, itertools.chain.from_iterable(unsettled)))

    @property
    def open_permissions(self) -> tuple[PermissionRequest, ...]:
        """The unanswered permission requests, oldest first."""
        return self.calls.open_permissions if self.calls is not None else ()

    @property
    def open_questions(self) -> tuple[Question, ...]:
        """The unanswered questions, oldest first."""
        return self.calls.open_questions if self.calls is not None else ()

    @property
    def open_requests(self) -> int:
        """How many open permission requests, questions and calls of client tools that may run, the turn waits for."""
        return self.calls.open_requests if self.calls is not None else 0

    @property
    def pending_notice(self) -> CompactionStarted | RetryScheduled | None:
        """The event that announced why no answer streams now: a summary is being written, or a retry is pending."""
        return self._requests.pending_notice or (self._phase.pending_notice if self._phase is not None else None)

    @property
    def calls(self) -> ToolCalls | None:
        """The tool calls that wait for their results now; None until the end of their step is durable."""
        return self._phase.calls if self._phase is not None else None

    async def flush(self) -> None:
        """Makes durable what has streamed so far. Safe to cancel."""
        if self._is_ending:
            # the commit that ends the turn has the rest of the text; on a full disk it may take long
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_WAIT_SECONDS):
                    await self.ended.wait()
        if self._phase is not None:
            await self._phase.flush()

    async def _steps(self, slots: FairSemaphore) -> Ending:
        """Runs step after step. Returns the end of the turn; the end of the last step is not stored yet."""
        limits = self._environment.settings.limits
        max_steps = min(self.turn.options.max_steps or limits.max_steps, limits.max_steps)
        while True:
            if self._end is not None and (ending := await self._after_step(self._end)):
                return ending
            if len(self._settled) >= max_steps:
                return Ending(FinishReason.MAX_STEPS)
            paid = (*self._requests.paid_summaries(), *self._settled)
            if ending := await check_budgets(self.turn, paid, limits, self._environment.store):
                return ending
            if exceeded := self._exceeded_quota():
                return Ending(FinishReason.BUDGET, Failure.of(exceeded))
            # no slot while waiting for tools: a person may have to answer
            async with slots.held(self.turn.tenant, 1) as slot:
                self._end = await self._ask(slot)

    def _exceeded_quota(self) -> QuotaExceeded | None:
        """Returns the quota of the tenant's tokens or money that is used up; None when the turn may ask the model."""
        environment, tenant, now = self._environment, self.turn.tenant, self._environment.clock()
        limits = environment.settings.quotas_of(tenant)
        return spending_exceeded(tenant, limits, environment.store.of(tenant).account(now), now)

    async def _after_step(self, end: StepEnd) -> Ending | None:
        """Waits for the tool results of an ended step. Returns the end of the turn; None when another step follows."""
        if ending := ending_after((*self._settled, end.message)):
            self._is_ending = True
            return ending
        self._phase = phase = EndedStep(self._environment, self.turn, self._client_tools, end)
        step = await phase.settle()
        self._settled.append(msgspec.structs.replace(step, parts=()))
        self._environment.forget_calls(self.turn.turn_id)
        self._phase = self._end = None
        return await compute(partial(self._repetitions.add, step), [step])

    async def _ask(self, slot: Lease) -> StepEnd:
        """Asks the model for the next step, which has the messages that joined the turn.

        None joins a step that an earlier process began, for its message has its place already, or one that continues a
        paused answer.
        """
        is_begun = self._reopened is not None
        is_paused = bool(self._settled) and self._settled[-1].finish_reason is FinishReason.PAUSED
        if self._take_in is not None and not is_begun and not is_paused:
            await self._take_in(self)
        with self._requests.place.beside(slot):
            # the step alone has the request, and lets it go
            self._phase = step = Step(
                self._environment, self.turn, await self._requests.next(), self._reopened, self._note_output
            )
            self._reopened = None
            end = await step.run(slot, self._requests)
        self._phase = None
        return end

    def _note_output(self) -> None:
        if self.first_output_seconds is None and self._started_at is not None:
            self.first_output_seconds = asyncio.get_running_loop().time() - self._started_at

    def _ending_of(self, task: asyncio.Task[Ending] | None) -> Ending:
        if self._stopped_with is not None and (task is None or task.cancelled() or task.exception() is not None):
            return self._stopped_with
        if task is None or task.cancelled():
            return Ending(FinishReason.INTERRUPTED)
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, DomainError):
            return ending_of_error(error)
        log.error("turn_failed", turn_id=self.turn.turn_id, session_id=self.turn.session_id, exc_info=error)
        return Ending(FinishReason.ERROR, Failure("INTERNAL", "the server failed while it ran the turn"))

    def _closing_work(self, ending: Ending) -> Work:
        """Returns the work that ends the turn, including the unstored rest of its newest step."""
        messages = [*self._requests.paid_summaries(), *self._settled]
        work, permissions, questions = Work(), tuple[PermissionRequest, ...](), tuple[HeldQuestion, ...]()
        if self._end is not None:
            messages.append(self._end.message)
            work, permissions, questions = self._end.work, self._end.permissions, self._end.questions
        if self._reopened is not None:
            messages.append(self._reopened)
        environment, now = self._environment, self._environment.clock()
        further = closing_work(permissions, PermissionAnswer(PermissionChoice.CANCELLED)) + ending_work(questions)
        further += note_ending(self.turn, ending, now, environment.settings, environment.new_id)
        return work + end_turn(self.turn, messages, ending, now, further, is_outline=self.is_outline)
