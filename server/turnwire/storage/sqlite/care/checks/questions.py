"""Questions: columns agree with values, and what is open or kept belongs to a turn that has not ended."""

import sqlite3
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from turnwire.domain.conversation.questions import Question, QuestionAction, QuestionAnswer, QuestionHold
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.principal import is_staging
from turnwire.storage.sqlite.care.findings import Finding, Problem, Severity, Statement
from turnwire.storage.sqlite.care.inspection import Inspection

UNREADABLE = Problem("questions.body", Severity.ERROR, "a question cannot be read")
WRONG_TENANT = Problem("questions.tenant", Severity.ERROR, "a question is filed under another tenant than its session")
WRONG_OPEN = Problem("questions.open", Severity.ERROR, "the mark of an open question is wrong")
OPEN_TOO_LONG = Problem("questions.ended", Severity.ERROR, "a question is open, and its turn is not")
HELD_TOO_LONG = Problem(
    "questions.hold", Severity.ERROR, "what a call needed to go on is kept, and cannot be read or its turn has ended"
)

T = TypeVar("T")

_question = msgspec.json.Decoder(Question).decode
_hold = msgspec.json.Decoder(QuestionHold).decode


def check_questions(inspection: Inspection) -> Iterator[Finding]:
    """Compares each question with its columns and its turn."""
    rows = inspection.db.execute(
        "SELECT questions.id, question_id, open, questions.body, hold, session_id, session, questions.tenant,"
        " sessions.tenant FROM questions JOIN sessions ON sessions.id = questions.session ORDER BY questions.id"
    )
    for row, question_id, is_open, body, hold, session_id, session, tenant, owner in rows:
        inspection.advance("questions", 1)
        if is_staging(owner):
            continue
        if tenant != owner:
            repair = Statement("UPDATE questions SET tenant = ? WHERE id = ?", (owner, row))
            yield Finding(WRONG_TENANT, question_id, (repair,))
        question = _read(_question, body)
        if question is None or (question.question_id, question.session_id) != (question_id, session_id):
            yield Finding(UNREADABLE, question_id)
            continue
        runs = _runs(inspection.db, session, question.turn_id)
        if question.answer is None and not runs:
            yield Finding(OPEN_TOO_LONG, question_id, (_cancellation(row, question),))
        elif bool(is_open) != (question.answer is None):
            repair = Statement("UPDATE questions SET open = ? WHERE id = ?", (question.answer is None, row))
            yield Finding(WRONG_OPEN, question_id, (repair,))
        if hold is not None and (not runs or _read(_hold, hold) is None):
            yield Finding(
                HELD_TOO_LONG, question_id, (Statement("UPDATE questions SET hold = NULL WHERE id = ?", (row,)),)
            )


def _read(decode: Callable[[str], T], body: str) -> T | None:
    try:
        return decode(body)
    except msgspec.DecodeError:
        return None


def _runs(db: sqlite3.Connection, session: int, turn_id: str) -> bool:
    # the turn itself, not the mark, which may be wrong too
    query = "SELECT 1 FROM turns WHERE turn_id = ? AND session = ? AND json_extract(body, '$.status') <> ?"
    return db.execute(query, (turn_id, session, TurnStatus.ENDED)).fetchone() is not None


def _cancellation(row: int, question: Question) -> Statement:
    """Returns the end that every open question gets when its turn ends."""
    cancelled = msgspec.structs.replace(question, answer=QuestionAnswer(QuestionAction.CANCEL))
    body = msgspec.json.encode(cancelled).decode()
    return Statement("UPDATE questions SET open = 0, body = ? WHERE id = ?", (body, row))
