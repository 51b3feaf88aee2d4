"""Results that come as messages are folded into the calls that they answer."""

import msgspec

from tests.support.fakes.domain_values import NOW, later, make_answer, make_message
from turnwire.core.ending import CUT_CALL
from turnwire.core.tools.folded_results import fold_results
from turnwire.domain.conversation.messages import Message, MessageType, ToolResult, ToolStatus, ToolUse
from turnwire.ports.commit import PutMessage

END = later(5)


def _call(call_id: str = "c1", **fields: object) -> ToolUse:
    return ToolUse(**{"name": "read", "call_id": call_id, "input_json": "{}", **fields})


def _results(*results: ToolResult) -> Message:
    return make_message("msg_r", *results, type=MessageType.TOOL_RESULT)


def test_a_call_that_was_cut_can_still_be_answered() -> None:
    """Our own error gives way to the result."""
    call = _call(status=ToolStatus.CANCELLED, error=CUT_CALL, finished_at=NOW)
    _, work = fold_results(_results(ToolResult(call_id="c1", output="42")), [make_answer("msg_1", call)], END)
    [change] = work.changes
    assert change.message.parts[0].content == msgspec.structs.replace(
        call, status=ToolStatus.SUCCESS, output="42", error=None, finished_at=END
    )


def test_an_exit_code_goes_into_the_call() -> None:
    """A call has no field for it. That of a success says nothing."""
    history = [make_answer("msg_1", _call())]
    for code, output in ((2, "[exit code 2]\nno"), (0, "no")):
        _, work = fold_results(_results(ToolResult(call_id="c1", output="no", exit_code=code)), history, END)
        assert isinstance(change := work.changes[0], PutMessage)
        assert [call.output for _, call in change.message.tool_calls()] == [output]
