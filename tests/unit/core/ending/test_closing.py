"""Ending messages and turns: the same facts for an orderly end, an abort, a cut and a crash."""

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, later, make_answer, make_message, make_turn, open_part
from turnwire.core.ending.closing import CUT_CALL, UNANSWERED_CALL, Ending, close_calls, close_message, end_turn
from turnwire.core.ending.spending import spent_by_call, spent_by_turn
from turnwire.core.work import Work
from turnwire.domain.conversation.events import MessageFinished, PartFinished, ToolCallUpdated, TurnEnded
from turnwire.domain.conversation.messages import (
    Failure,
    FinishReason,
    Message,
    MessageStatus,
    Part,
    PartStatus,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.money import Usage
from turnwire.ports.commit import NewEvent, PutMessage, PutTurn

END = later(9)
ABORTED = Ending(FinishReason.ABORTED)
CUT = Ending(FinishReason.INTERRUPTED, Failure("PROVIDER_STREAM_CUT", "cut"))
FAILED = Ending(FinishReason.ERROR, Failure("PROVIDER_UNAVAILABLE", "down"))
CALL = ToolUse(name="read", call_id="c1", input_json="{}")


def _streaming(*contents: object, **fields: object) -> Message:
    return make_answer("msg_1", *contents, status=MessageStatus.STREAMING, **fields)


def _done(part: Part, status: PartStatus = PartStatus.COMPLETE, **fields: object) -> Part:
    return msgspec.structs.replace(part, status=status, **fields)


def _events(*kinds: object) -> tuple[NewEvent, ...]:
    return tuple(NewEvent(kind, "trn_1") for kind in kinds)


def _ended(message: Message, ending: Ending, parts: tuple[Part, ...]) -> Message:
    return msgspec.structs.replace(
        message,
        parts=parts,
        status=ending.status,
        updated_at=END,
        finish_reason=ending.finish_reason,
        provider_finish_reason=ending.provider_finish_reason,
        failure=ending.failure,
    )


def _finished(message: Message) -> MessageFinished:
    return MessageFinished(msgspec.structs.replace(message, parts=()))


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        (Ending(FinishReason.STOP), MessageStatus.COMPLETE),
        (Ending(FinishReason.LENGTH), MessageStatus.COMPLETE),
        (Ending(FinishReason.CONTENT_FILTER), MessageStatus.COMPLETE),
        (ABORTED, MessageStatus.INTERRUPTED),
        (CUT, MessageStatus.INTERRUPTED),
        (FAILED, MessageStatus.FAILED),
    ],
)
def test_the_ending_decides_the_status(ending: Ending, status: MessageStatus) -> None:
    """Orderly, interrupted or failed."""
    assert ending.status is status


def test_an_orderly_end_finishes_open_parts() -> None:
    """Open parts become complete, each with its event; ended ones are not told again; all are written."""
    first, second = _streaming("a").parts[0], open_part(1, Text("b"))
    message = _streaming(first, second)
    ending = Ending(FinishReason.STOP, None, "end_turn")
    expected = _ended(message, ending, (first, _done(second)))
    assert close_message(message, ending, END) == (
        expected,
        Work((PutMessage(expected),), _events(PartFinished("msg_1", _done(second)), _finished(expected))),
    )


@pytest.mark.parametrize("ending", [ABORTED, CUT, FAILED])
def test_text_so_far_is_kept_and_marked(ending: Ending) -> None:
    """After an abort, a cut or a failure the open part is interrupted and keeps its text."""
    part = open_part(0, Text("so far"))
    message = _streaming(part)
    expected = _ended(message, ending, (_done(part, PartStatus.INTERRUPTED),))
    closed, work = close_message(message, ending, END)
    assert closed == expected
    assert work.events == _events(PartFinished("msg_1", _done(part, PartStatus.INTERRUPTED)), _finished(expected))


def test_calls_of_an_orderly_step_wait_for_their_results() -> None:
    """They start, and are announced after the end of their message, when a client may answer them."""
    part = open_part(0, CALL)
    message = _streaming(part)
    ending = Ending(FinishReason.TOOL_USE)
    started = _done(part, content=msgspec.structs.replace(CALL, started_at=END))
    expected = _ended(message, ending, (started,))
    closed, work = close_message(message, ending, END)
    assert closed == expected
    assert work.events == _events(
        PartFinished("msg_1", started),
        _finished(expected),
        ToolCallUpdated("msg_1", "prt_0", 0, started.content),
    )


@pytest.mark.parametrize("ending", [ABORTED, CUT, FAILED])
def test_a_call_that_was_cut_is_cancelled(ending: Ending) -> None:
    """It was never complete, so nobody ran it; its arguments stay as far as they came."""
    part = open_part(0, ToolUse(name="read", input_json='{"pa'))
    closed, work = close_message(_streaming(part), ending, END)
    call = msgspec.structs.replace(part.content, status=ToolStatus.CANCELLED, error=CUT_CALL, finished_at=END)
    expected = _done(part, PartStatus.INTERRUPTED, content=call)
    assert closed.parts == (expected,)
    assert work.events == _events(PartFinished("msg_1", expected), _finished(closed))


@pytest.mark.parametrize("ending", [ABORTED, CUT, FAILED])
def test_a_complete_call_of_a_broken_step_gets_an_error(ending: Ending) -> None:
    """It was complete but will never be answered; watchers hear of its result."""
    message = _streaming(CALL)
    call = msgspec.structs.replace(CALL, status=ToolStatus.ERROR, error=UNANSWERED_CALL, finished_at=END)
    closed, work = close_message(message, ending, END)
    assert closed.tool_calls() == ((_done(message.parts[0], content=call), call),)
    assert work.events == _events(ToolCallUpdated("msg_1", "prt_0", 0, call), _finished(closed))


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.REFUSAL, FinishReason.CONTENT_FILTER])
def test_no_call_of_a_truncated_step_runs(reason: FinishReason) -> None:
    """A step that ended in order but not to use tools leaves no call waiting."""
    closed, _ = close_message(_streaming(CALL, open_part(1, CALL)), Ending(reason), END)
    expected = msgspec.structs.replace(CALL, status=ToolStatus.CANCELLED, error=CUT_CALL, finished_at=END)
    assert [call for _, call in closed.tool_calls()] == [expected, expected]


def test_settled_calls_are_left_alone() -> None:
    """A result that is there stays."""
    settled = msgspec.structs.replace(CALL, status=ToolStatus.SUCCESS, output="1", finished_at=NOW)
    message = _streaming(settled)
    closed, work = close_message(message, ABORTED, END)
    assert closed.parts == message.parts
    assert work.events == _events(_finished(closed))
    assert close_calls(make_answer("msg_1", settled), END) == (make_answer("msg_1", settled), Work())


def test_waiting_calls_are_settled_when_their_turn_ends() -> None:
    """Each gets the error that says so, all in one write."""
    message = make_answer("msg_1", CALL, "text", CALL)
    failed = msgspec.structs.replace(CALL, status=ToolStatus.ERROR, error=UNANSWERED_CALL, finished_at=END)
    both = make_answer("msg_1", failed, "text", failed, updated_at=END)
    assert close_calls(message, END) == (
        both,
        Work(
            (PutMessage(both),),
            _events(ToolCallUpdated("msg_1", "prt_0", 0, failed), ToolCallUpdated("msg_1", "prt_2", 2, failed)),
        ),
    )


def test_a_turn_sums_its_steps() -> None:
    """Usage bucket by bucket, cost and number of steps; its end is the last event."""
    steps = [
        make_answer("msg_1", "a", usage=Usage(input_tokens=1, output_tokens=2), cost_pico_usd=10),
        make_answer("msg_2", "b", usage=Usage(input_tokens=3, reasoning_tokens=4), cost_pico_usd=5),
    ]
    turn = make_turn()
    usage = Usage(input_tokens=4, output_tokens=2, reasoning_tokens=4)
    over = msgspec.structs.replace(
        turn,
        status=TurnStatus.ENDED,
        ended_at=END,
        finish_reason=FinishReason.STOP,
        usage=usage,
        cost_pico_usd=15,
        steps=2,
    )
    user = make_message("msg_user", "hi")
    assert end_turn(turn, [user, *steps], Ending(FinishReason.STOP), END) == spent_by_turn(turn, END) + Work(
        (PutTurn(over),), _events(TurnEnded(over))
    )


@pytest.mark.parametrize(
    ("costs", "usages", "total"),
    [
        ([10, None], [Usage(input_tokens=1), Usage(input_tokens=1)], None),
        ([10, None], [Usage(input_tokens=1), None], 10),
        ([0, 0], [Usage(), Usage()], 0),
        ([None, None], [None, None], None),
        ([], [], None),
    ],
)
def test_an_unknown_price_is_never_counted_as_nothing(
    costs: list[int | None], usages: list[Usage | None], total: int | None
) -> None:
    """One step of unknown cost makes the turn's unknown; a step without usage costs nothing."""
    steps = [
        make_answer(f"msg_{i}", "a", cost_pico_usd=cost, usage=usage)
        for i, (cost, usage) in enumerate(zip(costs, usages, strict=True))
    ]
    [_, change] = end_turn(make_turn(), steps, Ending(FinishReason.STOP), END).changes
    assert isinstance(change, PutTurn)
    assert (change.turn.cost_pico_usd, change.turn.steps) == (total, len(costs))
    known = sum(cost or 0 for cost in costs) or None
    assert change.turn.known_cost_pico_usd == (known if total is None else None)


def test_the_end_of_a_turn_closes_what_is_open() -> None:
    """After a crash: the streaming answer is closed, an earlier step's call is settled, then the turn ends."""
    ending = Ending(FinishReason.INTERRUPTED, Failure("SERVER_RESTARTED", "restarted"))
    earlier = make_answer("msg_1", CALL)
    streaming = make_answer("msg_2", open_part(0, Text("so f")), status=MessageStatus.STREAMING)
    closed, closing = close_message(streaming, ending, END)
    settled, settling = close_calls(earlier, END)
    turn = make_turn()
    work = end_turn(turn, [earlier, streaming], ending, END)
    over = msgspec.structs.replace(
        turn,
        status=TurnStatus.ENDED,
        ended_at=END,
        finish_reason=FinishReason.INTERRUPTED,
        failure=ending.failure,
        steps=2,
    )
    spent = spent_by_call(turn, closed, END) + spent_by_turn(turn, END)
    assert work == settling + closing + spent + Work((PutTurn(over),), _events(TurnEnded(over)))
    assert (closed.status, settled.status) == (MessageStatus.INTERRUPTED, MessageStatus.COMPLETE)


@pytest.mark.parametrize("ending", [Ending(FinishReason.TOOL_USE), Ending(FinishReason.LENGTH), ABORTED])
def test_a_call_that_was_refused_keeps_its_result(ending: Ending) -> None:
    """However the answer ends; nothing more is told of it."""
    refused = ToolUse(name="fly", status=ToolStatus.ERROR, error="there is no such tool", started_at=NOW)
    closed, work = close_message(_streaming(refused, CALL), ending, END)
    assert closed.parts[0].content == refused
    updates = [event.kind for event in work.events if isinstance(event.kind, ToolCallUpdated)]
    assert [update.part_index for update in updates] == [1]


def test_the_end_of_a_refused_call_is_told_when_it_could_not_be_saved_before() -> None:
    """The part ends with the error in it."""
    refused = ToolUse(name="fly", status=ToolStatus.ERROR, error="there is no such tool", started_at=NOW)
    closed, work = close_message(_streaming(open_part(0, refused)), Ending(FinishReason.TOOL_USE), END)
    assert [event.kind for event in work.events if not isinstance(event.kind, MessageFinished)] == [
        PartFinished(closed.message_id, closed.parts[0])
    ]
    assert (closed.parts[0].content, closed.parts[0].status) == (refused, PartStatus.COMPLETE)
