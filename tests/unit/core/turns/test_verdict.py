"""What an answer or an error means for its turn."""

import msgspec
import pytest

from tests.support.fakes.domain_values import make_answer, make_message
from turnwire.core.ending.closing import Ending
from turnwire.core.turns.verdict import MAX_PAUSES, Repetitions, ending_after, step_ending
from turnwire.domain.conversation.messages import (
    Failure,
    FinishReason,
    Message,
    MessageStatus,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.errors import ProviderError, ProviderUnavailable
from turnwire.ports.provider import StepFinished

STOP = StepFinished(FinishReason.STOP, "end_turn")
CUT = "the provider's stream ended without its end marker"
PAUSED = make_answer("msg_1", "thinking", finish_reason=FinishReason.PAUSED)


def _calling(output: str, finish_reason: FinishReason = FinishReason.TOOL_USE) -> Message:
    call = ToolUse(name="look", call_id="c1", input_json="{}", status=ToolStatus.SUCCESS, output=output)
    return make_answer("msg_1", call, finish_reason=finish_reason)


@pytest.mark.parametrize(
    ("finished", "failure", "contents", "ending"),
    [
        (STOP, None, (), Ending(FinishReason.STOP, None, "end_turn")),
        (STOP, None, (ToolUse(name="t"),), Ending(FinishReason.TOOL_USE, None, "end_turn")),
        (None, None, (), Ending(FinishReason.INTERRUPTED, Failure("PROVIDER_STREAM_CUT", CUT))),
        (
            STOP,
            ProviderUnavailable("down"),
            (),
            Ending(FinishReason.ERROR, Failure("PROVIDER_UNAVAILABLE", "down"), "end_turn"),
        ),
    ],
)
def test_the_end_marker_or_the_error_ends_a_step(
    finished: StepFinished | None, failure: ProviderError | None, contents: tuple[ToolUse, ...], ending: Ending
) -> None:
    """Without either the stream was cut; some servers say stop beside complete calls."""
    assert step_ending(finished, failure, make_message("msg_1", *contents)) == ending


@pytest.mark.parametrize(
    ("finish_reason", "status", "ending"),
    [
        (FinishReason.TOOL_USE, MessageStatus.COMPLETE, None),
        (FinishReason.PAUSED, MessageStatus.COMPLETE, None),
        (FinishReason.STOP, MessageStatus.COMPLETE, Ending(FinishReason.STOP)),
        (FinishReason.LENGTH, MessageStatus.COMPLETE, Ending(FinishReason.LENGTH)),
        (FinishReason.ERROR, MessageStatus.FAILED, Ending(FinishReason.ERROR)),
        (None, MessageStatus.INTERRUPTED, Ending(FinishReason.ERROR)),
    ],
)
def test_a_turn_goes_on_from_calls_and_pauses(
    finish_reason: FinishReason | None, status: MessageStatus, ending: Ending | None
) -> None:
    """Every other end of a step is the end of its turn."""
    assert ending_after([make_answer("msg_1", finish_reason=finish_reason, status=status)]) == ending


def test_a_turn_does_not_go_on_from_pauses_for_ever() -> None:
    """One pause more than the limit ends it, in a row or not; a step with calls still goes on."""
    assert ending_after([PAUSED] * MAX_PAUSES) is None
    assert ending_after([PAUSED] * MAX_PAUSES + [_calling("1"), PAUSED]) == Ending(FinishReason.PAUSED)
    assert ending_after([PAUSED] * (MAX_PAUSES + 1) + [_calling("1")]) is None


def _after(*steps: Message) -> Ending | None:
    repetitions = Repetitions(3)
    return [repetitions.add(step) for step in steps][-1]


def test_the_same_calls_with_the_same_results_end_a_turn() -> None:
    """Only in a row: another result, or a step between, begins the count anew."""
    same, other = _calling("1"), _calling("2")
    ending = _after(other, same, same, same)
    assert ending is not None
    assert ending.failure == Failure(
        "TOOL_CALL_REPEATED",
        "the model called look 3 times in a row with the same arguments and got the same result",
    )
    assert _after(other, same, same) is None
    assert _after(same, same, other, same) is None
    assert _after(same, same, PAUSED, same) is None
    assert _after(PAUSED, PAUSED, PAUSED) is None
    assert _after(*[_calling("1", FinishReason.PAUSED)] * 3) is None


def test_what_belongs_to_one_call_is_not_taken_for_another() -> None:
    """The same letters in other places are other calls, and no result is not an empty one."""
    call = ToolUse(name="look", input_json="{}", status=ToolStatus.SUCCESS, output="")
    others = [
        msgspec.structs.replace(call, name="loo", input_json="k{}"),
        msgspec.structs.replace(call, output=None),
        msgspec.structs.replace(call, output=None, error=""),
    ]
    same = make_answer("msg_1", call, finish_reason=FinishReason.TOOL_USE)
    assert _after(same, same, same) is not None
    for other in others:
        assert _after(same, same, make_answer("msg_1", other, finish_reason=FinishReason.TOOL_USE)) is None
