"""Estimates of what a request takes."""

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.domain_values import make_answer, make_message, make_part
from tests.support.models.recordings import recordings_folder
from turnwire.core.conversation.landmarks import correction
from turnwire.core.token_estimate import (
    CALL_TOKENS,
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    PDF_MIN_TOKENS,
    STATE_CHARS_PER_TOKEN,
    estimate_tokens,
    file_tokens,
    message_tokens,
    text_tokens,
)
from turnwire.domain.conversation.messages import (
    File,
    Message,
    ModelRef,
    ModelRun,
    ProviderContent,
    Reasoning,
    SentContext,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.domain.money import Usage
from turnwire.ports.provider import ProviderRequest

MODEL = ModelRef("p", "m")


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("", 0, 0),
        ("The quick brown fox jumps over the lazy dog. " * 100, 1000, 1500),
        ('{"path": "/tmp/a.txt", "lines": [1, 2, 3], "ok": true}' * 100, 1800, 2600),
        ("今天天气很好，我们去公园散步吧。" * 100, 1000, 1700),
        ("Съешь же ещё этих мягких французских булок. " * 100, 1100, 2500),
        ("🎈" * 100, 100, 300),
    ],
)
def test_text_is_counted_by_its_kind(text: str, low: int, high: int) -> None:
    """Between what the common tokenisers make of it and half as much again."""
    assert low <= text_tokens(text) <= high


def test_longer_text_never_counts_less() -> None:
    """Whatever it is made of."""
    text = "Words, 12 numbers, 漢字 and 🎈 balloons; éü."
    sizes = [text_tokens(text[:end]) for end in range(len(text) + 1)]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize(
    ("mime", "size", "low", "high"),
    [
        ("image/png", 10_000_000, IMAGE_TOKENS, IMAGE_TOKENS),
        ("image/svg+xml", 30_000, 10_000, 11_000),
        ("application/pdf", 1_000, PDF_MIN_TOKENS, PDF_MIN_TOKENS),
        ("application/pdf", 5_000_000, 300_000, 400_000),
        ("text/plain", 30_000, 10_000, 11_000),
        ("application/json", 30_000, 10_000, 11_000),
        ("application/zip", 30_000_000, 1, 100),
    ],
)
def test_files_are_counted_as_models_are_shown_them(mime: str, size: int, low: int, high: int) -> None:
    """An image at its most, a document by its size, text by its bytes, anything else as the line that names it."""
    assert low <= file_tokens(File(sha256="a", size_bytes=size, mime=mime)) <= high


def test_all_of_a_request_counts() -> None:
    """System prompt, messages with results and their files, sealed reasoning, tools."""
    image = File(sha256="a", size_bytes=1, mime="image/png")
    call = ToolUse(name="look", input_json="{}", status=ToolStatus.SUCCESS, output="x" * 4000, files=(image,))
    answer = make_answer("a", call, make_part(1, Reasoning(""), provider_state="x" * 5000))
    assert message_tokens(answer) > 1000 + 1000 + IMAGE_TOKENS
    plain = ProviderRequest(model_id="m", system="", messages=(answer,))
    full = ProviderRequest(
        model_id="m", system="x" * 400, messages=(answer,), tools=(ToolDefinition("look", "y" * 400, "{}"),)
    )
    assert estimate_tokens(full) - estimate_tokens(plain) >= 200


@pytest.mark.parametrize(
    ("text", "state", "tokens"),
    [
        ("", "s" * 1000, 1000 // STATE_CHARS_PER_TOKEN),
        ("x" * 4000, "s" * 1000, 1000),
        ("x" * 4000, None, 1000),
        ("", None, 0),
    ],
)
def test_reasoning_counts_as_the_longer_of_its_text_and_its_seal(text: str, state: str | None, tokens: int) -> None:
    """A provider is sent back one of the two."""
    answer = make_answer("a", make_part(0, Reasoning(text), provider_state=state))
    assert message_tokens(answer) == MESSAGE_TOKENS + tokens


@pytest.mark.parametrize(("state", "tokens"), [("s" * 1000, 250), ('{"1":2}' * 100, 350), (None, 0)])
def test_content_that_only_its_provider_understands_counts_by_what_is_kept_of_it(
    state: str | None, tokens: int
) -> None:
    """It has no other text, and may be plain JSON."""
    answer = make_answer("a", make_part(0, ProviderContent("images"), provider_state=state))
    assert message_tokens(answer) == MESSAGE_TOKENS + tokens


def _answered(estimated: int, counted: int | None, model: ModelRef = MODEL, answer_id: str = "a") -> Message:
    sent = SentContext(
        system_hash="s",
        tools_hash="t",
        prefix_hash="p",
        message_count=1,
        estimated_tokens=1,
        uncorrected_tokens=estimated,
    )
    run = ModelRun(provider_id=model.provider_id, model_requested=model.model_id)
    usage = Usage(input_tokens=counted, cache_read_tokens=0 if counted else None)
    return make_answer(answer_id, "x", sent_context=sent, model_run=run, usage=usage)


@pytest.mark.parametrize(
    ("history", "factor"),
    [
        ([], 1.0),
        ([make_message("m", "x")], 1.0),
        ([_answered(100, 150)], 1.5),
        ([_answered(100, 150), _answered(100, 80)], 0.8),
        ([_answered(100, 150), _answered(100, None)], 1.5),
        ([_answered(0, 150)], 1.0),
        ([_answered(100, 150, ModelRef("p", "other"))], 1.0),
        ([_answered(100, 150, ModelRef("other", "m"))], 1.0),
        ([_answered(100, 5000)], 2.0),
        ([_answered(100, 1)], 0.5),
    ],
)
def test_the_newest_count_of_the_same_model_corrects(history: list[Message], factor: float) -> None:
    """Within bounds; nothing is corrected while nothing is known."""
    assert correction(history, MODEL) == factor


def _texts(value: Any) -> Iterator[str]:
    """Returns what a recorded message says, marks and ids left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in ("type", "role", "id", "tool_call_id", "call_id", "cache_control"):
                yield from _texts(item)


@pytest.mark.parametrize("word", ["word ", "wörd", "日本", "🎈", "{1}"])
def test_a_long_text_is_counted_as_its_pieces(word: str) -> None:
    """A long text has nearly the tokens of its pieces, wherever it stands in a message."""
    text = word * 200_000
    once = text_tokens(text)
    call = ToolUse(name="write", call_id="c", input_json=text, output=text, status=ToolStatus.SUCCESS)
    both = make_answer("m", make_part(0, Reasoning(text)), make_part(1, call))
    for message, expected in ((make_message("m", text), once), (both, 3 * once + CALL_TOKENS + text_tokens("write"))):
        assert message_tokens(message) == MESSAGE_TOKENS + expected
    assert 0.99 * once < sum(text_tokens(word * 2_000) for _ in range(100)) < 1.01 * once


def _recorded_prompts(folder: Path) -> Iterator[tuple[int, int]]:
    """Returns estimate and count of each recorded request that says all of its prompt."""
    for entry in json.loads((folder / "index.json").read_bytes()):
        body, counted = entry.get("request"), entry["expected"]["input_tokens"]
        tools = (body or {}).get("tools") or []
        if not body or not counted or any(tool.get("type") not in (None, "function", "custom") for tool in tools):
            continue
        said = body.get("messages") or body.get("input")
        yield (
            estimate_tokens(
                ProviderRequest(
                    model_id="m",
                    system="".join(_texts(body.get("system") or body.get("instructions") or "")),
                    messages=tuple(make_message("m", *_texts(m)) for m in ([said] if isinstance(said, str) else said)),
                    tools=tuple(_tool(tool.get("function", tool)) for tool in tools),
                )
            ),
            counted,
        )


def _tool(tool: dict[str, Any]) -> ToolDefinition:
    schema = tool.get("parameters") or tool.get("input_schema") or {}
    return ToolDefinition(tool["name"], tool.get("description", ""), json.dumps(schema))


@pytest.mark.recordings
def test_recorded_prompts_are_about_as_long_as_estimated() -> None:
    """Over all recorded requests without files and hosted tools the estimate is a little high, and never by much."""
    folder = recordings_folder()
    if folder is None:
        pytest.skip("no recorded streams: set TURNWIRE_RECORDINGS or put them at ../shared/provider-streams")
    ratios = [estimated / counted for estimated, counted in _recorded_prompts(folder)]
    assert len(ratios) > 30
    assert 1.0 <= statistics.median(ratios) <= 1.6
    assert max(ratios) <= 4
