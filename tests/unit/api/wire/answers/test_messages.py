"""The display form of each type of message."""

import pytest

from tests.support.fakes.domain_values import make_answer, make_message, make_part
from turnwire.api.wire.answers.files import file as file_ref
from turnwire.api.wire.answers.messages import display
from turnwire.api.wire.answers.tools import tool_call
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.messages import (
    File,
    Message,
    MessageType,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)


def parts_of(message: Message) -> tuple[str, list[str], list[str], list[object], list[object]]:
    """Returns the role, texts, reasoning, tool calls and files of the display form."""
    shown = display(message)
    texts, reasoning = list(shown.text_parts), list(shown.reasoning_parts)
    return shown.role, texts, reasoning, list(shown.tool_calls), list(shown.files)


@pytest.mark.parametrize(
    ("message_type", "role"),
    [
        (MessageType.USER, "user"),
        (MessageType.ASSISTANT, "assistant"),
        (MessageType.SYSTEM, "system"),
        (MessageType.HOST, "system"),
    ],
)
def test_roles_are_user_assistant_or_system(message_type: MessageType, role: str) -> None:
    """Whatever clients do not know is shown as the system's."""
    message = make_message("msg_1", "a", type=message_type)
    assert parts_of(message) == (role, ["a"], [], [], [])


def test_parts_are_sorted_by_what_they_are() -> None:
    """Text and refusals in order, readable reasoning, calls with their parts' ids, files; sealed content nowhere."""
    file = File(sha256="ab", size_bytes=1, mime="text/plain")
    call = ToolUse(name="read", status=ToolStatus.SUCCESS, output="1")
    message = make_answer(
        "msg_1", Reasoning("hm"), Reasoning(""), "a", call, Refusal("no"), file, make_part(6, ProviderContent("x")), "b"
    )
    calls, files = [tool_call("prt_3", call)], [file_ref(file)]
    assert parts_of(message) == ("assistant", ["a", "no", "b"], ["hm"], calls, files)


def test_a_folded_result_is_shown_only_with_its_call() -> None:
    """It has no display form of its own."""
    result = ToolResult(call_id="c", output="1")
    folded = make_message("msg_1", result, type=MessageType.TOOL_RESULT, answers_message_id="msg_0")
    assert ProtoCodec().encode_display(folded) == b""


def test_an_unpaired_result_is_shown_by_itself() -> None:
    """As the system's, with its output as text."""
    message = make_message("msg_1", ToolResult(call_id="c", output="out"), Text("t"), type=MessageType.TOOL_RESULT)
    assert parts_of(message) == ("system", ["out", "t"], [], [], [])
