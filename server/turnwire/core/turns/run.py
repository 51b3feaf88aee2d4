"""One turn: asks the model, streams the answer, waits for tools, and asks again until the model has finished.

Every turn ends through `end_turn`, in one commit, whether the cause is a complete answer, an abort, a provider's error
or a bug. Start with `TurnRun.run`. A step is a model call with its commits (`Step`), then the wait for the results of
its tool calls (`EndedStep`). Its end is a value, `StepEnd`: the turn decides what follows from it.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import structlog
from msgspec import Struct

from turnwire.core.answer.costs import with_cost, with_estimate
from turnwire.core.answer.journal import StepJournal
from turnwire.core.answer.message_stream import MessageStream
from turnwire.core.answer.model_call import ModelCall
from turnwire.core.computing import compute
from turnwire.core.context.draft import Draft
from turnwire.core.context.next_request import StepRequests
from turnwire.core.ending import (
    Ending,
    Repetitions,
    close_message,
    end_turn,
    ending_after,
    ending_of_error,
    note_ending,
    settle_calls,
    spent_by_call,
    step_ending,
)
from turnwire.core.environment import Environment
from turnwire.core.quotas import exceeded_spending
from turnwire.core.tools.calls import ToolCalls
from turnwire.core.tools.open_calls import ending_work
from turnwire.core.tools.permission_requests import ask_permissions, closing_work, opening_work
from turnwire.core.tools.toolbox import Toolbox
from turnwire.core.turns.budgets import check_budgets
from turnwire.core.turns.recovery import ResumePoint
from turnwire.domain.conversation.events import CompactionStarted, MessageAdded, RetryScheduled
from turnwire.domain.conversation.messages import (
    Failure,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRef,
    ModelRun,
    Part,
    SentContext,
    ToolUse,
)
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice, PermissionRequest
from turnwire.domain.conversation.questions import HeldQuestion
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import DomainError, ProviderContextFull
from turnwire.domain.fair_semaphore import FairSemaphore, Lease
from turnwire.ports.commit import Committed, NewEvent, PutMessage, Work
from turnwire.ports.provider import ProviderRequest

log = structlog.get_logger()


END_WAIT_SECONDS = 2.0
"""How long a reader waits for the commit that ends a step or a turn; a commit normally takes far less."""


class StepEnd(Struct, frozen=True):
    """How a step ended, or how far it came when its turn was stopped."""

    message: Message
    """The ended message; its calls may lack results. STREAMING when the turn was stopped during the answer."""
    permissions: tuple[PermissionRequest, ...] = ()
    """Open requests of the calls."""
    questions: tuple[HeldQuestion, ...] = ()
    """Questions of the calls that are open, or whose call has yet to go on."""
    work: Work = Work()
    """The part of the end that is not stored yet; commit it before everything that follows from the step."""

    @property
    def is_resumable(self) -> bool:
        """True when a restart can continue from here: all is stored, and the answer has not begun or is complete."""
        is_half_said = self.message.status is MessageStatus.STREAMING and bool(self.message.parts)
        return self.work == Work() and not is_half_said


class _Asked:
    """What the model is asked: `request` until it is prepared, so that a running turn keeps nothing of its prompt.

    Another attempt has it made anew.
    """

    def __init__(self, request: Draft) -> None:
        self.request: Draft | None = request
        self._toolbox: Callable[[], Awaitable[Toolbox]] = partial(_known, request.toolbox)

    async def take(self, requests: StepRequests) -> Draft:
        """Returns the request, which is not kept any longer."""
        request, self.request = self.request, None
        if request is None:
            request = await requests.again()
        self._toolbox = requests.toolbox if requests.is_header else partial(_known, request.toolbox)
        return request

    async def problem_of(self, call: ToolUse) -> str:
        """Checks a call against the tools of the last request."""
        return await (await self._toolbox()).problem(call)


async def _known(toolbox: Toolbox) -> Toolbox:
    return toolbox


class Step:
    """Asks the model once. One task calls `run`; others on the same event loop may read and flush meanwhile.

    What it gives to others does not refer to it, so an answer of megabytes goes with its step, and waits for no
    collector of garbage.
    """

    def __init__(
        self,
        environment: Environment,
        turn: Turn,
        request: Draft,
        reopened: Message | None,
        on_output: Callable[[], None],
    ) -> None:
        """Adds the step's message; its commit has begun when this returns.

        Args:
            environment: Ports and settings.
            turn: The turn.
            request: The request to the model.
            reopened: The message of a step that an earlier process began; None makes a new one.
            on_output: Called when the first content of the answer arrives.
        """
        self._environment = environment
        self._turn = turn
        self._asked = _Asked(request)
        self._publish = partial(environment.publish, turn)
        self._call: ModelCall | None = None
        self._on_output = on_output
        self._is_reopened = reopened is not None
        message, work = self._begin(request.sent, reopened)
        self._added: asyncio.Future[Committed] = environment.commit(
            turn.tenant, turn.session_id, work, message.updated_at
        )
        self._stream = MessageStream(message, self._publish, environment.new_id, environment.settings.limits)
        self._journal = StepJournal(environment, turn.tenant, self._stream, self._asked.problem_of)

    @property
    def pending_notice(self) -> RetryScheduled | None:
        """The event that announced the pending retry; None when no retry is pending."""
        return self._call.pending_notice if self._call is not None else None

    @property
    def calls(self) -> ToolCalls | None:
        """None: calls wait for results only after the step has ended."""
        return None

    def open_message(self) -> Message | None:
        """Returns the message with the content received so far; None while it is not stored, as it has no place yet."""
        is_stored = self._added.done() and self._added.exception() is None
        return self._answer() if is_stored or self._is_reopened else None

    def open_part(self, message_id: str, index: int) -> Part | None:
        """Returns one part of the message with the content received so far; None when the id is another message's."""
        return self._stream.part(index) if self._stream.message_id == message_id else None

    async def run(self, slot: Lease, requests: StepRequests) -> StepEnd:
        """Returns the end of the step, which is not stored yet. Cancelling this ends the HTTP request at once.

        Args:
            slot: The slot for asking a model, held by the caller.
            requests: Makes a shorter request when the provider finds this one too long.

        Raises:
            UnknownModel: the turn's model is no longer configured.
            StorageError: the message, or a summary, could not be stored.
        """
        environment, turn, stream, asked = self._environment, self._turn, self._stream, self._asked
        self._call = call = ModelCall(
            environment, turn, stream, self._journal, slot=slot, publish=self._publish, on_output=self._on_output
        )
        models = (turn.model, *environment.settings.fallbacks(turn.agent))

        async def request_to(model: ModelRef) -> ProviderRequest:
            made = await asked.take(requests)
            stream.note_sent(made.sent_to(model))
            return made.request

        failure = await call.run(request_to, requests.place.leave, models, self._added)
        if isinstance(failure, ProviderContextFull) and not stream.has_parts:
            asked.request = await requests.shorter()
            if asked.request is not None:
                failure = await call.run(request_to, requests.place.leave, models, self._added)
        await asyncio.shield(self._added)
        await self._journal.finish()
        answer = self._priced(call)
        ending = step_ending(stream.finished, failure, answer)
        permissions, beyond = tuple[PermissionRequest, ...](), dict[int, ToolUse]()
        if ending.finish_reason is FinishReason.TOOL_USE:
            answer, permissions, beyond = await ask_permissions(environment, turn, answer)
        now = environment.clock()
        ended, closing = await compute(partial(close_message, answer, ending, now), [answer])
        if beyond:
            ended, refusing = settle_calls(ended, beyond, now)
            closing += refusing
        environment.observer.answer_ended(turn, ended, is_summary=False)
        work = self._journal.unpublished() + closing + opening_work(permissions) + spent_by_call(turn, ended, now)
        return StepEnd(ended, permissions, work=work)

    async def flush(self) -> None:
        """Makes durable what has streamed so far. Safe to cancel."""
        await self._journal.flush()

    async def stop(self) -> StepEnd:
        """Returns the state of the step once all its commits have ended. Called after its task ended."""
        await self._journal.settle()
        await asyncio.wait((self._added,))
        message = self._priced(self._call)
        self._environment.observer.answer_ended(self._turn, message, is_summary=False)
        was_added = self._added.exception() is None
        return StepEnd(message, work=Work() if was_added else Work((), (_added_event(message),)))

    def _begin(self, sent: SentContext, reopened: Message | None) -> tuple[Message, Work]:
        """Returns the step's message, and the work that stores it."""
        now, turn = self._environment.clock(), self._turn
        if reopened is not None:  # announced before the restart
            message = msgspec.structs.replace(reopened, updated_at=now, sent_context=sent)
            return message, Work((PutMessage(message),))
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
        return message, Work((PutMessage(message),), (_added_event(message),))

    def _answer(self) -> Message:
        """Returns the message so far, with the message before it once it is stored."""
        message, added = self._stream.snapshot(), self._added
        if not added.done() or added.exception() is not None:
            return message
        stored = added.result()
        count, index = stored.alternatives.get(message.message_id, (0, 0))
        return msgspec.structs.replace(
            message,
            previous_message_id=stored.previous_message_ids.get(message.message_id, ""),
            alternative_count=count,
            alternative_index=index,
        )

    def _priced(self, call: ModelCall | None) -> Message:
        """Returns the message so far with what it cost, and with an estimate where its provider does not say."""
        providers, was_asked = self._environment.providers, call is not None and call.was_asked
        answer = with_cost(self._answer(), providers)
        return with_estimate(answer, providers, was_asked=was_asked, is_cut=self._stream.finished is None)


class EndedStep:
    """An ended step that another one follows: stores its end, then waits until each of its calls has a result."""

    def __init__(self, environment: Environment, turn: Turn, client_tools: frozenset[str], end: StepEnd) -> None:
        """Stores the end; its commit has begun when this returns.

        Args:
            environment: Ports and settings.
            turn: The turn; may be a header.
            client_tools: Names of the tools that the client runs.
            end: The end; its work is empty when the step is resumed, because that end is stored already.
        """
        self._end = end
        self._is_stopped = False
        self._calls: ToolCalls | None = None
        if end.message.finish_reason is FinishReason.TOOL_USE:
            self._calls = ToolCalls(
                environment, turn, end.message, client_tools, end.permissions, questions=end.questions
            )
        self._storing: asyncio.Future[Committed] | None = None
        if end.work.changes:
            self._storing = environment.commit(turn.tenant, turn.session_id, end.work, end.message.updated_at)

    @property
    def pending_notice(self) -> None:
        """None: the answer is complete."""
        return

    @property
    def calls(self) -> ToolCalls | None:
        """The calls that wait for their results; None until the end of the step is durable, and once it is stopped.

        Results stored earlier would be overwritten if that commit failed and the end was stored again.
        """
        return self._calls if self._is_stored and not self._is_stopped else None

    def open_message(self) -> Message | None:
        """Returns the message whose calls wait for their results; None when it has no calls.

        Who reads it may act on it, so it is still being written until its end is durable.
        """
        if self._calls is None:
            return None
        return self._calls.message if self._is_stored else _unfinished(self._calls.message)

    def open_part(self, message_id: str, index: int) -> Part | None:
        """Returns one part of the open message; None when the id is another message's."""
        if self._calls is None or self._calls.message.message_id != message_id:
            return None
        return self._calls.part(index) if self._is_stored else _unfinished_part(self._calls.part(index))

    async def settle(self) -> Message:
        """Returns the message once it is durable with all results. Cancelling this cancels running server tools.

        Raises:
            StorageError: the end of the step, or a result, could not be stored.
        """
        if self._storing is not None:
            await asyncio.shield(self._storing)
        if self._calls is None:
            return self._end.message
        await self._calls.settle()
        return self._calls.message

    async def flush(self) -> None:
        """Makes the log lines of running tools durable. Safe to cancel."""
        if self._storing is not None:  # its commit has the rest of the answer
            await asyncio.wait((self._storing,), timeout=END_WAIT_SECONDS)
        if self._calls is not None:
            await self._calls.flush()

    async def stop(self) -> StepEnd:
        """Returns the state of the step once all its commits have ended. Called after its task ended."""
        self._is_stopped = True
        if self._storing is not None:
            await asyncio.wait((self._storing,))
        work = Work() if self._is_stored else self._end.work
        if self._calls is None:
            return StepEnd(self._end.message, work=work)
        await self._calls.wait_stored()
        calls = self._calls
        return StepEnd(calls.message, calls.state.open_permissions, calls.state.pending_questions, work)

    @property
    def _is_stored(self) -> bool:
        storing = self._storing
        return storing is None or (storing.done() and storing.exception() is None)


def _unfinished(message: Message) -> Message:
    """Returns an ended message as readers have it before its end is durable: no client may run its calls yet."""
    parts = tuple(map(_unfinished_part, message.parts))
    return msgspec.structs.replace(
        message, parts=parts, status=MessageStatus.STREAMING, finish_reason=None, provider_finish_reason=""
    )


def _unfinished_part(part: Part) -> Part:
    call = part.content
    if not isinstance(call, ToolUse) or call.status.settled:
        return part
    return msgspec.structs.replace(part, content=msgspec.structs.replace(call, started_at=None, permission_id=""))


def _added_event(message: Message) -> NewEvent:
    return NewEvent(MessageAdded(msgspec.structs.replace(message, parts=())), message.turn_id)


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
        """The turn; a header when it has large tools or a large system prompt."""
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
    def is_header(self) -> bool:
        """Whether `turn` is a header."""
        return self._requests.is_header

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
    def open_requests(self) -> int:
        """How many open permission requests, questions and calls of client tools that may run, the turn waits for."""
        return self.calls.state.open_requests if self.calls is not None else 0

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
            if exceeded := exceeded_spending(self._environment, self.turn.tenant):
                return Ending(FinishReason.BUDGET, Failure.of(exceeded))
            # no slot while waiting for tools: a person may have to answer
            async with slots.held(self.turn.tenant, 1) as slot:
                self._end = await self._ask(slot)

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
        return work + end_turn(self.turn, messages, ending, now, further, is_header=self.is_header)
