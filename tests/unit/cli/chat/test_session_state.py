"""What a session does now."""

import itertools

from opencode.event.session_event_pb2 import (
    MessageAdded,
    PermissionAsked,
    PermissionReplied,
    PermissionSnapshot,
    QuestionAnswered,
    QuestionAsked,
    QuestionSnapshot,
    QueueChanged,
    SessionDeleted,
    SessionEvent,
    SessionSnapshot,
    TurnEnded,
    TurnStarted,
)
from opencode.question.question_pb2 import Question
from opencode.session.session_pb2 import SessionInfo
from opencode.tool.tool_pb2 import PermissionRequest
from opencode.turn.turn_pb2 import QueueEntry, Turn
from turnwire.cli.chat.session_state import SessionState

REQUEST = PermissionRequest(id="p", turn_id="t")
STARTED = SessionEvent(turn_started=TurnStarted(turn=Turn(turn_id="t")))
ENDED = SessionEvent(turn_ended=TurnEnded(turn=Turn(turn_id="t")))
ASKED = SessionEvent(permission_asked=PermissionAsked(permission=REQUEST))


def after(*events: SessionEvent) -> SessionState:
    """Returns the state after events."""
    state = SessionState(itertools.count(5).__next__, "s")
    for event in events:
        state.apply(event)
    return state


def test_a_turn_runs_from_its_start_to_its_end() -> None:
    """The end of another turn, which was dropped while it waited, changes nothing."""
    dropped = SessionEvent(turn_ended=TurnEnded(turn=Turn(turn_id="other")))
    assert (after(STARTED, dropped).turn_id, after(STARTED, ENDED).turn_id) == ("t", "")
    assert after(STARTED, STARTED).turn_began_at == 5


def test_a_snapshot_tells_what_runs_and_waits() -> None:
    """As at the beginning of a watch."""
    session = SessionInfo(id="s", title="T", active_turn_id="t")
    state = after(SessionEvent(session_snapshot=SessionSnapshot(session=session, queue=[QueueEntry()])))
    assert (state.title, state.turn_id, state.queued) == ("T", "t", 1)
    state.apply(SessionEvent(queue_changed=QueueChanged()))
    assert state.queued == 0


def test_the_first_message_brings_a_title() -> None:
    """Later messages bring none, and leave it."""
    first = SessionEvent(message_added=MessageAdded(session_title="First words"))
    assert after(first, SessionEvent(message_added=MessageAdded())).title == "First words"


def test_questions_are_open_until_they_are_answered_by_anybody() -> None:
    """A snapshot brings the same question again."""
    again = SessionEvent(permission_snapshot=PermissionSnapshot(permission=REQUEST))
    state = after(STARTED, ASKED, again)
    assert list(state.requests.values()) == [REQUEST]
    state.apply(SessionEvent(permission_replied=PermissionReplied(permission_id="p")))
    assert state.requests == {}


def test_the_end_of_the_turn_closes_its_questions() -> None:
    """Whether or not that was told; so does the end of the session."""
    assert after(ASKED, ENDED).requests == {}
    gone = after(ASKED, SessionEvent(session_deleted=SessionDeleted()))
    assert (gone.deleted, gone.requests, gone.turn_id) == (True, {}, "")


def test_questions_of_tools_are_open_as_permission_requests_are() -> None:
    """In the order in which both came, until somebody answers or the turn ends."""
    question = Question(question_id="q", turn_id="t")
    asked = SessionEvent(question_asked=QuestionAsked(question=question))
    again = SessionEvent(question_snapshot=QuestionSnapshot(question=question))
    state = after(asked, ASKED, again)
    assert (list(state.requests), state.turn_id) == (["q", "p"], "t")
    state.apply(SessionEvent(question_answered=QuestionAnswered(question_id="q")))
    assert list(state.requests) == ["p"]
    assert after(asked, ENDED).requests == {}
