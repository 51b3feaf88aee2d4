"""Ending messages and turns: the same facts for an orderly end, an abort, a cut and a crash."""

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, later, make_answer, make_message, make_turn, open_part
from turnwire.core.ending import (
    MAX_PAUSES,
    Ending,
    Repetitions,
    close_calls,
    close_message,
    end_turn,
    ending_after,
    spent_by_call,
    spent_by_turn,
    step_ending,
)
from turnwire.domain.accounts import Spending
from turnwire.domain.conversation.events import MessageFinished, PartFinished, TurnEnded
from turnwire.domain.conversation.messages import (
    Failure,
    FinishReason,
    Message,
    MessageStatus,
    ModelRun,
    Part,
    PartStatus,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.errors import ProviderError, ProviderUnavailable
from turnwire.domain.money import Consumption, Estimate, Usage
from turnwire.ports.commit import AddSpending, NewEvent, PutMessage, PutTurn, Work
from turnwire.ports.provider import StepFinished

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


def _turn_ended(**fields: object) -> Work:
    over = make_turn(status=TurnStatus.ENDED, ended_at=END, **fields)
    return Work((PutTurn(over, keeps_settings=True),), _events(TurnEnded(over)))


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


def test_settled_calls_are_left_alone() -> None:
    """A result that is there stays."""
    settled = msgspec.structs.replace(CALL, status=ToolStatus.SUCCESS, output="1", finished_at=NOW)
    message = _streaming(settled)
    closed, work = close_message(message, ABORTED, END)
    assert closed.parts == message.parts
    assert work.events == _events(_finished(closed))
    assert close_calls(make_answer("msg_1", settled), END) == (make_answer("msg_1", settled), Work())


def test_a_turn_sums_its_steps() -> None:
    """Usage bucket by bucket, cost and number of steps; its end is the last event."""
    steps = [
        make_answer("msg_1", "a", usage=Usage(input_tokens=1, output_tokens=2), cost_pico_usd=10),
        make_answer("msg_2", "b", usage=Usage(input_tokens=3, reasoning_tokens=4), cost_pico_usd=5),
    ]
    turn, user = make_turn(), make_message("msg_user", "hi")
    usage = Usage(input_tokens=4, output_tokens=2, reasoning_tokens=4)
    ended = _turn_ended(finish_reason=FinishReason.STOP, usage=usage, cost_pico_usd=15, steps=2)
    assert end_turn(turn, [user, *steps], Ending(FinishReason.STOP), END) == spent_by_turn(turn, END) + ended


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
    ended = _turn_ended(finish_reason=FinishReason.INTERRUPTED, failure=ending.failure, steps=2)
    assert work == settling + closing + spent_by_call(turn, closed, END) + spent_by_turn(turn, END) + ended
    assert (closed.status, settled.status) == (MessageStatus.INTERRUPTED, MessageStatus.COMPLETE)


def test_the_end_of_a_refused_call_is_told_when_it_could_not_be_saved_before() -> None:
    """The part ends with the error in it."""
    refused = ToolUse(name="fly", status=ToolStatus.ERROR, error="there is no such tool", started_at=NOW)
    closed, work = close_message(_streaming(open_part(0, refused)), Ending(FinishReason.TOOL_USE), END)
    assert [event.kind for event in work.events if not isinstance(event.kind, MessageFinished)] == [
        PartFinished(closed.message_id, closed.parts[0])
    ]
    assert (closed.parts[0].content, closed.parts[0].status) == (refused, PartStatus.COMPLETE)


USED = Usage(input_tokens=1, output_tokens=2)
TURN = make_turn(tenant="acme", subject="ann")


def _added(message: Message) -> Spending:
    [change] = spent_by_call(TURN, message, NOW).changes
    return change.spending


def test_a_step_is_paid_by_who_asked_for_it() -> None:
    """Under the model that answered, which may be a fallback."""
    run = ModelRun(provider_id="other", model_requested="small")
    spent = _added(make_answer("msg_1", "a", model_run=run, usage=USED, cost_pico_usd=1))
    assert (spent.tenant, spent.subject, spent.session_id) == ("acme", "ann", "ses_1")
    assert (spent.provider_id, spent.model_id, spent.at) == ("other", "small", NOW)
    assert (spent.steps, spent.steps_without_price, spent.turns) == (1, 0, 0)
    assert spent.consumption == Consumption(3, 1)


@pytest.mark.parametrize(
    ("message", "unpriced"),
    [
        (make_answer("msg_1", "a", usage=USED), 1),
        (make_answer("msg_1", "a"), 1),
        (make_answer("msg_1", usage=USED), 1),
        (make_answer("msg_1"), 0),
        (make_answer("msg_1", "a", usage=USED, cost_pico_usd=0), 0),
    ],
)
def test_an_answer_without_a_known_price_is_counted(message: Message, unpriced: int) -> None:
    """A model that gave no answer cost nothing; a price of nothing is known."""
    assert _added(message).steps_without_price == unpriced


def test_an_estimate_counts_in_place_of_the_report() -> None:
    """And it is shown that it is one."""
    estimate = Estimate(usage=Usage(input_tokens=5, output_tokens=6), cost_pico_usd=7)
    spent = _added(make_answer("msg_1", "a", usage=Usage(input_tokens=5), estimate=estimate))
    assert (spent.consumption, spent.estimated_steps, spent.steps_without_price) == (Consumption(11, 7), 1, 0)
    assert _added(make_answer("msg_1", "a", usage=USED)).estimated_steps == 0


def test_a_turn_that_never_started_is_not_counted() -> None:
    """It was dropped out of the queue."""
    assert spent_by_turn(make_turn(status=TurnStatus.QUEUED), NOW).changes == ()
    assert len(spent_by_turn(TURN, NOW).changes) == 1


def test_the_end_of_a_turn_adds_only_what_was_open() -> None:
    """The steps that ended before are counted already."""
    ended = make_answer("msg_1", "a", usage=USED, cost_pico_usd=1)
    streaming = make_answer("msg_2", "b", usage=USED, cost_pico_usd=2, status=MessageStatus.STREAMING)
    changes = end_turn(TURN, [ended, streaming], Ending(FinishReason.ABORTED), NOW).changes
    spent = [change.spending for change in changes if isinstance(change, AddSpending)]
    assert [(one.cost_pico_usd, one.steps, one.turns) for one in spent] == [(2, 1, 0), (None, 0, 1)]


STOP = StepFinished(FinishReason.STOP, "end_turn")
TOOL_USE = StepFinished(FinishReason.TOOL_USE, "tool_calls")
CUT_OF_VERDICT = "the answer of the provider ended without its end marker"
PAUSED = make_answer("msg_1", "thinking", finish_reason=FinishReason.PAUSED)


def _calling(output: str, finish_reason: FinishReason = FinishReason.TOOL_USE) -> Message:
    call = ToolUse(name="look", call_id="c1", input_json="{}", status=ToolStatus.SUCCESS, output=output)
    return make_answer("msg_1", call, finish_reason=finish_reason)


@pytest.mark.parametrize(
    ("finished", "failure", "contents", "ending"),
    [
        (STOP, None, (), Ending(FinishReason.STOP, None, "end_turn")),
        (STOP, None, (ToolUse(name="t"),), Ending(FinishReason.TOOL_USE, None, "end_turn")),
        (TOOL_USE, None, (ToolUse(name="t"),), Ending(FinishReason.TOOL_USE, None, "tool_calls")),
        (TOOL_USE, None, (), Ending(FinishReason.STOP, None, "tool_calls")),
        (None, None, (), Ending(FinishReason.INTERRUPTED, Failure("PROVIDER_STREAM_CUT", CUT_OF_VERDICT))),
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
    """Without either the stream was cut; some servers say stop with complete calls, or tool_calls without any."""
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
    assert ending.failure == Failure(
        "TOOL_CALL_REPEATED", "the model called look 3 times in a row with the same arguments and got the same result"
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
