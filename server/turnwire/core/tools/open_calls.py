"""The tool calls of an ended step, as a value: what they wait for, and the effect of each change.

Everything here is a pure function of what is stored and of the time. `turnwire.core.tools.calls` owns such a value,
lets clients and tools change it, and applies the passing of time.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import StrEnum

import msgspec
from msgspec import Struct

from turnwire.core.actor import Decision, Now
from turnwire.core.ending import settle_calls
from turnwire.core.tools.results import CallResult
from turnwire.domain.conversation.events import QuestionAnswered, QuestionAsked
from turnwire.domain.conversation.limits import MAX_LEASE
from turnwire.domain.conversation.messages import Lease, Message, Part, ToolStatus, ToolUse
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.questions import HeldQuestion, Question, QuestionAction, QuestionAnswer
from turnwire.domain.errors import (
    LeaseHeld,
    LeaseLost,
    QuestionAlreadyAnswered,
    ToolCallAlreadySettled,
    ToolCallNotReady,
)
from turnwire.ports.commit import FileChange, NewEvent, PutQuestion, Work


class CallsClosed(Exception):
    """A command is about calls that no longer wait: their step, or its turn, has ended."""


class CallTimes(Struct, frozen=True):
    """The times of an open call of a client's tool, by the loop's clock, because the time of day may be changed
    meanwhile.
    """

    ready_since: float
    """When the client was first allowed to answer it."""
    free_since: float
    """When the call became free, or when its lease ends."""


class CallPhase(StrEnum):
    """The phases of an open call."""

    ASKING = "Asking"
    """It waits for a person's permission."""
    FREE = "Free"
    """A client may run it, and it has no lease."""
    HELD = "Held"
    """A client holds it: its lease lasts."""
    DUE = "Due"
    """The server has yet to run it."""
    RUNNING = "Running"
    """The server's tool runs, or waits for the reply to a question."""
    PAUSED = "Paused"
    """The server's tool has ended its request with questions, and resumes when they are closed."""
    SETTLED = "Settled"
    """It has its result."""


class AskedQuestion(Struct, frozen=True):
    """A question of a call."""

    held: HeldQuestion
    ends_at: float
    """When it expires, by the loop's clock."""
    content_json: str = ""
    """The content that was filled in."""

    @property
    def question(self) -> Question:
        """The question with its answer."""
        return self.held.question

    @property
    def is_open(self) -> bool:
        """Whether it has no answer."""
        return self.question.answer is None


class OpenCalls(Struct, frozen=True):
    """The calls of one message, with their permission requests and questions."""

    message: Message
    """The ended message with the results so far."""
    client_tools: frozenset[str]
    """Names of the tools that the client runs; all others are the server's."""
    permissions: Mapping[str, PermissionRequest]
    """By id, oldest first; those of an earlier process only if they were open."""
    questions: Mapping[str, AskedQuestion]
    """By id, oldest first; those of an earlier process only if they were open or held."""
    times: Mapping[int, CallTimes]
    """Times of the calls that the client may answer now, by part index."""

    @classmethod
    def of(
        cls,
        message: Message,
        client_tools: frozenset[str],
        permissions: Iterable[PermissionRequest],
        questions: Iterable[HeldQuestion],
        *,
        question_timeout: timedelta,
        now: Now,
    ) -> "OpenCalls":
        """Returns the calls of a message that is stored.

        Args:
            message: The ended message.
            client_tools: Names of the tools that the client runs.
            permissions: Open requests of its calls.
            questions: Questions of its calls that are open or whose call has yet to resume. Their remaining time is
                computed from the time of day, because nothing else is known of the time in an earlier process.
            question_timeout: The longest time for a question.
            now: The moment.
        """
        asked = {
            held.question.question_id: AskedQuestion(
                held,
                now.seconds + _within(held.question.expires_at - now.at, question_timeout),
                "" if held.hold is None else held.hold.content_json,
            )
            for held in questions
        }
        calls = cls(message, client_tools, {one.permission_id: one for one in permissions}, asked, {})
        return calls._with_times((part.index for part, _ in message.tool_calls()), now)

    def call(self, index: int) -> ToolUse:
        """Returns the call in one part."""
        call = self.message.parts[index].content
        if not isinstance(call, ToolUse):
            raise TypeError(f"part {index} of {self.message.message_id} is not a tool call")
        return call

    def phase(self, index: int, now: Now) -> CallPhase:
        """Returns the phase of the call in one part."""
        call = self.call(index)
        if call.status.settled:
            return CallPhase.SETTLED
        if call.permission_id:
            return CallPhase.ASKING
        if call.name in self.client_tools:
            return CallPhase.FREE if self.lease(index, now) is None else CallPhase.HELD
        if call.status is not ToolStatus.RUNNING:
            return CallPhase.DUE
        return CallPhase.PAUSED if self.held_questions(index) else CallPhase.RUNNING

    @property
    def is_settled(self) -> bool:
        """Whether every call has a result."""
        return all(call.status.settled for _, call in self.message.tool_calls())

    @property
    def open_permissions(self) -> tuple[PermissionRequest, ...]:
        """The unanswered permission requests, oldest first."""
        return tuple(request for request in self.permissions.values() if request.answer is None)

    @property
    def open_questions(self) -> tuple[Question, ...]:
        """The unanswered questions, oldest first."""
        return tuple(one.question for one in self.questions.values() if one.is_open)

    @property
    def pending_questions(self) -> tuple[HeldQuestion, ...]:
        """The questions that are open or whose call has yet to resume, oldest first."""
        return tuple(one.held for one in self.questions.values() if one.is_open or one.held.hold is not None)

    @property
    def open_requests(self) -> int:
        """Number of calls that wait for a permission or for the client's result, plus the number of open questions."""
        waiting = sum(
            bool(call.permission_id) or call.name in self.client_tools
            for _, call in self.message.tool_calls()
            if not call.status.settled
        )
        return waiting + len(self.open_questions)

    def held_questions(self, index: int) -> list[AskedQuestion]:
        """Returns the questions with which the call in one part has paused, if it has not resumed."""
        of_call = (one for one in self.questions.values() if one.question.part_index == index)
        return [one for one in of_call if one.held.hold is not None]

    def lease(self, index: int, now: Now) -> Lease | None:
        """Returns the lease of a call while it lasts; None when any client may claim the call."""
        times = self.times.get(index)
        return self.call(index).lease if times is not None and times.free_since > now.seconds else None

    def check_client_may_answer(self, index: int) -> None:
        """Raises ToolCallAlreadySettled or ToolCallNotReady unless the client may answer the call in one part."""
        call, part_id = self.call(index), self.message.parts[index].part_id
        if call.status.settled or call.name not in self.client_tools:
            text = f"tool call {part_id!r} is not the client's, or has another result already"
            raise ToolCallAlreadySettled(text, part_id)
        if call.permission_id:
            raise ToolCallNotReady(f"tool call {part_id!r} waits for permission {call.permission_id!r}", part_id)

    def check_lease(self, index: int, lease_id: str, now: Now) -> None:
        """Checks that the caller may change a call.

        Args:
            index: The part of the call.
            lease_id: The lease that the caller holds; "" for none, which suffices while the call has no lease.
            now: The moment.

        Raises:
            LeaseLost: that lease has ended.
            LeaseHeld: no lease was given, and another client holds the call.
        """
        current, part_id = self.lease(index, now), self.message.parts[index].part_id
        if lease_id and (current is None or current.lease_id != lease_id):
            raise LeaseLost(part_id, lease_id, current.holder if current is not None else "")
        if not lease_id and current is not None:
            left = timedelta(seconds=self.times[index].free_since - now.seconds)
            raise LeaseHeld(part_id, current.holder, left)

    def with_calls(self, calls: Mapping[int, ToolUse], now: Now, further: Work | None = None) -> Decision["OpenCalls"]:
        """Returns these calls with some replaced, by part index, and the work for that after any further work.

        The calls are the reply, too, so that the caller sees the state after its command.
        """
        message, work = settle_calls(self.message, calls, now.at)
        changed = msgspec.structs.replace(self, message=message)._with_times(calls, now)
        return Decision(changed, (further or Work()) + work, changed)

    def with_results(
        self, results: Mapping[int, CallResult], now: Now, further: Work | None = None
    ) -> Decision["OpenCalls"]:
        """Returns these calls with some results, by part index; otherwise as `with_calls`."""
        contents: tuple[FileChange, ...] = tuple(file for result in results.values() for file in result.contents)
        settled = {index: result.apply_to(self.call(index), now.at) for index, result in results.items()}
        return self.with_calls(settled, now, Work(contents) + (further or Work()))

    def with_questions(self, asked: Iterable[AskedQuestion]) -> "OpenCalls":
        """Returns these calls with questions added or replaced."""
        questions = dict(self.questions)
        questions.update((one.question.question_id, one) for one in asked)
        return msgspec.structs.replace(self, questions=questions)

    def _with_times(self, indexes: Iterable[int], now: Now) -> "OpenCalls":
        """Returns these calls with the times of those that changed, by part index."""
        times = dict(self.times)
        for index in indexes:
            before, call = times.pop(index, None), self.call(index)
            if call.status.settled or call.permission_id or call.name not in self.client_tools:
                continue
            free_since = now.seconds
            if call.lease is not None:
                free_since += _within(call.lease.expires_at - now.at, MAX_LEASE)
            elif before is not None:
                free_since = min(free_since, before.free_since)
            times[index] = CallTimes(now.seconds if before is None else before.ready_since, free_since)
        return msgspec.structs.replace(self, times=times)


def with_questions_ended(calls: OpenCalls, index: int) -> tuple[OpenCalls, Work]:
    """Returns the calls without open questions or kept state of the call in one part, and the work for that."""
    of_call = (one for one in calls.questions.values() if one.question.part_index == index)
    pending = [one for one in of_call if one.is_open or one.held.hold is not None]
    return calls.with_questions(_ended(one) for one in pending), ending_work(one.held for one in pending)


def _ended(asked: AskedQuestion) -> AskedQuestion:
    question = msgspec.structs.replace(asked.question, answer=asked.question.answer or CANCELLED)
    return msgspec.structs.replace(asked, held=HeldQuestion(question, None))


def message_with_logs(message: Message, logs: Mapping[int, tuple[str, ...]]) -> Message:
    """Returns a message whose unsettled calls have these lines in their logs, by part index."""
    if not logs:
        return message
    parts = tuple(_logged(part, logs.get(part.index)) for part in message.parts)
    return msgspec.structs.replace(message, parts=parts)


def _logged(part: Part, logs: tuple[str, ...] | None) -> Part:
    if logs is None or not isinstance(part.content, ToolUse) or part.content.status.settled:
        return part
    return msgspec.structs.replace(part, content=msgspec.structs.replace(part.content, logs=logs))


def _within(left: timedelta, most: timedelta) -> float:
    """Returns seconds from 0 to `most`."""
    return min(max(left, timedelta()), most).total_seconds()


CANCELLED = QuestionAnswer(QuestionAction.CANCEL)
"""The answer to a question whose call or turn ends before anyone answers."""


def opening_work(asked: Iterable[HeldQuestion]) -> Work:
    """Returns the work that opens questions."""
    opened = tuple(asked)
    return Work(
        tuple(PutQuestion(one.question, one.hold) for one in opened),
        tuple(NewEvent(QuestionAsked(one.question), one.question.turn_id) for one in opened),
    )


def answering_work(asked: Iterable[HeldQuestion], answer: QuestionAnswer) -> Work:
    """Returns the work that stores an answer to open questions, with the state that their call needs to resume."""
    answered = tuple(HeldQuestion(msgspec.structs.replace(one.question, answer=answer), one.hold) for one in asked)
    kinds = ((QuestionAnswered(one.question.question_id, one.question.tool_call_id, answer), one) for one in answered)
    return Work(
        tuple(PutQuestion(one.question, one.hold) for one in answered),
        tuple(NewEvent(kind, one.question.turn_id) for kind, one in kinds),
    )


def ending_work(pending: Iterable[HeldQuestion]) -> Work:
    """Returns the work for the questions of a call or turn that ends: closes those that are open, and drops
    all state.
    """
    loose = [HeldQuestion(one.question, None) for one in pending]
    closed = answering_work((one for one in loose if one.question.answer is None), CANCELLED)
    return closed + letting_go_work(one for one in loose if one.question.answer is not None)


def letting_go_work(answered: Iterable[HeldQuestion]) -> Work:
    """Returns the work that drops the state of a call that has resumed."""
    return Work(tuple(PutQuestion(one.question) for one in answered))


def other_answer(question_id: str, answer: QuestionAnswer | None) -> QuestionAlreadyAnswered:
    """Returns the error for an answer to a question that has one."""
    action = (answer or CANCELLED).action
    return QuestionAlreadyAnswered(f"question {question_id!r} is closed: {action.value}", question_id)
