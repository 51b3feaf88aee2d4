"""The questions of calls: asks, answers, expires and ends them.

Some calls wait for a reply in memory and end with the process. Others have ended their request to the tool with
questions and resume with a new one; the state for that is stored, so they resume after a restart too.
"""

import asyncio
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from turnwire.core.actor import Decision, Done, Now, Owner, carry_out
from turnwire.core.environment import Environment
from turnwire.core.memory import QUESTION_BYTES
from turnwire.core.tools.open_calls import (
    CANCELLED,
    AskedQuestion,
    OpenCalls,
    answering_work,
    letting_go_work,
    opening_work,
    other_answer,
)
from turnwire.core.tools.question_forms import problem_of_question
from turnwire.domain.conversation.questions import (
    HeldQuestion,
    Question,
    QuestionAction,
    QuestionAnswer,
    QuestionHold,
    QuestionReply,
)
from turnwire.domain.conversation.turns import Turn
from turnwire.ports.commit import Work
from turnwire.ports.tools import MAX_OPEN_OF_CALL, NewQuestion, QuestionRefused, ToolPause, ToolResumption

MAX_OPEN_OF_SESSION = 32
"""Maximum open questions of one session, which runs few calls at a time."""

MAX_OPEN_OF_TENANT = 256
"""Maximum open questions of one tenant: about as many as people can be expected to answer before they expire."""

MAX_QUESTIONS_OF_CALL = 20
"""Maximum questions of one call in total: a faulty tool could ask forever."""

MAX_STATE_CHARS = 64 * 1024
"""Maximum length of the state with which a tool resumes; it is stored with each question."""

EXPIRED = QuestionAnswer(QuestionAction.EXPIRED)


class AskQuestions(Struct, frozen=True):
    """Questions that the call in one part asks together."""

    index: int
    questions: tuple[HeldQuestion, ...]
    """With new ids; at least one."""

    def decide(self, calls: OpenCalls, now: Now) -> Decision[OpenCalls]:
        """Returns the calls with the questions. Raises QuestionRefused: the call asks too many."""
        of_call = [one for one in calls.questions.values() if one.question.part_index == self.index]
        more = len(self.questions)
        if len(of_call) + more > MAX_QUESTIONS_OF_CALL:
            raise QuestionRefused(f"the call has asked {MAX_QUESTIONS_OF_CALL} questions, and may ask no more")
        if sum(one.is_open for one in of_call) + more > MAX_OPEN_OF_CALL:
            raise QuestionRefused(f"{MAX_OPEN_OF_CALL} questions of the call are open")
        if len(calls.open_questions) + more > MAX_OPEN_OF_SESSION:
            raise QuestionRefused(f"{MAX_OPEN_OF_SESSION} questions of the session are open")
        asked = (
            AskedQuestion(one, now.seconds + (one.question.expires_at - one.question.created_at).total_seconds())
            for one in self.questions
        )
        return Decision(calls.with_questions(asked), opening_work(self.questions))


class AnswerQuestion(Struct, frozen=True):
    """A person's answer to a question, or the tool's own when it learns that a link was followed."""

    question_id: str
    answer: QuestionAnswer
    content_json: str = ""
    """The content that was filled in, which fits the question."""
    further: Work = Work()
    """More work for the same commit."""

    def decide(self, calls: OpenCalls, now: Now) -> Decision[OpenCalls]:
        """Returns the calls with the answer. Repeating the same answer changes nothing, unless it has content.

        Raises QuestionAlreadyAnswered: it has another answer, or an answer with content.
        """
        asked = calls.questions[self.question_id]
        given = asked.question.answer
        if given is None:
            return answered(calls, [asked], self.answer, self.content_json, self.further)
        if given.action is not self.answer.action or given.action is QuestionAction.ACCEPT:
            raise other_answer(self.question_id, given)
        return Decision(calls)


class CloseQuestion(Struct, frozen=True):
    """The end of a question without a person's answer. Changes nothing when it is already closed."""

    question_id: str
    answer: QuestionAnswer

    def decide(self, calls: OpenCalls, now: Now) -> Decision[OpenCalls]:
        """Returns the calls with the question closed."""
        asked = calls.questions[self.question_id]
        return answered(calls, [asked], self.answer) if asked.is_open else Decision(calls)


class ResumeCall(Struct, frozen=True):
    """Resumes the call in one part after its questions are closed, and drops the state kept for that."""

    index: int

    def decide(self, calls: OpenCalls, now: Now) -> Decision[OpenCalls]:
        """Returns the calls after the resumption."""
        held = calls.held_questions(self.index)
        loose = (msgspec.structs.replace(one, held=HeldQuestion(one.question, None)) for one in held)
        return Decision(calls.with_questions(loose), letting_go_work(one.held for one in held))


class ToolQuestions:
    """Asks the questions of the calls of one message. Used on the event loop only."""

    def __init__(self, environment: Environment, turn: Turn, owner: Owner[OpenCalls]) -> None:
        """Takes the ports and settings, the turn of the message, and the owner of its calls."""
        self._environment = environment
        self._turn = turn
        self._owner = owner
        self._limit = environment.settings.limits.question_timeout
        self._is_over = False

    def end(self) -> None:
        """Leaves the open questions to the end of the turn, or to the next process. Idempotent."""
        self._is_over = True

    async def ask(self, index: int, new: NewQuestion) -> QuestionReply:
        """Asks on behalf of the running call in one part, and returns the reply. Cancelling this ends the question.

        Raises:
            QuestionRefused: the question is not valid, or too many are asked or open.
            StorageError: the question could not be stored.
        """
        [question_id] = await self._open(index, [new], [None], "")
        try:
            return await self._reply(question_id, new.completed)
        except asyncio.CancelledError:
            if not self._is_over:
                self._owner.ask(CloseQuestion(question_id, CANCELLED))
            raise

    async def pause(self, index: int, pause: ToolPause) -> ToolResumption:
        """Asks the questions with which the call in one part has paused; returns the state and answers to resume with.

        These are no longer stored then: the call resumes once. Cancelling this keeps the questions.

        Raises:
            QuestionRefused, StorageError: as `ask`. No question is open then.
        """
        holds = [QuestionHold(key=key, state=pause.state) for key, _ in pause.questions]
        await self._open(index, [new for _, new in pause.questions], holds, pause.state)
        return await self.resumption(index)

    async def resumption(self, index: int) -> ToolResumption:
        """Returns the state and answers with which a paused call resumes, once all its questions are closed; see
        `pause`.
        """
        held = self._owner.state.held_questions(index)
        replies = [await self._reply(one.question.question_id) for one in held]
        holds = [one.held.hold for one in held if one.held.hold is not None]
        await asyncio.shield(self._owner.ask(ResumeCall(index)))
        named = zip((hold.key for hold in holds), replies, strict=True)
        return ToolResumption(holds[0].state, tuple(named))

    async def _open(
        self, index: int, new: Sequence[NewQuestion], holds: Sequence[QuestionHold | None], state: str
    ) -> list[str]:
        """Opens questions in one commit, and returns their ids. Raises QuestionRefused and StorageError: opens none."""
        environment, turn = self._environment, self._turn
        for one in new:
            if problem := await problem_of_question(one):
                raise QuestionRefused(problem)
        if len(state) > MAX_STATE_CHARS:
            raise QuestionRefused(f"its state is longer than {MAX_STATE_CHARS} characters")
        if environment.open_questions[turn.tenant] + len(new) > MAX_OPEN_OF_TENANT:
            raise QuestionRefused(f"{MAX_OPEN_OF_TENANT} questions of the tenant are open")
        size = len(new) * QUESTION_BYTES + sys.getsizeof(state)
        if not environment.waiting_calls.grow(turn.turn_id, size):
            raise QuestionRefused(environment.waiting_calls.full().message)
        questions = tuple(HeldQuestion(self._question(index, one), hold) for one, hold in zip(new, holds, strict=True))
        opening = self._owner.ask(AskQuestions(index, questions))
        opening.add_done_callback(partial(self._give_back_unless_opened, size))
        await asyncio.shield(opening)
        return [one.question.question_id for one in questions]

    def _give_back_unless_opened(self, size: int, opening: "asyncio.Future[Done[Any]]") -> None:
        if opening.cancelled() or opening.exception() is not None:
            self._environment.waiting_calls.grow(self._turn.turn_id, -size)

    def _question(self, index: int, new: NewQuestion) -> Question:
        environment, turn, calls = self._environment, self._turn, self._owner.state
        call, now = calls.call(index), environment.clock()
        return Question(
            question_id=environment.new_id("que"),
            session_id=turn.session_id,
            turn_id=turn.turn_id,
            message_id=calls.message.message_id,
            part_index=index,
            tool_call_id=calls.message.parts[index].part_id,
            source=call.name.partition(".")[0],
            tool=call.name,
            prompt=new.prompt,
            form=new.form,
            created_at=now,
            expires_at=now + self._limit,
        )

    async def _reply(self, question_id: str, completed: asyncio.Event | None = None) -> QuestionReply:
        """Waits for the reply to a question. A link that the tool saw completed counts as accepted."""
        completing = [] if completed is None else [asyncio.create_task(completed.wait(), name="completed question")]
        try:
            while (asked := self._owner.state.questions[question_id]).is_open:
                if any(one.done() for one in completing):
                    await carry_out(self._owner, CloseQuestion(question_id, QuestionAnswer(QuestionAction.ACCEPT)))
                else:
                    await self._owner.changed(*completing)
            answer = asked.question.answer
            return QuestionReply((answer or CANCELLED).action, asked.content_json)
        finally:
            for one in completing:
                one.cancel()


def answered(
    calls: OpenCalls,
    asked: Iterable[AskedQuestion],
    answer: QuestionAnswer,
    content_json: str = "",
    further: Work | None = None,
) -> Decision[OpenCalls]:
    """Returns calls with an answer to open questions."""
    filled = [
        msgspec.structs.replace(
            one, held=HeldQuestion(one.question, _filled(one.held.hold, content_json)), content_json=content_json
        )
        for one in asked
    ]
    work = answering_work((one.held for one in filled), answer) + (further or Work())
    return Decision(calls.with_questions(_answered(one, answer) for one in filled), work)


def _answered(asked: AskedQuestion, answer: QuestionAnswer) -> AskedQuestion:
    question: Question = msgspec.structs.replace(asked.question, answer=answer)
    return msgspec.structs.replace(asked, held=HeldQuestion(question, asked.held.hold))


def _filled(hold: QuestionHold | None, content_json: str) -> QuestionHold | None:
    return None if hold is None else msgspec.structs.replace(hold, content_json=content_json)
