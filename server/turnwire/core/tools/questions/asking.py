"""The questions of the calls of one message: asks, answers, expires and ends them.

Some calls wait for a reply in memory and end with the process. Others have ended their request to the tool with
questions and go on with a new one (`pause`); what they need for that is stored, so they go on after a restart too.
"""

import asyncio
import contextlib
import sys
from asyncio import Future
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial

import msgspec

from turnwire.core.environment import Environment
from turnwire.core.rooms.waiting import MAX_OPEN_OF_CALL, QUESTION_BYTES
from turnwire.core.tools.questions.forms import problem_of_question
from turnwire.core.tools.questions.work import (
    CANCELLED,
    answering_work,
    ending_work,
    letting_go_work,
    opening_work,
    other_answer,
)
from turnwire.core.tools.results import StoredCalls
from turnwire.core.work import Work
from turnwire.domain.conversation.questions import (
    HeldQuestion,
    Question,
    QuestionAction,
    QuestionAnswer,
    QuestionHold,
    QuestionReply,
)
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import QuestionNotFound, StorageError
from turnwire.ports.commit import Committed
from turnwire.ports.tools import NewQuestion, QuestionRefused, ToolPause, ToolResumption

MAX_QUESTIONS_OF_CALL = 20
"""That one call asks in all, because a wild tool would ask for ever."""

MAX_STATE_CHARS = 64 * 1024
"""Of what a tool needs to go on; it is stored with each question."""

_RETRY_SECONDS = 0.5
"""Pause before the end of a question is stored again: a full disk stays full until somebody makes room."""

Store = Callable[[Work], "Future[Committed]"]


class _Asked:
    """One question: as it is, the commit of its last change, and its reply once that is durable.

    `ends_at` is when it expires, on the loop's clock: the time of day may be set while the question is open.
    """

    def __init__(self, held: HeldQuestion, left: timedelta) -> None:
        self.held = held
        self.ends_at = asyncio.get_running_loop().time() + left.total_seconds()
        self.storing: Future[Committed] | None = None
        self.reply: Future[QuestionReply] = asyncio.get_running_loop().create_future()
        if self.question.answer is not None:
            content_json = "" if held.hold is None else held.hold.content_json
            self.reply.set_result(QuestionReply(self.question.answer.action, content_json))

    @property
    def question(self) -> Question:
        return self.held.question

    @property
    def is_open(self) -> bool:
        return self.question.answer is None


class Questions:
    """The questions of the calls of one message. Used on the event loop only.

    A change takes effect in memory first and is undone if it cannot be stored, so the first of several answers wins.
    `_asked` holds the questions by id, `_totals` how many each call has asked, by part index.
    """

    def __init__(
        self, environment: Environment, turn: Turn, calls: StoredCalls, pending: Iterable[HeldQuestion] = ()
    ) -> None:
        """Args:
        environment: Ports and settings.
        turn: The turn of the message.
        calls: The calls.
        pending: Questions that an earlier process left.
        """
        self._environment = environment
        self._turn = turn
        self._calls = calls
        self._is_over = False
        self._limit = environment.settings.limits.question_timeout
        now = environment.clock()  # only the time of day tells what is left of a question of an earlier process
        self._asked = {
            held.question.question_id: _Asked(held, min(max(held.question.expires_at - now, timedelta()), self._limit))
            for held in pending
        }
        self._totals = Counter(one.question.part_index for one in self._asked.values())
        self._count(len(self.open_questions))

    @property
    def open_questions(self) -> tuple[Question, ...]:
        """The unanswered questions, oldest first."""
        return tuple(one.question for one in self._asked.values() if one.is_open)

    @property
    def pending(self) -> tuple[HeldQuestion, ...]:
        """The questions that are open or whose call has yet to go on, oldest first."""
        return tuple(one.held for one in self._asked.values() if one.is_open or one.held.hold is not None)

    def has_question(self, question_id: str) -> bool:
        """Returns whether one of these calls has this question."""
        return question_id in self._asked

    async def opened(self, question_id: str) -> Question:
        """Returns a question of these calls once it is stored: who begins to watch is told of it before.

        Raises:
            QuestionNotFound: it could not be stored, so nobody was asked.
        """
        return (await self._opened(question_id)).question

    def is_paused(self, index: int) -> bool:
        """Returns whether the call in one part has paused with questions, and has not gone on."""
        return bool(self._held_of(index))

    def end(self) -> None:
        """Leaves the open questions to the end of the turn, or to the next process."""
        if not self._is_over:
            self._is_over = True
            self._count(-len(self.open_questions))

    async def wait_stored(self) -> None:
        """Returns when no commit is pending. Safe to cancel."""
        while storing := [one.storing for one in self._asked.values() if one.storing and not one.storing.done()]:
            await asyncio.wait(storing)

    async def ask(self, index: int, new: NewQuestion) -> QuestionReply:
        """Asks on behalf of the running call in one part, and returns the reply. Cancelling this ends the question.

        Raises:
            QuestionRefused: the question is not valid, or too many are asked or open.
            StorageError: the question could not be stored.
        """
        [asked] = await self._open(index, [new], "", None)
        try:
            return await self._reply(asked, new.completed)
        except asyncio.CancelledError:
            if asked.is_open and not self._is_over:
                self._close([asked], CANCELLED)
            raise

    async def pause(self, index: int, pause: ToolPause) -> ToolResumption:
        """Asks the questions with which the call in one part has paused, and returns what it goes on with.

        What it returns is no longer stored: the call goes on once. Cancelling this leaves the questions.

        Raises:
            QuestionRefused, StorageError: as `ask`. No question is open then.
        """
        await self._open(index, [new for _, new in pause.questions], pause.state, [key for key, _ in pause.questions])
        return await self.resumption(index)

    async def resumption(self, index: int) -> ToolResumption:
        """Returns what a call that has paused goes on with, once all its questions are closed; see `pause`."""
        paused = self._held_of(index)
        replies = [await self._reply(one) for one in paused]
        holds = [one.held.hold for one in paused if one.held.hold is not None]
        work = letting_go_work(one.held for one in paused)
        await asyncio.shield(self._commit(work))
        for one in paused:
            one.held = HeldQuestion(one.question, None)
        named = zip((hold.key for hold in holds), replies, strict=True)
        return ToolResumption(holds[0].state, tuple(named))

    async def answer(
        self, question_id: str, answer: QuestionAnswer, content_json: str, further: Work
    ) -> Committed | None:
        """Answers a question. Safe to cancel: the answer is still stored.

        Args:
            question_id: A question of these calls.
            answer: The answer.
            content_json: What was filled in, which fits the question.
            further: More work for the same commit.

        Returns:
            The commit; None when an earlier request gave the same answer.

        Raises:
            QuestionNotFound: it could not be stored, so nobody was asked.
            QuestionAlreadyAnswered: it has another answer, or an answer with content.
            StorageError: the answer could not be stored.
        """
        asked = await self._opened(question_id)
        if asked.is_open:
            return await asyncio.shield(self._close([asked], answer, content_json, further))
        given = asked.question.answer
        if given is None or given.action is not answer.action or answer.action is QuestionAction.ACCEPT:
            raise other_answer(question_id, given)
        if asked.storing is not None:
            await asyncio.shield(asked.storing)
        return None

    def end_call(self, index: int, store: Store) -> "Future[Committed]":
        """Stores the end of a call together with the end of its questions.

        Args:
            index: The part of the call.
            store: Commits the end of the call with further work.
        """
        pending = [
            one
            for one in self._asked.values()
            if one.question.part_index == index and (one.is_open or one.held.hold is not None)
        ]
        return self._change(pending, CANCELLED, "", ending_work(one.held for one in pending), store, keeps_hold=False)

    def _held_of(self, index: int) -> list[_Asked]:
        asked = self._asked.values()
        return [one for one in asked if one.question.part_index == index and one.held.hold is not None]

    async def _open(
        self, index: int, new: Sequence[NewQuestion], state: str, keys: Sequence[str] | None
    ) -> list[_Asked]:
        """Opens questions in one commit. Raises QuestionRefused and StorageError, and opens none of them then."""
        for one in new:
            if problem := await problem_of_question(one, self._environment.schemas, self._turn.tenant):
                raise QuestionRefused(problem)
        if problem := self._problem(index, len(new), state):
            raise QuestionRefused(problem)
        holds = [None] * len(new) if keys is None else [QuestionHold(key=key, state=state) for key in keys]
        opened = [
            _Asked(HeldQuestion(self._question(index, one), hold), self._limit)
            for one, hold in zip(new, holds, strict=True)
        ]
        self._totals[index] += len(opened)
        self._count(len(opened))
        # before the commit: who begins to watch right after it must see them
        self._asked |= {one.question.question_id: one for one in opened}
        storing = self._commit(opening_work(one.held for one in opened))
        for asked in opened:
            asked.storing = storing
        storing.add_done_callback(partial(self._finish_opening, opened))
        await asyncio.shield(storing)
        return opened

    async def _opened(self, question_id: str) -> _Asked:
        asked = self._asked[question_id]
        if asked.is_open and asked.storing is not None:
            await asyncio.wait((asked.storing,))
            if question_id not in self._asked:
                raise QuestionNotFound(question_id)
        return asked

    def _finish_opening(self, opened: list[_Asked], storing: "Future[Committed]") -> None:
        if _failed(storing):
            for one in opened:
                del self._asked[one.question.question_id]
            self._count(-len(opened))

    def _problem(self, index: int, more: int, state: str) -> str:
        if len(state) > MAX_STATE_CHARS:
            return f"what it needs to go on is larger than {MAX_STATE_CHARS} characters"
        if self._totals[index] + more > MAX_QUESTIONS_OF_CALL:
            return f"the call has asked {MAX_QUESTIONS_OF_CALL} questions, and may ask no more"
        if sum(one.part_index == index for one in self.open_questions) + more > MAX_OPEN_OF_CALL:
            return f"{MAX_OPEN_OF_CALL} questions of the call are open"
        if problem := self._environment.open_questions.problem(self._turn.tenant, self._turn.session_id, more):
            return problem
        has_room = self._calls.has_room(more * QUESTION_BYTES + sys.getsizeof(state))
        return "" if has_room else self._calls.full().message

    def _question(self, index: int, new: NewQuestion) -> Question:
        environment, turn, message = self._environment, self._turn, self._calls.message
        call, now = self._calls.call(index), environment.clock()
        return Question(
            question_id=environment.new_id("que"),
            session_id=turn.session_id,
            turn_id=turn.turn_id,
            message_id=message.message_id,
            part_index=index,
            tool_call_id=message.parts[index].part_id,
            source=call.name.partition(".")[0],
            tool=call.name,
            prompt=new.prompt,
            form=new.form,
            created_at=now,
            expires_at=now + self._limit,
        )

    async def _reply(self, asked: _Asked, completed: asyncio.Event | None = None) -> QuestionReply:
        """Waits for the reply to a question; lets it expire. A link that the tool saw completed counts as accepted."""
        completing = None if completed is None else asyncio.create_task(completed.wait(), name="completed question")
        try:
            while not asked.reply.done():
                left = asked.ends_at - asyncio.get_running_loop().time()
                over = completing is not None and completing.done()
                if asked.is_open and (over or left <= 0):
                    action = QuestionAction.ACCEPT if over else QuestionAction.EXPIRED
                    try:
                        await asyncio.shield(self._close([asked], QuestionAnswer(action)))
                    except StorageError:
                        await asyncio.sleep(_RETRY_SECONDS)
                    continue
                waiting: list[Future[object]] = [asked.reply]  # type: ignore[list-item]
                if completing is not None and not completing.done():
                    waiting.append(completing)  # type: ignore[arg-type]
                await asyncio.wait(waiting, timeout=max(left, 0.01), return_when=asyncio.FIRST_COMPLETED)
            return asked.reply.result()
        finally:
            if completing is not None:
                completing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await completing

    def _close(
        self, asked: list[_Asked], answer: QuestionAnswer, content_json: str = "", further: Work | None = None
    ) -> "Future[Committed]":
        """Stores an answer to open questions."""
        held = [HeldQuestion(one.question, _filled(one.held.hold, content_json)) for one in asked]
        work = answering_work(held, answer) + (further or Work())
        return self._change(asked, answer, content_json, work, self._commit, keeps_hold=True)

    def _change(
        self,
        asked: Sequence[_Asked],
        answer: QuestionAnswer,
        content_json: str,
        work: Work,
        store: Store,
        *,
        keeps_hold: bool,
    ) -> "Future[Committed]":
        """Changes questions in memory and stores the work; undoes the change if it cannot be stored."""
        before = [(one, one.held) for one in asked]
        opened = [one for one in asked if one.is_open]
        for one in asked:
            answered = msgspec.structs.replace(one.question, answer=answer) if one.is_open else one.question
            one.held = HeldQuestion(answered, _filled(one.held.hold, content_json) if keeps_hold else None)
        self._count_live(-len(opened))
        storing = store(work)
        for one in asked:
            one.storing = storing

        def finish(storing: "Future[Committed]") -> None:
            if _failed(storing):
                for one, held in before:
                    one.held, one.storing = held, None
                self._count_live(len(opened))
                return
            for one in opened:
                one.reply.set_result(QuestionReply(answer.action, content_json))

        storing.add_done_callback(finish)
        return storing

    def _commit(self, work: Work) -> "Future[Committed]":
        return self._environment.commit(self._turn.tenant, self._turn.session_id, work, self._environment.clock())

    def _count_live(self, by: int) -> None:
        if not self._is_over:  # `end` has taken all of them off
            self._count(by)

    def _count(self, by: int) -> None:
        if by:
            self._environment.open_questions.change(self._turn.tenant, self._turn.session_id, by)


def _filled(hold: QuestionHold | None, content_json: str) -> QuestionHold | None:
    return None if hold is None else msgspec.structs.replace(hold, content_json=content_json)


def _failed(storing: "Future[Committed]") -> bool:
    return storing.cancelled() or storing.exception() is not None
