"""Messages, contents, tool calls, usage and conversations of Maria: strict, and lenient as vendors need it."""

from typing import Any

import pytest
from hypothesis import given

from adapters.tests import maria_json as maria
from opencode.message import content_pb2 as pb
from opencode.message.content_pb2 import TokenUsage
from opencode.tool.tool_pb2 import ToolCallState
from turnwire_adapters.forms import WrongJson
from turnwire_adapters.maria.conversations import conversation_json
from turnwire_adapters.maria.messages import (
    Reader,
    content_json,
    joined,
    message_json,
    tool_call_json,
    usage_json,
)

STRICT, LENIENT = Reader(strict=True), Reader()
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


@given(maria.content())
def test_content_comes_back(content: Any) -> None:
    """Text as text, an array as the array."""
    assert content_json(STRICT.content(content)) == content


@given(maria.tool_call())
def test_tool_calls_come_back(call: Any) -> None:
    """Arguments letter by letter, whether they are JSON or not."""
    assert tool_call_json(STRICT.tool_call(call)) == call


@given(maria.message())
def test_messages_come_back(message: Any) -> None:
    """System, user, assistant and tool messages are the same JSON after both conversions."""
    assert message_json(STRICT.message(message)) == message


@given(maria.message())
def test_messages_of_the_contract_come_back(message: Any) -> None:
    """The other way round: nothing is added to a message or lost of it either."""
    ours = STRICT.message(message)
    assert STRICT.message(message_json(ours)) == ours


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
    assert message_json(STRICT.message(given)) == written


def test_array_parts_join_without_separator() -> None:
    """As a model reads them."""
    assert joined([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]) == "ab"
    assert joined("a b") == "a b"


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
    with pytest.raises(WrongJson) as refused:
        STRICT.message(message)
    assert str(refused.value).startswith(error)


@pytest.mark.parametrize("message_type", [pb.MESSAGE_TYPE_HOST, 99])
def test_host_messages_have_no_role(message_type: Any) -> None:
    """Neither have types that are newer than the reader."""
    with pytest.raises(WrongJson, match="has no role"):
        message_json(pb.SessionMessage(type=message_type))


@given(maria.usage())
def test_usage_comes_back(usage: Any) -> None:
    """Cached tokens are a share of the prompt there and a bucket of their own here."""
    assert usage_json(STRICT.usage(usage)) == usage


@given(maria.usage())
def test_buckets_come_back(usage: Any) -> None:
    """The other way round too."""
    buckets = STRICT.usage(usage)
    assert STRICT.usage(usage_json(buckets)) == buckets


def test_no_usage_is_null() -> None:
    """In both directions."""
    assert STRICT.usage(None) is None
    assert usage_json(None) is None


def test_every_bucket_counts() -> None:
    """Tokens written to a cache belong to the prompt, reasoning to the completion."""
    usage = TokenUsage(
        input_tokens=1, cache_read_tokens=20, cache_write_tokens=300, output_tokens=4000, reasoning_tokens=50000
    )
    assert usage_json(usage) == {
        "prompt_tokens": 321,
        "completion_tokens": 54000,
        "total_tokens": 54321,
        "prompt_tokens_details": {"cached_tokens": 20},
    }


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"total_tokens": 4}, "usage.total_tokens: must be the sum"),
        ({"prompt_tokens": None}, "usage.prompt_tokens: must be a whole number"),
        ({"prompt_tokens_details": {"cached_tokens": 2}}, "usage.prompt_tokens_details.cached_tokens: must not exceed"),
        ({"prompt_tokens_details": 1}, "usage.prompt_tokens_details: must be an object"),
        ({"cost": 1}, "usage.cost: is not one of"),
    ],
)
def test_usage_that_cannot_be_is_refused(change: Any, error: str) -> None:
    """With its place."""
    with pytest.raises(WrongJson) as refused:
        STRICT.usage({"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, **change})
    assert str(refused.value).startswith(error)


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


VENDORS: dict[str, tuple[Any, Any]] = {
    "a developer": ({"role": "developer", "content": "a"}, {"role": "system", "content": "a"}),
    "a name": ({"role": "user", "content": "a", "name": "Ann"}, {"role": "user", "content": "a"}),
    "text without a type": ({"role": "user", "content": [{"text": "a"}]}, {"role": "user", "content": "a"}),
    "another type of text": (
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]}, {"role": "user", "content": "a"},
    ),
    "annotations": (
        {"role": "assistant", "content": "a", "annotations": [], "refusal": None, "audio": None, "tool_calls": []},
        {"role": "assistant", "content": "a"},
    ),
    "reasoning": (
        {"role": "assistant", "content": "a", "reasoning_content": "hm"}, {"role": "assistant", "content": "a"},
    ),
    "a refusal": ({"role": "assistant", "content": None, "refusal": "no"}, {"role": "assistant", "content": "no"}),
    "an index of a call": (
        {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **CALL}]},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
    ),
    "a call without a type, with an object": (
        {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": {"a": "é"}}}]},
        {"role": "assistant", "content": "",
         "tool_calls": [{**CALL, "function": {"name": "weather", "arguments": '{"a": "é"}'}}]},
    ),
    "calls of a user, none": ({"role": "user", "content": "a", "tool_calls": []}, {"role": "user", "content": "a"}),
}  # fmt: skip


@pytest.mark.parametrize("name", VENDORS)
def test_json_of_vendors_is_read(name: str) -> None:
    """Keys that say nothing here are left out; strictly, each of these is refused."""
    given, written = VENDORS[name]
    assert message_json(LENIENT.message(given)) == written
    if name != "a refusal":
        with pytest.raises(WrongJson):
            STRICT.message(given)


@pytest.mark.parametrize("content", [None, 7, [{"type": "image_url", "image_url": {"url": "x"}}], [{"type": "text"}]])
def test_what_would_be_lost_is_refused_leniently_too(content: Any) -> None:
    """A picture is no text."""
    with pytest.raises(WrongJson):
        LENIENT.message({"role": "user", "content": content})


def test_usage_of_vendors_is_read() -> None:
    """Details of the completion tell reasoning apart; a total that is missing or differs counts for nothing."""
    usage = LENIENT.usage(
        {
            "prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 99, "cost": 1,
            "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 3, "accepted_prediction_tokens": 0},
        }
    )  # fmt: skip
    assert usage == TokenUsage(input_tokens=6, cache_read_tokens=4, output_tokens=5, reasoning_tokens=3)
    assert LENIENT.usage({"prompt_tokens": 1}) == TokenUsage(input_tokens=1, output_tokens=0)
