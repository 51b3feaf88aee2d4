"""Questions as work to store: opening, closing and letting go of them."""

from collections.abc import Iterable

import msgspec

from turnwire.core.work import Work
from turnwire.domain.conversation.events import QuestionAnswered, QuestionAsked
from turnwire.domain.conversation.questions import HeldQuestion, QuestionAction, QuestionAnswer
from turnwire.domain.errors import QuestionAlreadyAnswered
from turnwire.ports.commit import NewEvent, PutQuestion

CANCELLED = QuestionAnswer(QuestionAction.CANCEL)
"""The end of a question whose call or turn ends before somebody answers."""


def opening_work(asked: Iterable[HeldQuestion]) -> Work:
    """Returns the work that opens questions."""
    opened = tuple(asked)
    return Work(
        tuple(PutQuestion(one.question, one.hold) for one in opened),
        tuple(NewEvent(QuestionAsked(one.question), one.question.turn_id) for one in opened),
    )


def answering_work(asked: Iterable[HeldQuestion], answer: QuestionAnswer) -> Work:
    """Returns the work that stores an answer to open questions, with what their call needs to go on."""
    answered = tuple(HeldQuestion(msgspec.structs.replace(one.question, answer=answer), one.hold) for one in asked)
    kinds = ((QuestionAnswered(one.question.question_id, one.question.tool_call_id, answer), one) for one in answered)
    return Work(
        tuple(PutQuestion(one.question, one.hold) for one in answered),
        tuple(NewEvent(kind, one.question.turn_id) for kind, one in kinds),
    )


def ending_work(pending: Iterable[HeldQuestion]) -> Work:
    """Returns the work that ends the questions of a call or a turn that ends: none is open, nothing is kept of any."""
    loose = [HeldQuestion(one.question, None) for one in pending]
    closed = answering_work((one for one in loose if one.question.answer is None), CANCELLED)
    return closed + letting_go_work(one for one in loose if one.question.answer is not None)


def letting_go_work(answered: Iterable[HeldQuestion]) -> Work:
    """Returns the work that drops what a call needed to go on, because it does now."""
    return Work(tuple(PutQuestion(one.question) for one in answered))


def other_answer(question_id: str, answer: QuestionAnswer | None) -> QuestionAlreadyAnswered:
    """Returns the error for an answer to a question that has one."""
    action = (answer or CANCELLED).action
    return QuestionAlreadyAnswered(f"question {question_id!r} is closed: {action.value}", question_id)
