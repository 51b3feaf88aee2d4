"""Reader of Anthropic Messages, with what recordings seldom hold."""

import json

import pytest

from tests.support.clients.stream_reader import read
from turnwire.domain.conversation.messages import FinishReason
from turnwire.domain.errors import ProviderUnavailable
from turnwire.domain.money import Usage
from turnwire.ports.provider import (
    PartEnded,
    ReasoningDelta,
    ResponseStarted,
    StepFinished,
    StreamItem,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from turnwire.providers.anthropic.stream import AnthropicReader


def _items(*events: object) -> list[StreamItem]:
    return read(AnthropicReader({}, "m"), *events)


def test_hosted_blocks_are_kept_whole() -> None:
    """A block of a tool that Anthropic runs is provider content, its input put together."""
    block = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    piece = {"type": "input_json_delta", "partial_json": '{"query":"x"}'}
    items = _items(
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": piece},
        {"type": "content_block_stop", "index": 0},
    )
    assert len(items) == 1
    assert items[0].kind == "server_tool_use"
    assert json.loads(items[0].state)["block"] == {**block, "input": {"query": "x"}}


def test_thinking_keeps_its_signature() -> None:
    """The signature is the state of the reasoning part; sealed thinking keeps its whole block, and has no text."""
    sealed = {"type": "redacted_thinking", "data": "AAA="}
    items = _items(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s=="}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": sealed},
        {"type": "content_block_stop", "index": 1},
    )
    assert [item for item in items if isinstance(item, ReasoningDelta)] == [
        ReasoningDelta(0, ""),
        ReasoningDelta(1, ""),
    ]
    states = [json.loads(i.provider_state) for i in items if isinstance(i, PartEnded) and i.provider_state]
    assert states == [
        {"api": "anthropic", "model": "m", "signature": "s=="},
        {"api": "anthropic", "model": "m", "block": sealed},
    ]


def test_cumulative_usage_replaces() -> None:
    """The last usage counts, except for a prompt that only the start knew."""
    start = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1}
    items = _items(
        {"type": "message_start", "message": {"usage": start}},
        {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 0, "output_tokens": 7}},
    )
    expected = Usage(input_tokens=10, cache_read_tokens=5, cache_write_tokens=0, output_tokens=7)
    assert items[-1] == UsageReported(expected)


@pytest.mark.parametrize("text", ['{"n": 1.0,  "big": 123456789012345678901234567890}', '{"s":"\\u00e9"}'])
def test_input_in_the_start_of_a_block_keeps_its_text(text: str) -> None:
    """Calls that come whole have the arguments that the provider wrote."""
    block = f'{{"type":"tool_use","id":"c","name":"f","input":{text}}}'
    items = _items(
        f'{{"type":"content_block_start","index":0,"content_block":{block}}}'.encode(),
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": ""}},
        {"type": "content_block_stop", "index": 0},
    )
    assert items == [ToolCallDelta(0, "f", "c"), ToolCallDelta(0, arguments=text), PartEnded(0)]


def test_block_that_was_not_opened() -> None:
    """Text without the start of its block is text; other deltas without one are nothing."""
    items = _items(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "b"}},
    )
    assert items == [TextDelta(0, "a"), TextDelta(0, "b")]


def test_message_events_without_their_fields() -> None:
    """Null usage, unknown events and a bare message_delta do not break the stream."""
    assert _items(
        {"type": "message_start", "message": {"usage": None}},
        {"type": "ping"},
        {"type": "vendor_event", "index": 3},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ) == [ResponseStarted(), StepFinished(FinishReason.STOP, "end_turn")]


def test_answers_behind_the_end_of_one() -> None:
    """A body that goes on is read on: its blocks are further parts, its last end and usage count."""
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}}
    items = _items(
        start,
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
        {"type": "message_start", "message": {}},
        start,
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )
    assert [item for item in items if isinstance(item, TextDelta)] == [TextDelta(0, "a"), TextDelta(1, "a")]
    assert items[-1] == StepFinished(FinishReason.STOP, "end_turn")


def test_overloaded_in_the_middle() -> None:
    """An error event after HTTP 200 is recognised by its type."""
    with pytest.raises(ProviderUnavailable):
        _items({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("tool_use", FinishReason.TOOL_USE),
        ("pause_turn", FinishReason.PAUSED),
        ("refusal", FinishReason.REFUSAL),
        ("model_context_window_exceeded", FinishReason.CONTEXT_FULL),
        ("a later word", FinishReason.STOP),
    ],
)
def test_stop_reasons(word: str, reason: FinishReason) -> None:
    """The provider's own word is kept beside ours."""
    ending = {"type": "message_delta", "delta": {"stop_reason": word}}
    assert _items(ending, {"type": "message_stop"})[-1] == StepFinished(reason, word)
