"""What is typed at the terminal becomes the answer to a question of a tool."""

import io
import json
from collections.abc import Callable

import grpc
import pytest
from rich.console import Console

from opencode.event.session_event_pb2 import QuestionAsked, QuestionSnapshot, SessionEvent
from opencode.question.question_pb2 import (
    QUESTION_ACTION_ACCEPT,
    QUESTION_ACTION_CANCEL,
    QUESTION_ACTION_DECLINE,
    AnswerQuestionRequest,
    LinkForm,
    Question,
    SchemaForm,
)
from turnwire.cli.chat.plain.permission_prompt import NOBODY
from turnwire.cli.chat.plain.question_prompt import QuestionPrompt

FORM = json.dumps(
    {"type": "object", "properties": {"size": {"type": "string", "enum": ["s", "l"], "description": "How\x1b[2J big"}}}
)
QUESTION = Question(
    question_id="q", session_id="ses_1", source="ask", prompt="Which\x1b]0;t\x07?", schema=SchemaForm(schema_json=FORM)
)
LINK = Question(question_id="q", session_id="ses_1", source="ask", prompt="Go", link=LinkForm(url="https://there/"))


class Refusal(grpc.RpcError):
    """What the server says to the first answer."""

    def __init__(self, code: grpc.StatusCode) -> None:
        """Takes the status."""
        super().__init__()
        self._code = code

    def code(self) -> grpc.StatusCode:
        """Returns the status."""
        return self._code

    def details(self) -> str:
        """Returns the message."""
        return "it does not fit: size: too small"


class Questions:
    """Remembers the answers; refuses the first ones."""

    def __init__(self, *refusals: Refusal) -> None:
        """Takes what it says first."""
        self._refusals = list(refusals)
        self.answers: list[AnswerQuestionRequest] = []

    def AnswerQuestion(self, answer: AnswerQuestionRequest) -> None:
        """Takes an answer."""
        self.answers.append(answer)
        if self._refusals:
            raise self._refusals.pop(0)


def answered(
    ask: Callable[[str], str] | None, question: Question = QUESTION, *refusals: Refusal
) -> tuple[list[AnswerQuestionRequest], str]:
    """Returns the answers and what was printed. The question comes twice."""
    questions, printed = Questions(*refusals), io.StringIO()
    events = [
        SessionEvent(question_asked=QuestionAsked(question=question)),
        SessionEvent(question_snapshot=QuestionSnapshot(question=question)),
    ]
    QuestionPrompt(Console(file=printed), questions, ask).answer(events)  # type: ignore[arg-type]
    return questions.answers, printed.getvalue()


def typing(*lines: str) -> Callable[[str], str]:
    """Returns what types lines."""
    left = iter(lines)
    return lambda _: next(left)


def test_a_form_is_asked_line_by_line() -> None:
    """Once, however often it comes; its texts cannot steer the terminal."""
    (answer,), printed = answered(typing("huge", "2", "y"))
    assert (answer.session_id, answer.question_id, answer.action) == ("ses_1", "q", QUESTION_ACTION_ACCEPT)
    assert answer.content_json == '{"size": "l"}'
    assert (
        "[ask asks]\nWhich]0;t?\n1 of 1: size (one of the choices, optional)\n  How[2J big\n  1 s\n  2 l\n" in printed
    )
    assert "size: 'huge' is not one of the choices" in printed
    assert "  1 size: l\n" in printed
    assert "\x1b" not in printed


def test_an_address_is_shown_whole() -> None:
    """And agreed to, declined or put away."""
    for line, action in (("y", QUESTION_ACTION_ACCEPT), ("n", QUESTION_ACTION_DECLINE), ("c", QUESTION_ACTION_CANCEL)):
        (answer,), printed = answered(typing(line), LINK)
        assert (answer.action, answer.content_json) == (action, "")
        assert "the address: https://there/\n" in printed


def test_a_field_that_the_server_refuses_is_asked_again() -> None:
    """With its words. Any other error ends the question: somebody else answered first."""
    answers, printed = answered(typing("s", "y", "l", "y"), QUESTION, Refusal(grpc.StatusCode.INVALID_ARGUMENT))
    assert [answer.content_json for answer in answers] == ['{"size": "s"}', '{"size": "l"}']
    assert "INVALID_ARGUMENT: it does not fit: size: too small" in printed
    answers, printed = answered(typing("s", "y"), QUESTION, Refusal(grpc.StatusCode.FAILED_PRECONDITION))
    assert len(answers) == 1
    assert "[FAILED_PRECONDITION" in printed


def test_an_interrupted_question_is_not_answered() -> None:
    """The turn is ended then, and the question with it."""

    def interrupt(_: str) -> str:
        raise KeyboardInterrupt

    assert answered(interrupt)[0] == []


def test_the_end_of_the_input_declines() -> None:
    """As it denies a permission request."""

    def end(_: str) -> str:
        raise EOFError

    assert [answer.action for answer in answered(end)[0]] == [QUESTION_ACTION_DECLINE]


def test_where_nobody_can_be_asked_it_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piped chat does not wait for ever."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    ((answer,), _) = answered(None)
    assert (answer.action, answer.reason) == (QUESTION_ACTION_DECLINE, NOBODY)
