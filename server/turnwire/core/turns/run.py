"""One turn: calls the model, streams the answer, waits for tools, and repeats this until the model has finished.

Every turn ends through `end_turn`, in one commit, whether the cause is a complete answer, an abort, a provider's error
or a bug. Start with `TurnRun.run`. A step is a model call with its commits (`StepRun`), whose end is a value
(`StepEnd`), then the wait for the results of its tool calls (`ToolCalls`). A turn stores its steps by commands of its
session: its task only sends them.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from turnwire.core.actor import Actor, Command, Done, Now
from turnwire.core.answer.costs import with_cost, with_estimate
from turnwire.core.answer.journal import StepJournal
from turnwire.core.answer.message_stream import MessageStream
from turnwire.core.answer.model_call import ModelCall
from turnwire.core.computing import compute
from turnwire.core.context.draft import RequestDraft
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
from turnwire.core.tools.open_calls import OpenCalls, ending_work, message_with_logs
from turnwire.core.tools.permission_requests import ask_permissions, closing_work, opening_work
from turnwire.core.tools.toolbox import Toolbox
from turnwire.core.turns.budgets import check_budgets
from turnwire.core.turns.recovery import ResumePoint
from turnwire.core.turns.schedule import AddAnswer, BeginStep, Calling, ChangeCalls, EndStep, Running, Schedule
from turnwire.domain.conversation.events import (
    CompactionStarted,
    DurableKind,
    MessageAdded,
    PermissionAsked,
    RetryScheduled,
    ToolCallUpdated,
)
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
from turnwire.domain.fair_semaphore import FairSemaphore, Permit
from turnwire.ports.commit import NewEvent, PutMessage, Work
from turnwire.ports.provider import ProviderRequest

log = structlog.get_logger()


END_WAIT_SECONDS = 2.0
"""Time that a reader waits for the commit that ends a step or a turn; a commit normally takes far less."""


class StepEnd(Struct, frozen=True):
    """The end of a step, or its state when its turn was stopped."""

    message: Message
    """The ended message; its calls may lack results. STREAMING when the turn was stopped during the answer."""
    permissions: tuple[PermissionRequest, ...] = ()
    """Open requests of the calls."""
    questions: tuple[HeldQuestion, ...] = ()
    """Questions of the calls that are open, or whose call has yet to resume."""
    work: Work = Work()
    """The part of the end that is not stored yet; commit it before everything that follows from the step."""

    @property
    def is_resumable(self) -> bool:
        """True when a restart can continue from here: all is stored, and the answer has not begun or is complete."""
        is_half_said = self.message.status is MessageStatus.STREAMING and bool(self.message.parts)
        return self.work == Work() and not is_half_said


def _asks_client(kind: DurableKind) -> bool:
    is_open_call = isinstance(kind, ToolCallUpdated) and not kind.call.status.settled
    return is_open_call or isinstance(kind, PermissionAsked)


class _Asked:
    """The current request to the model. `request` is set until it is prepared, so that a running turn keeps no prompt.

    Another attempt makes the request again.
    """

    def __init__(self, request: RequestDraft) -> None:
        self.request: RequestDraft | None = request
        self._toolbox: Callable[[], Awaitable[Toolbox]] = partial(_known, request.toolbox)

    async def take(self, requests: StepRequests) -> RequestDraft:
        """Returns the request, and keeps it no longer."""
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


class StepRun:
    """Calls the model once. One task calls `run`; others on the same event loop may read and flush meanwhile.

    Nothing that it hands out refers to it, so an answer of megabytes is freed with its step, without a garbage
    collection.
    """

    def __init__(
        self,
        environment: Environment,
        turn: Turn,
        request: RequestDraft,
        reopened: Message | None,
        *,
        on_output: Callable[[], None],
        ask: Callable[[AddAnswer], "asyncio.Future[Done[Schedule]]"],
    ) -> None:
        """Adds the step's message; its command is queued when this returns.

        Args:
            environment: Ports and settings.
            turn: The turn.
            request: The request to the model.
            reopened: The message of a step that an earlier process began; None makes a new one.
            on_output: Called when the first content of the answer arrives.
            ask: Queues a command of the session.
        """
        self._environment = environment
        self._turn = turn
        self._asked = _Asked(request)
        self._publish = partial(environment.publish, turn)
        self._call: ModelCall | None = None
        self._on_output = on_output
        self._is_reopened = reopened is not None
        message, work = self._begin(request.sent, reopened)
        self._added = ask(AddAnswer(work))
        self._stream = MessageStream(message, self._publish, environment.new_id, environment.settings.limits)
        self._journal = StepJournal(environment, turn.tenant, self._stream, self._asked.problem_of)

    @property
    def pending_notice(self) -> RetryScheduled | None:
        """The event that announced the pending retry; None when no retry is pending."""
        return self._call.pending_notice if self._call is not None else None

    def open_message(self) -> Message | None:
        """Returns the message with the content received so far; None until it is stored, because it has no position
        yet.
        """
        is_stored = self._added.done() and self._added.exception() is None
        return self._answer() if is_stored or self._is_reopened else None

    def open_part(self, message_id: str, index: int) -> Part | None:
        """Returns one part of the message with the content received so far; None when the id is another message's."""
        return self._stream.part(index) if self._stream.message_id == message_id else None

    async def run(self, slot: Permit, requests: StepRequests) -> StepEnd:
        """Returns the end of the step, which is not stored yet. Cancelling this ends the HTTP request at once.

        Args:
            slot: The slot for calling a model, held by the caller.
            requests: Makes a shorter request when the provider rejects this one as too long.

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
        now, refusing = environment.clock(), Work()
        if beyond:  # before the end of the message, which tells clients to run the calls that wait
            answer, refusing = settle_calls(answer, beyond, now)
        ended, closing = await compute(partial(close_message, answer, ending, now), [answer])
        closing += Work((), refusing.events)
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
        was_added = self._is_reopened or self._added.exception() is None
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
        stored = added.result().committed
        if stored is None:
            return message
        count, index = stored.alternatives.get(message.message_id, (0, 0))
        return msgspec.structs.replace(
            message,
            previous_message_id=stored.previous_message_ids.get(message.message_id, ""),
            alternative_count=count,
            alternative_index=index,
        )

    def _priced(self, call: ModelCall | None) -> Message:
        """Returns the message so far with its cost, and with an estimate for what its provider did not report."""
        providers, was_asked = self._environment.providers, call is not None and call.was_asked
        answer = with_cost(self._answer(), providers)
        return with_estimate(answer, providers, was_asked=was_asked, is_cut=self._stream.finished is None)


def _added_event(message: Message) -> NewEvent:
    return NewEvent(MessageAdded(msgspec.structs.replace(message, parts=())), message.turn_id)


class StepCalls:
    """Carries out commands on the calls of one message, which are a part of the session's state."""

    def __init__(self, actor: Actor[Schedule], calls: OpenCalls) -> None:
        """Takes the session's actor, and the calls before their step has ended."""
        self._actor = actor
        self._last = calls
        self._message_id = calls.message.message_id

    @property
    def are_open(self) -> bool:
        """Whether they wait for results: from the stored end of their step until the next one begins."""
        return self._found() is not None

    @property
    def state(self) -> OpenCalls:
        """The stored calls, or else as they were last found."""
        self._last = self._found() or self._last
        return self._last

    def ask(self, command: Command[OpenCalls], *, alone: bool = False) -> "asyncio.Future[Done[Schedule]]":
        """Queues a command to be decided and stored; see `Actor.ask`. The reply also raises CallsClosed."""
        return self._actor.ask(ChangeCalls(self._message_id, command), alone=alone)

    async def changed(self, *others: "asyncio.Future[Any]") -> None:
        """Returns at the next change of the session, or when one of the others is done. Safe to cancel."""
        await self._actor.changed(*others)

    def _found(self) -> OpenCalls | None:
        return self._actor.state.calls_of(self._message_id)


class TurnEnd(Struct, frozen=True, kw_only=True):
    """The end of a turn, apart from what its session has stored."""

    turn: Turn
    """May be a header."""
    ending: Ending
    messages: tuple[Message, ...]
    """Messages of ended steps, and summaries."""
    step: StepEnd | None
    """The newest step, which is not among these messages."""
    logs: Mapping[int, tuple[str, ...]]
    """The lines of its running calls, by part index."""
    reopened: tuple[Message, ...]
    """The message of a step that an earlier process began."""
    further: Work
    """More work for the same commit."""
    is_suspended: bool
    """Whether it resumes at the next start if it can."""

    def close(self, running: Running, now: datetime) -> Work | None:
        """Returns the work that ends the turn; None when the next start continues it. Pure."""
        step = self.step
        if step is not None and running.ended_message_id == step.message.message_id:
            step = StepEnd(step.message)
            if isinstance(running, Calling):
                calls = running.calls
                message = message_with_logs(calls.message, self.logs)
                step = StepEnd(message, calls.open_permissions, calls.pending_questions)
        if self.is_suspended and (step is None or step.is_resumable):
            return None
        messages, work, further = self.messages, Work(), Work()
        if step is not None:
            # a client would run the calls of a step whose end is stored only now, and ask a person for permission
            told = tuple(event for event in step.work.events if not _asks_client(event.kind))
            messages, work = (*messages, step.message), Work(step.work.changes, told)
            further = closing_work(step.permissions, PermissionAnswer(PermissionChoice.CANCELLED))
            further += ending_work(step.questions)
        messages, further = (*messages, *self.reopened), further + self.further
        return work + end_turn(self.turn, messages, self.ending, now, further)


class TurnRun:
    """Runs one turn. One task calls `run`; others on the same event loop may call `stop` and read.

    `_settled` holds the messages of finished steps, whose calls all have results, without their parts, so that nothing
    large of a step stays in memory. `_step` calls the model; it stays until its end is stored, for readers. `_end` is
    the end of the newest step while that step is not in `_settled`, and `_calls` has its calls, with their part of the
    session's state. `_reopened` is the message of a step that an earlier process began, until the model is called
    again.
    """

    def __init__(
        self,
        environment: Environment,
        turn: Turn,
        actor: Actor[Schedule],
        resume: ResumePoint | None = None,
        take_in: Callable[["TurnRun"], Awaitable[None]] | None = None,
    ) -> None:
        """Prepares a turn whose user message is stored or about to be; nothing runs before `run`.

        Args:
            environment: Ports and settings.
            turn: The turn.
            actor: Owns the stored state of the session in which the turn runs.
            resume: The point from which a turn of an earlier process continues; None for a new turn.
            take_in: Called before a model call: adds the messages that are to join the turn to the conversation.
        """
        self._take_in = take_in
        self._environment = environment
        self._actor = actor
        self._requests = StepRequests(environment, turn, resume.summaries if resume else ())
        self._client_tools = frozenset(tool.name for tool in turn.tools)
        self.turn = self._requests.kept(turn)
        """The turn; a header when it has large tools or a large system prompt."""
        self._settled: list[Message] = list(resume.steps[:-1]) if resume else []
        self._repetitions = Repetitions(environment.settings.limits.max_repeated_calls)
        self._end = StepEnd(resume.steps[-1], resume.permissions, resume.questions) if resume and resume.steps else None
        self._reopened = resume.open_message if resume else None
        self._step: StepRun | None = None
        self._calls: tuple[ToolCalls, StepCalls] | None = None
        self._task: asyncio.Task[Ending] | None = None
        self._stopped_with: Ending | None = None
        self._is_suspended = False
        self._started_at: float | None = None  # by the loop's clock; stays None for a resumed turn
        self._is_resumed = resume is not None
        self.first_output_seconds: float | None = None
        """Time from the start of the turn to its first content; None before that, and for a resumed turn."""

    async def run(self, slots: FairSemaphore) -> TurnEnd:
        """Runs the turn to its end, which the caller must store; one of `slots` is held during a model call.

        Never raises.
        """
        if not self._is_resumed:
            self._started_at = asyncio.get_running_loop().time()
        if self._stopped_with is None:
            self._task = asyncio.create_task(self._steps(slots), name=f"turn {self.turn.turn_id}")
            await asyncio.wait((self._task,))
        ending = self._ending_of(self._task)
        # its error refers to the frames of this turn, which would keep its answer until a garbage collection
        self._task = None
        if self._step is not None and self._end is None:
            self._end = await self._step.stop()
        is_suspended = self._is_suspended and ending is self._stopped_with
        if is_suspended and self._calls is not None:
            await self._calls[0].flush()  # log lines of running tools
        self._step = None  # a reader's flush must not write the open message over the ended one
        environment, reopened = self._environment, self._reopened
        return TurnEnd(
            turn=self.turn,
            ending=ending,
            messages=(*self._requests.paid_summaries(), *self._settled),
            step=self._end,
            logs={} if self._calls is None else self._calls[0].logs,
            reopened=() if reopened is None else (reopened,),
            further=note_ending(self.turn, ending, environment.clock(), environment.settings, environment.new_id),
            is_suspended=is_suspended,
        )

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
        """Returns the message that streams now, or whose tool calls wait for results; None when there is none.

        A reader may act on it, so it counts as streaming until the end of its step is stored. The last message of a
        turn streams until the turn is about to end: a watch that joins while that end cannot be stored gets it with the
        end.
        """
        if (calls := self.calls) is not None:
            return calls.message
        return self._step.open_message() if self._step is not None else None

    def open_part(self, message_id: str, index: int) -> Part | None:
        """Returns one part of the open message, which costs less than the message. None when it is no longer open."""
        if (calls := self.calls) is not None:
            return calls.part(index) if calls.state.message.message_id == message_id else None
        return self._step.open_part(message_id, index) if self._step is not None else None

    @property
    def awaited_call_ids(self) -> frozenset[str]:
        """The ids of tool calls that have no result, both ours and the provider's; includes calls being written now."""
        message = self.open_message()
        calls = message.tool_calls() if message is not None else ()
        unsettled = [(part.part_id, call.call_id) for part, call in calls if not call.status.settled]
        return frozenset(filter(None, itertools.chain.from_iterable(unsettled)))

    @property
    def open_requests(self) -> int:
        """Number of open permission requests, questions and calls of client tools for which the turn waits."""
        return 0 if (calls := self.calls) is None else calls.state.open_requests

    @property
    def pending_notice(self) -> CompactionStarted | RetryScheduled | None:
        """The event that announced why no answer streams now: a summary is being written, or a retry is pending."""
        return self._requests.pending_notice or (self._step.pending_notice if self._step is not None else None)

    @property
    def calls(self) -> ToolCalls | None:
        """The tool calls that wait for their results now; None until the end of their step is durable."""
        if self._calls is None:
            return None
        calls, owner = self._calls
        return calls if owner.are_open else None

    async def flush(self) -> None:
        """Makes durable what has streamed so far. Safe to cancel."""
        if self._end is not None and not self._is_stored(self._end):
            # the commit that ends the step or the turn has the rest of the text; on a full disk it may take long
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_WAIT_SECONDS):
                    while not self._is_stored(self._end):
                        await self._actor.changed()
        elif (calls := self.calls) is not None:
            await calls.flush()
        elif self._step is not None:
            await self._step.flush()

    def _is_stored(self, end: StepEnd | None) -> bool:
        running = self._actor.state.running(self.turn.turn_id)
        return end is None or running is None or running.ended_message_id == end.message.message_id

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
            self._step = None
            return ending
        message = await self._settle(end)
        self._actor.ask(BeginStep())
        self._settled.append(msgspec.structs.replace(message, parts=()))
        self._environment.waiting_calls.forget(self.turn.turn_id)
        self._calls = self._end = None
        return await compute(partial(self._repetitions.add, message), [message])

    async def _settle(self, end: StepEnd) -> Message:
        """Stores the end of a step, and returns its message once each of its calls has a result.

        Raises:
            StorageError: the end, or a result, could not be stored.
        """
        environment, message, opened = self._environment, end.message, None
        if message.finish_reason is FinishReason.TOOL_USE:
            opened = OpenCalls.of(
                message,
                self._client_tools,
                end.permissions,
                end.questions,
                question_timeout=environment.settings.limits.question_timeout,
                now=Now(environment.clock(), asyncio.get_running_loop().time()),
            )
            owner = StepCalls(self._actor, opened)
            self._calls = ToolCalls(environment, self.turn, owner), owner
        await asyncio.shield(self._actor.ask(EndStep(message.message_id, opened, end.work)))
        self._step = None
        if self._calls is None:
            return message
        calls, _ = self._calls
        await calls.settle()
        return calls.message

    async def _ask(self, slot: Permit) -> StepEnd:
        """Calls the model for the next step, after adding the messages that join the turn.

        None joins a step that an earlier process began, because its message already has its position, or a step that
        continues a paused answer.
        """
        is_begun = self._reopened is not None
        is_paused = bool(self._settled) and self._settled[-1].finish_reason is FinishReason.PAUSED
        if self._take_in is not None and not is_begun and not is_paused:
            await self._take_in(self)
        with self._requests.place.beside(slot):
            # only the step keeps the request, and lets it go
            self._step = step = StepRun(
                self._environment,
                self.turn,
                await self._requests.next(),
                self._reopened,
                on_output=self._note_output,
                ask=self._actor.ask,
            )
            self._reopened = None
            return await step.run(slot, self._requests)

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
