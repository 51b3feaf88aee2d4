"""Questions to people: permission requests and questions of tools. Lists the open ones and answers them."""

import asyncio
from contextlib import suppress
from functools import partial

from turnwire.core.environment import Environment
from turnwire.core.intake.requests import NewAnswer, Receipt, receipt_record
from turnwire.core.tools.open_calls import CallsClosed, other_answer
from turnwire.core.tools.permission_requests import AnswerPermission, answered_otherwise
from turnwire.core.tools.question_forms import problem_of_content
from turnwire.core.tools.questions import AnswerQuestion
from turnwire.core.turns.registry import Turns
from turnwire.core.use_cases.use_case import UseCase
from turnwire.domain.conversation.permissions import PermissionAnswer
from turnwire.domain.conversation.questions import Question, QuestionAction
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import InvalidRequest
from turnwire.domain.principal import Principal
from turnwire.ports.pages import Page, PermissionPage, QuestionPage


class Permissions:
    """The use cases about permission requests. Every method may raise SessionNotFound and StorageError."""

    def __init__(self, environment: Environment, turns: Turns) -> None:
        """Takes the ports and the turns."""
        self._environment = environment
        self._turns = turns

    async def respond(
        self, principal: Principal, session_id: str, permission_id: str, answer: PermissionAnswer
    ) -> None:
        """Answers an open request and returns when that is durable. The first answer wins.

        Idempotent: giving the same answer again succeeds. Safe to cancel: a commit that has begun completes.

        Raises:
            PermissionRequestNotFound: the session never had such a request.
            PermissionAlreadyAnswered: it has another answer, or its turn has ended.
        """
        session = await self._environment.session(principal, session_id)
        calls = self._turns.calls(session_id)
        if calls is not None and permission_id in calls.state.permissions:
            with suppress(CallsClosed):
                await asyncio.shield(calls.ask(AnswerPermission(permission_id, answer)))
                return
        request = await self._environment.store.of(session.tenant).permission(session_id, permission_id)
        if request.answer is None or request.answer.response is not answer.response:
            raise answered_otherwise(request)

    async def open(self, principal: Principal, session_id: str, page: Page) -> PermissionPage:
        """Returns a page of unanswered requests, oldest first.

        Args:
            principal: The caller.
            session_id: The session; "" for all sessions of the caller's tenant.
            page: The requested page.

        Raises:
            InvalidRequest: the token is not from this listing.
        """
        if session_id:
            await self._environment.session(principal, session_id)
        return await self._environment.store.of(principal.tenant).open_permissions(session_id or None, page)


class Questions(UseCase):
    """The use cases about questions. Every method may raise SessionNotFound and StorageError."""

    async def answer(self, principal: Principal, new: NewAnswer) -> int:
        """Answers an open question and returns when that is durable. The first answer wins.

        Idempotent when the request is named, and without content: declining or cancelling again succeeds. Safe to
        cancel: the answer is still stored.

        Returns:
            The session's sequence after that; 0 when an earlier request gave the answer.

        Raises:
            QuestionNotFound: the session never had such a question.
            QuestionAlreadyAnswered: it has another answer, or its time, its call or its turn has ended.
            InvalidRequest: the content does not fit the question, or the request's name was used for another one.
        """
        carry_out = partial(self._answer, principal, new)
        made = await self._requests.once(principal, new, carry_out)
        return 0 if isinstance(made, Receipt) else made

    async def open(self, principal: Principal, session_id: str, page: Page) -> QuestionPage:
        """Returns a page of unanswered questions, oldest first.

        Args:
            principal: The caller.
            session_id: The session; "" for all sessions of the caller's tenant.
            page: The requested page.

        Raises:
            InvalidRequest: the token is not from this listing.
        """
        if session_id:
            await self._environment.session(principal, session_id)
        return await self._environment.store.of(principal.tenant).open_questions(session_id or None, page)

    async def _answer(self, principal: Principal, new: NewAnswer) -> int:
        session = await self._environment.session(principal, new.session_id)
        stored = await self._asked(session, new.question_id)
        is_filled = new.answer.action is QuestionAction.ACCEPT and stored.answer is None
        if is_filled and (problem := await problem_of_content(stored, new.content_json)):
            raise InvalidRequest.of("content_json", problem)
        calls = self._turns.calls(session.session_id)
        if calls is not None and calls.question(new.question_id) is not None:
            record = receipt_record(principal, new, Receipt(session_id=session.session_id))
            with suppress(CallsClosed):
                answering = AnswerQuestion(new.question_id, new.answer, new.content_json, record)
                done = await asyncio.shield(calls.ask(answering))
                return done.committed.sequence if done.has_changed and done.committed is not None else 0
            stored = await self._asked(session, new.question_id)
        given = stored.answer
        if given is None or given.action is not new.answer.action or given.action is QuestionAction.ACCEPT:
            raise other_answer(new.question_id, given)
        return 0

    async def _asked(self, session: Session, question_id: str) -> Question:
        calls = self._turns.calls(session.session_id)
        if calls is not None and (asked := calls.question(question_id)) is not None:
            return asked
        return await self._environment.store.of(session.tenant).asked_question(session.session_id, question_id)
