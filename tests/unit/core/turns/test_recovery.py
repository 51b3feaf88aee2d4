"""From where a turn goes on after a restart."""

import pytest

from tests.support.fakes.domain_values import make_answer, make_message, make_permission, make_turn, open_part
from turnwire.core.turns.recovery import MAX_RESUMES, ResumePoint, resume_point
from turnwire.domain.conversation.messages import FinishReason, Message, MessageStatus, Text, ToolStatus, ToolUse

USER = make_message("msg_0", turn_id="trn_1")
OPEN = make_answer("msg_1", ToolUse(name="read", input_json="{}"), finish_reason=FinishReason.TOOL_USE)
SETTLED = make_answer(
    "msg_1",
    ToolUse(name="read", input_json="{}", status=ToolStatus.SUCCESS, output="1"),
    finish_reason=FinishReason.TOOL_USE,
)
PAUSED = make_answer("msg_1", "so far", finish_reason=FinishReason.PAUSED)
SILENT = make_answer("msg_2", status=MessageStatus.STREAMING)
SPEAKING = make_answer("msg_2", open_part(0, Text("so")), status=MessageStatus.STREAMING)
CUT = make_answer("msg_1", "so", status=MessageStatus.INTERRUPTED, finish_reason=FinishReason.INTERRUPTED)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((USER,), ResumePoint((), None, ())),
        ((USER, SILENT), ResumePoint((), SILENT, ())),
        ((USER, OPEN), ResumePoint((OPEN,), None, ())),
        ((USER, SETTLED), ResumePoint((SETTLED,), None, ())),
        ((USER, SETTLED, SILENT), ResumePoint((SETTLED,), SILENT, ())),
        ((USER, PAUSED), ResumePoint((PAUSED,), None, ())),
        ((USER, SPEAKING), None),
        ((USER, SETTLED, SPEAKING), None),
        ((USER, CUT), None),
    ],
    ids=["no step", "silent", "open call", "settled call", "silent after calls", "paused", "speaking", "later", "cut"],
)
def test_a_turn_goes_on_from_its_last_step_that_ended_in_order(
    messages: tuple[Message, ...], expected: ResumePoint | None
) -> None:
    """Text of a dead process is never joined with a second attempt."""
    assert resume_point(make_turn(), messages, ()) == expected


def test_only_the_turns_own_questions_go_on() -> None:
    """Those of other turns are none of its business."""
    own = make_permission()
    point = resume_point(make_turn(), (USER, OPEN), (own, make_permission("per_2", turn_id="trn_2")))
    assert point.permissions == (own,)


def test_a_turn_that_takes_the_server_down_is_given_up() -> None:
    """After three attempts without a further step; a step more begins anew, and waiting for people does not count."""
    tried = make_turn(resumes=MAX_RESUMES, steps=1)
    assert resume_point(tried, (USER, SETTLED), ()) is None
    assert resume_point(tried, (USER, SETTLED, SETTLED), ()) is not None
    assert resume_point(make_turn(resumes=MAX_RESUMES - 1, steps=1), (USER, SETTLED), ()) is not None
    assert resume_point(tried, (USER, OPEN), ()) is not None
