"""Conversations of Maria: results in their calls."""

from typing import Any

import pytest
from hypothesis import given

from opencode.message import content_pb2 as pb
from opencode.tool.tool_pb2 import ToolCallState
from tests.support.models import maria
from turnwire.domain.errors import InvalidRequest
from turnwire.interop.maria import conversation_json, conversation_of


def _call(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}}


def _tool(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call_id}


@given(maria.conversation())
def test_conversations_come_back(messages: Any) -> None:
    """Every message in its place, whichever order results have."""
    assert conversation_json(conversation_of(messages)) == messages


def test_results_in_order_are_in_their_calls() -> None:
    """One assistant message holds calls and results, as the server stores them."""
    asked = {"role": "assistant", "content": "", "tool_calls": [_call("a"), _call("b")]}
    [message] = conversation_of([asked, _tool("a", "1"), _tool("b", "2")])
    assert [(part.tool_use.status, part.tool_use.output) for part in message.parts] == [
        ("success", "1"),
        ("success", "2"),
    ]


def test_a_result_out_of_order_stays_a_message() -> None:
    """So that the order comes back."""
    asked = {"role": "assistant", "content": "", "tool_calls": [_call("a"), _call("b")]}
    [message, late] = conversation_of([asked, _tool("b", "2"), _tool("a", "1")])
    assert [part.tool_use.status for part in message.parts] == ["pending", "success"]
    assert late.type == pb.MESSAGE_TYPE_TOOL_RESULT


def test_only_what_a_model_reads_is_written() -> None:
    """No host messages, no messages that wait or stream, no results that are shown with their call."""
    call = ToolCallState(id="prt_1", call_id="c", name="look", status="cancelled", error="The turn was aborted.")
    result = pb.ToolResultContent(call_id="c", output="late", tool_call_id="prt_1")
    messages = [
        pb.SessionMessage(type=pb.MESSAGE_TYPE_HOST, parts=[pb.Part(text=pb.TextContent(text="note"))]),
        pb.SessionMessage(type=pb.MESSAGE_TYPE_USER, status=pb.MESSAGE_STATUS_QUEUED),
        pb.SessionMessage(type=pb.MESSAGE_TYPE_ASSISTANT, status=pb.MESSAGE_STATUS_STREAMING),
        pb.SessionMessage(type=pb.MESSAGE_TYPE_ASSISTANT, parts=[pb.Part(tool_use=call)]),
        pb.SessionMessage(
            type=pb.MESSAGE_TYPE_TOOL_RESULT, answers_message_id="msg_1", parts=[pb.Part(tool_result=result)]
        ),
        pb.SessionMessage(type=pb.MESSAGE_TYPE_TOOL_RESULT, parts=[pb.Part(tool_result=result)]),
    ]
    assert conversation_json(messages) == [
        {"role": "assistant", "content": "",
         "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": ""}}]},
        {"role": "tool", "content": "The turn was aborted.", "tool_call_id": "c"},
        {"role": "tool", "content": "late", "tool_call_id": "c"},
    ]  # fmt: skip


def test_a_refusal_names_the_message() -> None:
    """By its place in the list."""
    with pytest.raises(InvalidRequest, match=r"messages\[1\]\.role: is missing"):
        conversation_of([{"role": "user", "content": "a"}, {}])
    with pytest.raises(InvalidRequest, match="messages: must be an array, not an object"):
        conversation_of({})
