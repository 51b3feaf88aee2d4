"""Messages, contents and tool calls of Maria."""

from typing import Any

import pytest
from hypothesis import given

from opencode.message import content_pb2 as pb
from opencode.tool.tool_pb2 import ToolCallState
from tests.support.models import maria
from turnwire.domain.errors import InvalidRequest
from turnwire.interop.maria import (
    content_json,
    content_of,
    message_json,
    message_of,
    text_of,
    tool_call_json,
    tool_call_of,
)

CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


@given(maria.content())
def test_content_comes_back(content: Any) -> None:
    """Text as text, an array as the array."""
    assert content_json(content_of(content)) == content


@given(maria.tool_call())
def test_tool_calls_come_back(call: Any) -> None:
    """Arguments letter by letter, whether they are JSON or not."""
    assert tool_call_json(tool_call_of(call)) == call


@given(maria.message())
def test_messages_come_back(message: Any) -> None:
    """System, user, assistant and tool messages are the same JSON after both conversions."""
    assert message_json(message_of(message)) == message


@given(maria.message())
def test_messages_of_the_contract_come_back(message: Any) -> None:
    """The other way round: nothing is added to a message or lost of it either."""
    ours = message_of(message)
    assert message_of(message_json(ours)) == ours


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "user", "content": "a"}),
        (
            {"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
             "tool_call_id": "c"},
            {"role": "tool", "content": "ab", "tool_call_id": "c"},
        ),
        ({"role": "assistant", "content": None}, {"role": "assistant", "content": ""}),
        ({"role": "assistant"}, {"role": "assistant", "content": ""}),
        ({"role": "assistant", "content": "a", "tool_calls": None}, {"role": "assistant", "content": "a"}),
        ({"role": "assistant", "content": "a", "tool_calls": []}, {"role": "assistant", "content": "a"}),
        (
            {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "weather", "arguments": None}}]},
            {"role": "assistant", "content": "",
             "tool_calls": [{**CALL, "function": {"name": "weather", "arguments": ""}}]},
        ),
    ],
)  # fmt: skip
def test_other_spellings_are_written_in_one(given: Any, written: Any) -> None:
    """They mean the same to every reader."""
    assert message_json(message_of(given)) == written


def test_array_parts_join_without_separator() -> None:
    """As a model reads them."""
    assert text_of([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]) == "ab"
    assert text_of("a b") == "a b"


def test_a_call_without_the_providers_id_has_ours() -> None:
    """A tool message can always name its call."""
    assert tool_call_json(ToolCallState(id="prt_1", name="x"))["id"] == "prt_1"


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ([], "message: must be an object, not an array"),
        ({"content": "a"}, "message.role: is missing"),
        ({"role": "host", "content": "a"}, "message.role: must be one of system, user, assistant, tool"),
        ({"role": "user"}, "message.content: must be text or an array of text parts, not null"),
        ({"role": "user", "content": [{"type": "image"}]}, 'message.content[0].type: must be "text"'),
        ({"role": "user", "content": [{"type": "text"}]}, "message.content[0].text: is missing"),
        ({"role": "user", "content": "a", "tool_calls": [CALL]}, "message.tool_calls: belongs to an assistant message"),
        ({"role": "user", "content": "a", "tool_call_id": "c"}, "message.tool_call_id: belongs to a tool message"),
        ({"role": "assistant", "tool_call_id": "c"}, "message.tool_call_id: belongs to a tool message"),
        ({"role": "tool", "content": "a"}, "message.tool_call_id: is missing"),
        ({"role": "tool", "tool_call_id": "c", "content": "a", "tool_calls": []}, "message.tool_calls: belongs to"),
        ({"role": "assistant", "tool_calls": {}}, "message.tool_calls: must be an array, not an object"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, 'message.tool_calls[0].type: must be "function"'),
        ({"role": "user", "content": "a", "name": "Ann"}, "message.name: is not one of"),
    ],
)
def test_refusals_name_what_is_wrong(message: Any, error: str) -> None:
    """Nothing is guessed and nothing left out."""
    with pytest.raises(InvalidRequest) as refused:
        message_of(message)
    assert refused.value.message.startswith(error)


@pytest.mark.parametrize("message_type", [pb.MESSAGE_TYPE_HOST, 99])
def test_host_messages_have_no_role(message_type: Any) -> None:
    """Neither have types that are newer than the reader."""
    with pytest.raises(InvalidRequest, match="has no role"):
        message_json(pb.SessionMessage(type=message_type))
