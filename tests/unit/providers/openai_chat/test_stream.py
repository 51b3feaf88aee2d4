"""Reader of Chat Completions, with what recordings seldom hold."""

import json
from typing import Any

import pytest

from tests.support.clients.stream_reader import read
from turnwire.domain.conversation.messages import FinishReason
from turnwire.domain.errors import ProviderRateLimited, ProviderStreamFailed
from turnwire.domain.money import Usage
from turnwire.ports.provider import (
    PartEnded,
    ProviderContentReceived,
    ReasoningDelta,
    RefusalDelta,
    ResponseStarted,
    StepFinished,
    StreamItem,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from turnwire.providers.openai_chat.stream import ChatReader


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


def test_a_name_that_is_repeated_without_an_id_goes_on() -> None:
    """Until its arguments are whole; another name begins another call in the same slot."""
    assert chat_calls(
        fragment('{"x":', "f", index=0), fragment("1}", "f", index=0),
        fragment('{"x":', "g", index=0), fragment("2}", "h", index=0),
    ) == [("", "f", '{"x":1}'), ("", "g", '{"x":'), ("", "h", "2}")]  # fmt: skip


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
    state = '{"api":"openai_chat","model":"m","readable":true}'
    assert items[:3] == [ReasoningDelta(1, "hm"), PartEnded(1, state), TextDelta(2, "hi")]


def test_the_model_that_answers_may_change() -> None:
    """A router goes on with another one. Chunks that say nothing new of it, and further ids, tell nothing."""
    origins = [{"id": "r1", "model": "a"}, {"id": "r2", "model": "a"}, {"id": "r2"}, {"id": "r3", "model": "b"}]
    items = read(ChatReader({}, "m"), *({"choices": [], **origin} for origin in origins), b"[DONE]")
    assert items == [ResponseStarted("a", "r1"), ResponseStarted("b", "")]


def test_refusal() -> None:
    """A refusal is a part of its own, and the end of a refused answer."""
    assert chat({"refusal": "no"}) == [RefusalDelta(1, "no"), PartEnded(1), StepFinished(FinishReason.REFUSAL, "stop")]


def test_halves_of_a_surrogate_pair_are_passed_through() -> None:
    """Two deltas that share an emoji carry a half each."""
    chunk = b'{"choices":[{"delta":{"content":"\\ud83d"}}]}'
    assert read(ChatReader({}, "m"), chunk) == [TextDelta(1, "\ud83d")]


def test_items_before_an_error_stay() -> None:
    """The items of an event come before its error."""
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


def _kept(*deltas: dict[str, Any]) -> dict[str, Any]:
    """Returns what a chat answer keeps for its provider, by kind."""
    kept = [item for item in chat(*deltas) if isinstance(item, ProviderContentReceived)]
    assert len({item.key for item in kept}) == len(kept)
    return {item.kind: json.loads(item.state)[item.kind] for item in kept}


def test_a_trace_that_is_repeated_with_its_output_is_kept_once() -> None:
    """Groq sends a tool that it ran by itself before and after; the later one is whole."""
    begun, other = {"index": 0, "type": "search"}, {"index": 1, "type": "python"}
    whole = {**begun, "output": "found"}
    assert _kept({"executed_tools": [begun, other]}, {"executed_tools": [whole]}) == {"executed_tools": [other, whole]}


def test_entries_without_an_index_are_all_kept() -> None:
    """Whether they come as a list or alone; each kind apart."""
    images = [{"image_url": "a"}, {"image_url": "b"}]
    kept = _kept({"images": images[:1]}, {"images": images[1:], "executed_tools": {"type": "search"}}, {"images": "c"})
    assert kept == {"images": [*images, "c"], "executed_tools": [{"type": "search"}]}


def test_finish_reason_may_come_with_content_and_more_than_once() -> None:
    """The last one counts; what comes beside it is not lost."""
    chunks = [
        {"choices": []},
        {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "length"}]},
        {"choices": None, "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
    ]
    assert read(ChatReader({}, "m"), *chunks, b"[DONE] ") == [
        TextDelta(1, "a"),
        TextDelta(1, "b"),
        UsageReported(Usage(input_tokens=1, output_tokens=2)),
        PartEnded(1),
        StepFinished(FinishReason.LENGTH, "length"),
    ]


def test_nothing_stands_for_a_missing_end() -> None:
    """Without end marker and finish reason a reader gives no end."""
    chunk = {"choices": [{"delta": {"content": "a"}, "finish_reason": None}]}
    assert read(ChatReader({}, "m"), chunk) == [TextDelta(1, "a")]


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "", "tool_calls": None, "refusal": None, "reasoning": None, "function_call": None, "audio": None},
        {"role": "assistant", "content": None, "annotations": [{"type": "url_citation", "url_citation": {}}]},
        {"reasoning": {"unknown": 1}, "tool_calls": ["unknown"]},
        {"content": [{"type": "reference", "reference_ids": [1]}, "unknown"]},
    ],
)
def test_empty_and_unknown_fields_are_skipped(delta: dict[str, Any]) -> None:
    """A field that says nothing opens no part."""
    assert chat(delta) == [StepFinished(FinishReason.STOP, "stop")]


def test_call_with_null_fields() -> None:
    """Later fragments may hold null for everything that was said, and arguments may be an object."""
    call = {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": '{"x":1}'}}
    assert chat_calls(fragment("", "f", id="a", index=0), call) == [("a", "f", '{"x":1}')]
    assert chat_calls({"function": {"name": "f", "arguments": {"x": 1}}}) == [("", "f", '{"x":1}')]
    assert chat_calls(fragment("{}", "f", id="a"), {"index": 0, "function": None}) == [("a", "f", "{}")]


def test_error_of_a_choice() -> None:
    """OpenRouter tells an error of the provider behind it with the choice; the usage beside it counts."""
    choice = {"delta": {"content": ""}, "finish_reason": "error", "error": {"code": 429, "message": "slow down"}}
    items: list[StreamItem] = []
    reader = ChatReader({}, "m")
    with pytest.raises(ProviderRateLimited, match="slow down"):
        reader.read(b"", json.dumps({"choices": [choice], "usage": {"prompt_tokens": 1}}).encode(), items)
    assert items == [UsageReported(Usage(input_tokens=1))]
    assert reader.provider_reason == "error"
