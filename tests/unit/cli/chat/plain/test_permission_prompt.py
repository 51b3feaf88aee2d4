"""What is typed at the terminal becomes the answer to a permission request."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from opencode.event.session_event_pb2 import PermissionAsked, PermissionSnapshot, SessionEvent
from opencode.tool.tool_pb2 import PermissionRequest, PermissionResponse
from turnwire.cli.chat.plain.permission_prompt import NOBODY, PermissionPrompt

REQUEST = PermissionRequest(
    id="per_1", session_id="ses_1", title='fs.write {"path": "a"}\x1b[2J', metadata_json='{"arguments":{"path":"a"}}'
)
EVENTS = [
    SessionEvent(permission_asked=PermissionAsked(permission=REQUEST)),
    SessionEvent(permission_snapshot=PermissionSnapshot(permission=REQUEST)),
]


class Permissions:
    """Remembers the answers."""

    def __init__(self) -> None:
        """Begins without answers."""
        self.answers: list[PermissionResponse] = []

    def RespondToPermission(self, answer: PermissionResponse) -> None:
        """Takes an answer."""
        self.answers.append(answer)


def answered(ask: Callable[[str], str] | None) -> tuple[list[tuple[str, str]], str]:
    """Returns the answers, as word and reason, and what was printed."""
    permissions, printed = Permissions(), io.StringIO()
    PermissionPrompt(Console(file=printed), permissions, ask).answer(EVENTS)  # type: ignore[arg-type]
    assert all((a.session_id, a.permission_id) == ("ses_1", "per_1") for a in permissions.answers)
    return [(answer.response, answer.reason) for answer in permissions.answers], printed.getvalue()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("y", ("once", "")),
        (" Yes ", ("once", "")),
        ("A", ("always", "")),
        ("always", ("always", "")),
        ("n", ("reject", "")),
        ("", ("reject", "")),
        ("use the other file", ("reject", "use the other file")),
    ],
)
def test_what_is_typed_is_the_answer(typed: str, expected: tuple[str, str]) -> None:
    """Once for each request, however often it is shown; the title cannot steer the terminal."""
    answers, printed = answered(lambda _: typed)
    assert answers == [expected]
    assert 'asks to run fs.write {"path": "a"}' in printed
    assert "\x1b" not in printed


def test_a_question_mark_shows_all_of_the_request_and_asks_again() -> None:
    """It is no answer, and no more is a small a."""
    typed = iter(["?", " ? ", "a", "y"])
    answers, printed = answered(lambda _: next(typed))
    assert answers == [("once", "")]
    assert printed.count('{"arguments":{"path":"a"}}') == 3


def test_an_interrupted_question_is_not_answered() -> None:
    """The turn is ended then, and the question with it."""

    def interrupt(_: str) -> str:
        raise KeyboardInterrupt

    assert answered(interrupt)[0] == []


def test_the_end_of_the_input_is_a_no() -> None:
    """As when Ctrl-D is pressed at the question."""

    def end(_: str) -> str:
        raise EOFError

    assert answered(end)[0] == [("reject", "")]


def test_where_nobody_can_be_asked_the_answer_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piped chat does not wait for ever; the model reads why."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert answered(None)[0] == [("reject", NOBODY)]
