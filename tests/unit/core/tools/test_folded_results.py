"""Results that come as messages are folded into the calls that they answer."""

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, later, make_answer, make_message
from turnwire.core.ending import CUT_CALL, UNANSWERED_CALL
from turnwire.core.tools.folded_results import fold_results
from turnwire.domain.conversation.messages import Message, MessageType, ToolResult, ToolStatus, ToolUse
from turnwire.ports.commit import PutMessage, Work

END = later(5)


def _call(call_id: str = "c1", **fields: object) -> ToolUse:
    return ToolUse(**{"name": "read", "call_id": call_id, "input_json": "{}", **fields})


def _results(*results: ToolResult) -> Message:
    return make_message("msg_r", *results, type=MessageType.TOOL_RESULT)


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


def test_an_exit_code_goes_into_the_call() -> None:
    """A call has no field for it. That of a success says nothing."""
    history = [make_answer("msg_1", _call())]
    for code, output in ((2, "[exit code 2]\nno"), (0, "no")):
        _, work = fold_results(_results(ToolResult(call_id="c1", output="no", exit_code=code)), history, END)
        assert isinstance(change := work.changes[0], PutMessage)
        assert [call.output for _, call in change.message.tool_calls()] == [output]
