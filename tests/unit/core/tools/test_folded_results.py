"""Results that come as messages are folded into the calls that they answer."""

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, later, make_answer, make_message
from turnwire.core.ending import CUT_CALL, UNANSWERED_CALL
from turnwire.core.tools.folded_results import fold_results, name_calls
from turnwire.domain.conversation.events import ToolCallUpdated
from turnwire.domain.conversation.messages import Message, MessageType, ToolResult, ToolStatus, ToolUse
from turnwire.domain.errors import InvalidRequest, ToolCallNotFound
from turnwire.ports.commit import NewEvent, PutMessage, Work

END = later(5)


def _call(call_id: str = "c1", **fields: object) -> ToolUse:
    return ToolUse(**{"name": "read", "call_id": call_id, "input_json": "{}", **fields})


def _results(*results: ToolResult) -> Message:
    return make_message("msg_r", *results, type=MessageType.TOOL_RESULT)


def test_a_result_settles_its_call() -> None:
    """The call gets output, status and time, the message its parent, and watchers the call."""
    answer = make_answer("msg_1", "text", _call())
    message, work = fold_results(_results(ToolResult(call_id="c1", output="42")), [answer], END)
    settled = _call(status=ToolStatus.SUCCESS, output="42", finished_at=END)
    changed = make_answer("msg_1", "text", settled, updated_at=END)
    assert message == msgspec.structs.replace(
        _results(ToolResult(call_id="c1", output="42", tool_call_id="prt_1")), answers_message_id="msg_1"
    )
    # of no turn: that of the call is over
    assert work == Work((PutMessage(changed),), (NewEvent(ToolCallUpdated("msg_1", "prt_1", 1, settled)),))


def test_an_error_result_settles_its_call_as_failed() -> None:
    """The text of the result is the error."""
    answer = make_answer("msg_1", _call())
    _, work = fold_results(_results(ToolResult(call_id="c1", output="boom", is_error=True)), [answer], END)
    [change] = work.changes
    assert isinstance(change, PutMessage)
    assert change.message.parts[0].content == _call(status=ToolStatus.ERROR, error="boom", finished_at=END)


@pytest.mark.parametrize(
    "call",
    [
        _call(status=ToolStatus.RUNNING, started_at=NOW),
        _call(status=ToolStatus.CANCELLED, error=CUT_CALL, finished_at=NOW),
        _call(status=ToolStatus.ERROR, error=UNANSWERED_CALL, finished_at=NOW),
    ],
)
def test_a_call_without_a_result_of_its_own_can_still_be_answered(call: ToolUse) -> None:
    """One that was cut, or whose turn ended before: our own error gives way."""
    _, work = fold_results(_results(ToolResult(call_id="c1", output="42")), [make_answer("msg_1", call)], END)
    [change] = work.changes
    assert isinstance(change, PutMessage)
    assert change.message.parts[0].content == msgspec.structs.replace(
        call, status=ToolStatus.SUCCESS, output="42", error=None, finished_at=END
    )


def test_several_results_are_folded_together() -> None:
    """In one write."""
    answer = make_answer("msg_1", _call("a"), _call("b"))
    _, work = fold_results(
        _results(ToolResult(call_id="b", output="2"), ToolResult(call_id="a", output="1")), [answer], END
    )
    first = _call("a", status=ToolStatus.SUCCESS, output="1", finished_at=END)
    second = _call("b", status=ToolStatus.SUCCESS, output="2", finished_at=END)
    assert work.changes == (PutMessage(make_answer("msg_1", first, second, updated_at=END)),)


def test_the_newest_call_of_that_id_is_answered() -> None:
    """Providers use an id again."""
    history = [make_answer("msg_1", _call()), make_answer("msg_2", _call())]
    message, _ = fold_results(_results(ToolResult(call_id="c1", output="1")), history, END)
    assert message.answers_message_id == "msg_2"


@pytest.mark.parametrize(
    "history",
    [
        [],
        [make_answer("msg_1", "no calls")],
        [make_answer("msg_1", _call("other"))],
        [make_answer("msg_1", _call(status=ToolStatus.SUCCESS, output="first"))],
        [make_answer("msg_1", _call(status=ToolStatus.ERROR, error="its own error"))],
        [make_answer("msg_1", _call(""))],
    ],
)
def test_a_result_without_an_open_call_stands_by_itself(history: list[Message]) -> None:
    """It changes nothing else."""
    message = _results(ToolResult(call_id="c1", output="1"))
    assert fold_results(message, history, END) == (message, Work())


def test_a_result_may_name_the_part_of_its_call() -> None:
    """Also one whose provider gave no id; of two calls with one id it is the one that was named."""
    history = [make_answer("msg_1", _call()), make_answer("msg_2", "text", _call())]
    named = name_calls(_results(ToolResult(call_id="", output="1", tool_call_id="prt_0")), history[:1])
    assert named == _results(ToolResult(call_id="c1", output="1", tool_call_id="prt_0"))
    message, work = fold_results(named, history, END)
    assert message.answers_message_id == "msg_1"
    assert isinstance(change := work.changes[0], PutMessage)
    assert change.message.message_id == "msg_1"
    anonymous = [make_answer("msg_3", _call(""))]
    unnamed = name_calls(_results(ToolResult(call_id="", output="1", tool_call_id="prt_0")), anonymous)
    assert fold_results(unnamed, anonymous, END)[0].answers_message_id == "msg_3"


def test_an_exit_code_goes_into_the_call() -> None:
    """A call has no field for it. That of a success says nothing."""
    history = [make_answer("msg_1", _call())]
    for code, output in ((2, "[exit code 2]\nno"), (0, "no")):
        _, work = fold_results(_results(ToolResult(call_id="c1", output="no", exit_code=code)), history, END)
        assert isinstance(change := work.changes[0], PutMessage)
        assert [call.output for _, call in change.message.tool_calls()] == [output]


def test_a_result_for_a_part_that_is_no_call_is_refused() -> None:
    """Unlike an id of the provider's, which may be of a call that was never here; two ids of two calls are an error."""
    history = [make_answer("msg_1", "text", _call())]
    with pytest.raises(ToolCallNotFound):
        name_calls(_results(ToolResult(call_id="", output="1", tool_call_id="prt_0")), history)
    with pytest.raises(InvalidRequest, match=r"parts\[0\].tool_result.call_id"):
        name_calls(_results(ToolResult(call_id="c2", output="1", tool_call_id="prt_1")), history)


@pytest.mark.parametrize(
    ("call_ids", "unfit"),
    [(("a", "b"), 0), (("b", "a"), 1), (("b", "none"), 1), (("none", "b"), 0), (("b", "b"), 1)],
)
def test_results_of_one_message_are_for_one_answer(call_ids: tuple[str, ...], unfit: int) -> None:
    """The first that answers no open call of the newest answer is named: another's, nobody's, or one answered."""
    message = _results(*(ToolResult(call_id=call_id, output="1") for call_id in call_ids))
    history = [make_answer("msg_1", _call("a")), make_answer("msg_2", _call("b"))]
    with pytest.raises(InvalidRequest) as caught:
        fold_results(message, history, END)
    assert [one.field for one in caught.value.violations] == [f"parts[{unfit}].tool_result"]


def test_results_of_no_call_stand_by_themselves() -> None:
    """Nothing is settled, so nothing is half settled."""
    message = _results(ToolResult(call_id="x", output="1"), ToolResult(call_id="y", output="2"))
    assert fold_results(message, [make_answer("msg_1", _call("a"))], END) == (message, Work())
