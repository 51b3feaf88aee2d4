"""Readers of the three APIs, with what recordings seldom hold."""

import json
from typing import Any

import pytest

from turnwire.domain.errors import ProviderError, ProviderStreamFailed, ProviderUnavailable
from turnwire.domain.messages import FinishReason
from turnwire.domain.money import Usage
from turnwire.ports.provider import (
    PartEnded,
    ProviderContentReceived,
    ReasoningDelta,
    RefusalDelta,
    StepFinished,
    StreamItem,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from turnwire.providers.anthropic_stream import AnthropicReader
from turnwire.providers.openai_chat_stream import ChatReader
from turnwire.providers.openai_responses_stream import ResponsesReader

Reader = AnthropicReader | ChatReader | ResponsesReader


def read(reader: Reader, *events: dict[str, Any] | bytes) -> list[StreamItem]:
    """Returns the items of the events."""
    items: list[StreamItem] = []
    for event in events:
        reader.read(b"", event if isinstance(event, bytes) else json.dumps(event).encode(), items)
    return items


def chat(*deltas: dict[str, Any], finish: str = "stop") -> list[StreamItem]:
    """Returns the items of a whole chat answer."""
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    return read(ChatReader({}, "m"), *chunks, last, b"[DONE]")


def chat_calls(*fragments: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Returns id, name and arguments of the calls of a chat answer."""
    calls: dict[Any, list[str]] = {}
    for item in chat(*({"tool_calls": [fragment]} for fragment in fragments)):
        if isinstance(item, ToolCallDelta):
            call = calls.setdefault(item.key, ["", "", ""])
            call[:] = [item.call_id, item.name, call[2] + item.arguments]
    return [(call[0], call[1], call[2]) for call in calls.values()]


def fragment(arguments: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    """Returns a fragment of a tool call."""
    return {"function": {"arguments": arguments, **({"name": name} if name else {})}, **more}


TWO_CALLS = [("a", "f", '{"x":1}'), ("b", "f", '{"x":2}')]


@pytest.mark.parametrize("first_index", [0, 1])
def test_calls_by_index(first_index: int) -> None:
    """The id comes once, the index on every fragment, from 0 or from 1."""
    one, two = {"index": first_index}, {"index": first_index + 1}
    assert chat_calls(
        fragment("", "f", id="a", **one), fragment('{"x"', **one), fragment(":1}", **one),
        fragment("", "f", id="b", **two), fragment('{"x":2}', **two),
    ) == TWO_CALLS  # fmt: skip


def test_calls_by_id_when_the_index_is_always_zero() -> None:
    """Another id is another call, whatever the index."""
    assert (
        chat_calls(
            fragment('{"x":1}', "f", id="a", index=0), fragment('{"x":', "f", id="b", index=0), fragment("2}", index=0)
        )
        == TWO_CALLS
    )


def test_calls_whose_id_and_name_are_repeated() -> None:
    """Fragments that repeat id and name belong to one call."""
    assert (
        chat_calls(fragment('{"x":', "f", id="a"), fragment("1}", "f", id="a"), fragment('{"x":2}', "f", id="b"))
        == TWO_CALLS
    )


def test_calls_without_ids() -> None:
    """A name after complete arguments begins another call; the id stays empty."""
    found = chat_calls(fragment('{"x":1}', "f", index=0), fragment('{"x":2}', "f", index=0))
    assert found == [("", "f", '{"x":1}'), ("", "f", '{"x":2}')]


def test_calls_by_position() -> None:
    """Without id and index the position in the list decides."""
    items = chat({"tool_calls": [fragment("", "f"), fragment("", "g")]}, {"tool_calls": [fragment("1"), fragment("2")]})
    assert [i.arguments for i in items if isinstance(i, ToolCallDelta) and i.name == "f"] == ["", "1"]


def test_legacy_function_call() -> None:
    """The form before tool_calls is a call as well."""
    items = chat({"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"arguments": "{}"}})
    assert items == [
        ToolCallDelta(1, "f"),
        ToolCallDelta(1, "f", "", "{}"),
        StepFinished(FinishReason.TOOL_USE, "stop"),
    ]


def test_mistral_content_chunks() -> None:
    """Content as a list holds thinking and text."""
    items = chat({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}, {"content": "hi"})
    assert items[:3] == [ReasoningDelta(1, "hm"), PartEnded(1), TextDelta(2, "hi")]


def test_refusal() -> None:
    """A refusal is a part of its own, and the end of a refused answer."""
    assert chat({"refusal": "no"}) == [RefusalDelta(1, "no"), PartEnded(1), StepFinished(FinishReason.REFUSAL, "stop")]


def test_halves_of_a_surrogate_pair_are_passed_through() -> None:
    """Two deltas that share an emoji carry a half each."""
    chunk = b'{"choices":[{"delta":{"content":"\\ud83d"}}]}'
    assert read(ChatReader({}, "m"), chunk) == [TextDelta(1, "\ud83d")]


def test_items_before_an_error_stay() -> None:
    """What an event holds beside its error is given first."""
    items: list[StreamItem] = []
    body = {"error": {"message": "x"}, "choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 1}}
    with pytest.raises(ProviderStreamFailed):
        ChatReader({}, "m").read(b"", json.dumps(body).encode(), items)
    assert items == [TextDelta(1, "a"), UsageReported(Usage(input_tokens=1))]


@pytest.mark.parametrize("body", [b'{"code":400,"message":"x"}', b'{"error":"x"}', b'{"object":"error","message":"x"}'])
def test_error_in_place_of_a_chunk(body: bytes) -> None:
    """The error objects of several servers end the stream."""
    with pytest.raises(ProviderStreamFailed):
        read(ChatReader({}, "m"), body)


def test_reasoning_details_are_kept_joined() -> None:
    """OpenRouter's details go into the state of the reasoning part, late signature included."""
    items = chat(
        {"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "a"}]},
        {"content": "x"},
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "b", "signature": "s"}]},
    )
    ended = [item for item in items if isinstance(item, PartEnded) and item.provider_state]
    assert [item.key for item in ended] == [1]
    details = json.loads(ended[0].provider_state or "")["reasoning_details"]
    assert details == [{"type": "reasoning.text", "index": 0, "text": "ab", "signature": "s"}]


def test_xai_reasoning_is_added() -> None:
    """When the total says that reasoning is not in the completion, it is added."""
    usage = {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 354}
    chunk = {"choices": [], "usage": {**usage, "completion_tokens_details": {"reasoning_tokens": 340}}}
    assert read(ChatReader({}, "m"), chunk) == [
        UsageReported(Usage(input_tokens=12, output_tokens=2, reasoning_tokens=340))
    ]


def test_sealed_reasoning_item_survives_byte_exact() -> None:
    """The item of output_item.done is stored as the provider wrote it."""
    item = '{"id": "rs",  "type":"reasoning","summary":[],"encrypted_content":"gA\\u0041=="}'
    data = f'{{"type":"response.output_item.done","output_index":0,"item":{item}}}'.encode()
    opened, ended = read(ResponsesReader({}, "m"), data)
    assert isinstance(opened, ReasoningDelta)
    assert isinstance(ended, PartEnded)
    assert ended.provider_state == f'{{"api":"openai_responses","model":"m","item":{item}}}'


def test_incomplete_response() -> None:
    """The status is the provider's word, the details tell the reason."""
    response = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    assert read(ResponsesReader({}, "m"), {"type": "response.incomplete", "response": response}) == [
        StepFinished(FinishReason.CONTENT_FILTER, "incomplete")
    ]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "x"}}},
        {"type": "error", "code": "server_error", "message": "x"},
        {"type": "error", "error": {"type": "server_error", "message": "x"}},
    ],
)
def test_failed_response(event: dict[str, Any]) -> None:
    """All three forms of an error are one."""
    with pytest.raises(ProviderError, match="x"):
        read(ResponsesReader({}, "m"), event)


def test_response_whose_items_come_only_at_the_end() -> None:
    """A server that streams no items gives them with the last event."""
    output = [
        {"type": "message", "content": [{"type": "output_text", "text": "hi"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    ]
    items = read(ResponsesReader({}, "m"), {"type": "response.completed", "response": {"output": output}})
    assert items == [
        TextDelta(0, "hi"),
        PartEnded(0),
        ToolCallDelta(1, "f", "c"),
        PartEnded(1, text="{}"),
        StepFinished(FinishReason.TOOL_USE, "completed"),
    ]


def test_hosted_blocks_are_kept_whole() -> None:
    """A block of a tool that Anthropic runs is provider content, its input put together."""
    block = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    piece = {"type": "input_json_delta", "partial_json": '{"query":"x"}'}
    items = read(
        AnthropicReader({}, "m"),
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": piece},
        {"type": "content_block_stop", "index": 0},
    )
    assert len(items) == 1
    assert isinstance(items[0], ProviderContentReceived)
    assert items[0].kind == "server_tool_use"
    assert json.loads(items[0].state)["block"] == {**block, "input": {"query": "x"}}


def test_thinking_keeps_its_signature() -> None:
    """The signature is the state of the reasoning part; sealed thinking keeps its whole block."""
    sealed = {"type": "redacted_thinking", "data": "AAA="}
    items = read(
        AnthropicReader({}, "m"),
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s=="}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": sealed},
        {"type": "content_block_stop", "index": 1},
    )
    states = [json.loads(i.provider_state) for i in items if isinstance(i, PartEnded) and i.provider_state]
    assert states == [
        {"api": "anthropic", "model": "m", "signature": "s=="},
        {"api": "anthropic", "model": "m", "block": sealed},
    ]


def test_cumulative_usage_replaces() -> None:
    """The last usage counts, except for a prompt that only the start knew."""
    start = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1}
    items = read(
        AnthropicReader({}, "m"),
        {"type": "message_start", "message": {"usage": start}},
        {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 0, "output_tokens": 7}},
    )
    expected = Usage(input_tokens=10, cache_read_tokens=5, cache_write_tokens=0, output_tokens=7)
    assert items[-1] == UsageReported(expected)


def test_overloaded_in_the_middle() -> None:
    """An error event after HTTP 200 is recognised by its type."""
    with pytest.raises(ProviderUnavailable):
        read(
            AnthropicReader({}, "m"), {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        )
