"""Reader of OpenAI Responses, with what recordings seldom hold."""

from typing import Any

import pytest

from tests.support.clients.stream_reader import read
from turnwire.domain.conversation.messages import FinishReason
from turnwire.domain.errors import ProviderError
from turnwire.ports.provider import PartEnded, ReasoningDelta, StepFinished, TextDelta, ToolCallDelta
from turnwire.providers.openai_responses.stream import ResponsesReader


def test_sealed_reasoning_item_survives_byte_exact() -> None:
    """The item of output_item.done is stored as the provider wrote it."""
    item = '{"id": "rs",  "type":"reasoning","summary":[],"encrypted_content":"gA\\u0041=="}'
    data = f'{{"type":"response.output_item.done","output_index":0,"item":{item}}}'.encode()
    opened, ended = read(ResponsesReader({}, "m"), data)
    assert isinstance(opened, ReasoningDelta)
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
        {"type": "response.done", "response": {"status": "failed", "error": {"code": "server_error", "message": "x"}}},
        {"type": "response.completed", "response": {"status": "failed", "error": {"message": "x"}}},
        {"type": "error", "code": "server_error", "message": "x"},
        {"type": "error", "error": {"type": "server_error", "message": "x"}},
    ],
)
def test_failed_response(event: dict[str, Any]) -> None:
    """All forms of an error are one."""
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


def test_responses_behind_the_end_of_one() -> None:
    """The same for Responses, where items are numbered from 0 again."""
    delta = {"type": "response.output_text.delta", "output_index": 0, "delta": "a"}
    items = read(
        ResponsesReader({}, "m"),
        delta,
        {"type": "response.completed", "response": {"status": "completed"}},
        {"type": "response.created", "response": {}},
        delta,
        {"type": "response.incomplete", "response": {"status": "incomplete"}},
    )
    assert items == [TextDelta(0, "a"), TextDelta(1, "a"), StepFinished(FinishReason.LENGTH, "incomplete")]


def test_response_that_begins_again_and_breaks() -> None:
    """When another answer has begun, the end of the first is not the end."""
    items = read(
        ResponsesReader({}, "m"),
        {"type": "response.completed", "response": {}},
        {"type": "response.created", "response": {}},
    )
    assert items == []


def test_the_next_part_of_reasoning_ends_the_one_before() -> None:
    """The last one ends with its item, whose state it has."""
    summary = [{"type": "summary_text", "text": text} for text in "ab"]
    deltas = [
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": at, "delta": text}
        for at, text in enumerate("ab")
    ]
    done = {"type": "response.output_item.done", "output_index": 0, "item": {"type": "reasoning", "summary": summary}}
    items = read(ResponsesReader({}, "m"), *deltas, done)
    assert items[:-1] == [ReasoningDelta(0, "a"), PartEnded(0), ReasoningDelta(1, "b")]
    assert isinstance(items[-1], PartEnded)
    assert items[-1].key == 1


def test_items_without_output_index() -> None:
    """Items that are not numbered are told apart by their id."""
    added = [
        {
            "type": "response.output_item.added",
            "item": {"type": "function_call", "id": name, "call_id": name, "name": "f"},
        }
        for name in "ab"
    ]
    pieces = [
        {"type": "response.function_call_arguments.delta", "item_id": name, "delta": f'"{name}"'} for name in "ab"
    ]
    items = read(ResponsesReader({}, "m"), *added, *pieces)
    assert [(item.key, item.arguments) for item in items if isinstance(item, ToolCallDelta)] == [
        (0, ""), (1, ""), (0, '"a"'), (1, '"b"')
    ]  # fmt: skip
