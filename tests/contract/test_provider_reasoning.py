"""Reasoning, and what only its own model may read again, in the requests of the three APIs."""

from typing import Any

import msgspec
import pytest

from tests.support.models.provider_requests import DONE_CALL, HELLO, anthropic, chat, message, part, responses
from tests.support.rules import check_anthropic
from turnwire.domain.conversation.messages import Part, ProviderContent, Reasoning, Text
from turnwire.domain.conversation.turns import GenerationOptions

SIGNED = '{"api":"anthropic","model":"m","signature":"s=="}'
SEALED = '{"api":"anthropic","model":"m","block":{"type":"redacted_thinking","data":"AA"}}'


def test_signed_thinking_goes_back_to_its_model() -> None:
    """In order and with its signature, before the call it led to."""
    parts = (
        part(Reasoning("hm"), SIGNED),
        part(Reasoning(""), SEALED),
        part(Reasoning("unsigned")),
        Part(part_id="call", index=3, content=DONE_CALL),
    )
    sent = anthropic(HELLO, message("assistant", *parts))["messages"][1]["content"]
    assert sent == [
        {"type": "thinking", "thinking": "hm", "signature": "s=="},
        {"type": "redacted_thinking", "data": "AA"},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"n": 1.0}},
    ]


@pytest.mark.parametrize("origin", [{"provider": "other"}, {"model": "other"}])
def test_reasoning_of_others_is_dropped(origin: dict[str, str]) -> None:
    """Neither the state nor the text of another provider's or model's reasoning is sent."""
    state = SIGNED if "provider" in origin else SIGNED.replace('"m"', '"other"')
    answer = message("assistant", part(Reasoning("hm"), state), Text("hi"), **origin)
    assert anthropic(HELLO, answer)["messages"][1]["content"] == [{"type": "text", "text": "hi"}]
    for body in (chat(HELLO, answer, reasoning=True), responses(HELLO, answer)):
        assert "hm" not in str(body)


def test_reasoning_items_of_responses() -> None:
    """Sealed items go back with what followed them, and not alone; items stored nowhere are dropped."""
    item = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gAAA"}
    state = '{"api":"openai_responses","model":"m","item":' + str(item).replace("'", '"') + "}"
    thought = part(Reasoning(""), state)
    assert responses(HELLO, message("assistant", thought, Text("hi")))["input"][1:] == [
        item,
        {"role": "assistant", "content": "hi"},
    ]
    assert len(responses(HELLO, message("assistant", thought))["input"]) == 1
    unsealed = part(Reasoning("x"), state.replace("gAAA", ""))
    assert len(responses(HELLO, message("assistant", unsealed, Text("hi")))["input"]) == 2


def test_phase_goes_back_with_its_text() -> None:
    """Codex models want their phases back."""
    text = part(Text("hi"), '{"api":"openai_responses","model":"m","phase":"final_answer"}')
    assert responses(HELLO, message("assistant", text))["input"][1] == {
        "role": "assistant", "content": "hi", "phase": "final_answer",
    }  # fmt: skip


def test_hosted_content_is_replayed_to_its_provider() -> None:
    """A trace of a hosted tool goes back as it was, and to nobody else."""
    block = '{"type":"container_upload","file_id":"f"}'
    trace = part(ProviderContent("container_upload"), f'{{"api":"anthropic","model":"m","block":{block}}}')
    answer = message("assistant", trace, Text("hi"))
    assert [b["type"] for b in anthropic(HELLO, answer)["messages"][1]["content"]] == ["container_upload", "text"]
    assert responses(HELLO, answer)["input"][1:] == [{"role": "assistant", "content": "hi"}]


def test_reasoning_content_of_turns_with_calls_and_of_the_running_one() -> None:
    """DeepSeek wants these back in all later requests; of older turns without calls it wants nothing."""
    old = message("assistant", Reasoning("old"), Text("hi"))
    new = message("assistant", Reasoning("new"), DONE_CALL)
    history = [
        msgspec.structs.replace(said, message_id=str(at))
        for at, said in enumerate((HELLO, old, HELLO, new, old, HELLO, old))
    ]
    sent = chat(*history, reasoning=True)["messages"]
    assert [m.get("reasoning_content") for m in sent if m["role"] == "assistant"] == [None, "new", "old", "old"]
    assert "new" not in str(chat(HELLO, new)["messages"])


def test_reasoning_effort() -> None:
    """Each API's way; a budget for older Claude models, an effort for newer ones, and then no temperature."""
    options = GenerationOptions(temperature=0.5, max_output_tokens=7, reasoning_effort="low")
    assert chat(HELLO, options=options)["reasoning_effort"] == "low"
    body = responses(HELLO, options=options)
    assert (body["reasoning"], body["include"]) == ({"effort": "low"}, ["reasoning.encrypted_content"])
    old = anthropic(HELLO, options=options, model_id="claude-sonnet-4-5-20250929")
    assert (old["thinking"], old["max_tokens"]) == ({"type": "enabled", "budget_tokens": 2048}, 2055)
    new = anthropic(HELLO, options=options, model_id="claude-opus-4-8")
    assert (new["thinking"], new["output_config"]) == ({"type": "adaptive"}, {"effort": "low"})
    assert "temperature" not in old | new


@pytest.mark.parametrize(("model", "asks"), [("gpt-4o", False), ("gpt-5", True), ("o3-mini", True)])
def test_sealed_reasoning_is_asked_of_reasoning_models(model: str, asks: bool) -> None:
    """Others refuse to be asked."""
    assert ("include" in responses(HELLO, model_id=model)) is asks


THINKING = part(Reasoning("hm"), '{"api":"anthropic","model":"claude-sonnet-4-5","signature":"c2ln"}')
THOUGHT = message("assistant", THINKING, Part(part_id="part1", index=1, content=DONE_CALL), model="claude-sonnet-4-5")
UNTHOUGHT = message("assistant", DONE_CALL, provider="q")


@pytest.mark.parametrize(
    ("history", "thinks"),
    [
        ((HELLO, THOUGHT), True),
        ((HELLO, UNTHOUGHT), False),
        ((HELLO, THOUGHT, UNTHOUGHT), True),
        ((HELLO, UNTHOUGHT, THOUGHT), False),
        # the results and the next question are one message there
        ((HELLO, UNTHOUGHT, HELLO), False),
        ((HELLO, UNTHOUGHT, message("assistant", Text("done")), HELLO), True),
        ((HELLO, UNTHOUGHT, HELLO, THOUGHT), True),
    ],
)
def test_a_tool_loop_that_began_without_thinking_goes_on_without(history: Any, thinks: bool) -> None:
    """As after a fallback model: Anthropic refuses a budget for thinking there, but not in the next turn."""
    options = GenerationOptions(reasoning_effort="low", temperature=0.5, max_output_tokens=100)
    body = anthropic(*history, model_id="claude-sonnet-4-5", options=options)
    assert check_anthropic(body) == []
    assert (body.get("thinking") is not None, body.get("temperature")) == (thinks, None if thinks else 0.5)
    assert body["max_tokens"] == (2148 if thinks else 100)
    # models that choose their thinking themselves do not mind
    assert "thinking" in anthropic(*history, model_id="claude-opus-4-8", options=options)
