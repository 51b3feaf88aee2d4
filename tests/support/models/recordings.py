"""The recorded provider streams beside the project, and a comparison of what an adapter made of one."""

import json
import os
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from turnwire.domain.errors import ProviderError, ProviderStreamCut
from turnwire.domain.money import Usage
from turnwire.ports.provider import (
    PartEnded,
    PartKey,
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

KINDS = {"anthropic": "anthropic", "chat": "openai_chat", "responses": "openai_responses"}
"""Kind of provider by kind of recording."""

KNOWN_DIFFERENCES: dict[str, tuple[frozenset[str], str]] = {
    "anthropic/020.sse": (
        frozenset({"text"}),
        "two answers in one body; the index gives the second one's text also in place of the first one's first block",
    ),
    "anthropic/022.sse": (
        frozenset({"reasoning", "tool_calls"}),
        "an answer that starts over in the middle; the index gives the second one's blocks twice, the first one's not",
    ),
    "responses/037.sse": (
        frozenset({"tool_calls"}),
        "four answers in one body; the index drops the second one's call for the third one's and puts that first",
    ),
}
"""Where the index is not followed: the fields, and why. Each shows twice what came once, or loses what came."""


@dataclass(frozen=True)
class Recording:
    """One recorded answer."""

    name: str
    kind: str
    """Kind of the provider that reads it."""
    body: bytes
    expected: dict[str, Any]


@cache
def recordings_folder() -> Path | None:
    """Returns the folder; None when it is not there."""
    root = Path(__file__).resolve().parents[3]
    folder = Path(os.environ.get("TURNWIRE_RECORDINGS") or root.parent / "shared" / "provider-streams")
    return folder if (folder / "index.json").is_file() else None


@cache
def load_recordings() -> tuple[Recording, ...]:
    """Returns all recordings, ordered as in the index; none when the folder is not there."""
    folder = recordings_folder()
    if folder is None:
        return ()
    entries = json.loads((folder / "index.json").read_text("utf-8"))
    return tuple(
        Recording(entry["file"], KINDS[entry["kind"]], (folder / entry["file"]).read_bytes(), entry["expected"])
        for entry in entries
    )


def recording_params() -> list[Any]:
    """Returns one pytest parameter per recording, or a single skipped one that says why."""
    recordings = load_recordings()
    if recordings:
        return [pytest.param(recording, id=recording.name) for recording in recordings]
    reason = "no recorded streams: set TURNWIRE_RECORDINGS or put them at ../shared/provider-streams"
    return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=reason))]


def cut_anywhere(body: bytes, seed: str, mean_bytes: int = 200) -> Iterator[bytes]:
    """Yields the body in pieces whose lengths are random, but the same for the same seed."""
    source = random.Random(seed)
    at = 0
    while at < len(body):
        step = source.randint(1, 2 * mean_bytes)
        yield body[at : at + step]
        at += step


@dataclass
class Answer:
    """An answer put together from its stream, as simply as can be."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, str]] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    finish: str | None = None
    model: str = ""
    error: ProviderError | None = None
    provider_states: list[str] = field(default_factory=list)

    def comparable(self) -> dict[str, Any]:
        """Returns the fields of an index entry's `expected`."""
        return {
            "text": self.text,
            "reasoning": self.reasoning,
            "tool_calls": self.tool_calls,
            "input_tokens": self.usage.prompt_total,
            "output_tokens": self.usage.shown_output,
            "reasoning_tokens": self.usage.reasoning_tokens,
            "cache_read_tokens": self.usage.cache_read_tokens,
            "cache_write_tokens": self.usage.cache_write_tokens,
            "finish": self.finish,
            "model": self.model,
            "error": self.error is not None and not isinstance(self.error, ProviderStreamCut),
            "truncated": isinstance(self.error, ProviderStreamCut),
        }


def comparable_expectation(expected: dict[str, Any]) -> dict[str, Any]:
    """Returns an index entry's `expected` in the form of `Answer.comparable`."""
    result = {**expected, "error": expected["error"] is not None, "model": expected.get("model") or ""}
    calls = [{**call, "arguments": _empty_as_object(call["arguments"])} for call in expected["tool_calls"]]
    return {**result, "tool_calls": calls}


def unexplained_differences(recording: Recording, found: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns what was found and what was expected by field, where they differ and must not, or must and do not."""
    expected = comparable_expectation(recording.expected)
    known = KNOWN_DIFFERENCES.get(recording.name, (frozenset[str](), ""))[0]
    return {
        name: (found.get(name), value)
        for name, value in expected.items()
        if (found.get(name) != value) != (name in known)
    }


async def collect(items: AsyncIterator[StreamItem]) -> Answer:
    """Reads a stream to its end or error."""
    answer = Answer()
    texts: dict[PartKey, tuple[str, list[str]]] = {}
    calls: dict[PartKey, dict[str, str]] = {}
    try:
        async for item in items:
            match item:
                case TextDelta(key, text) | RefusalDelta(key, text):
                    texts.setdefault(key, ("text", []))[1].append(text)
                case ReasoningDelta(key, text):
                    texts.setdefault(key, ("reasoning", []))[1].append(text)
                case ToolCallDelta(key, name, call_id, arguments):
                    call = calls.setdefault(key, {"id": "", "name": "", "arguments": ""})
                    call["name"] = call["name"] or name
                    call["id"] = call["id"] or call_id
                    call["arguments"] += arguments
                case PartEnded(key, state, text):
                    if text is not None:
                        calls[key]["arguments"] = text
                    if state is not None:
                        answer.provider_states.append(state)
                case ProviderContentReceived(_, _, state):
                    answer.provider_states.append(state)
                case UsageReported(usage):
                    answer.usage = usage
                case ResponseStarted(model, _):
                    answer.model = model or answer.model
                case StepFinished(_, provider_reason):
                    answer.finish = provider_reason or None
    except ProviderError as error:
        answer.error = error
    joined = {
        kind: "".join(t for k, pieces in texts.values() if k == kind for t in pieces) for kind in ("text", "reasoning")
    }
    answer.text = _join_surrogates(joined["text"])
    answer.reasoning = _join_surrogates(joined["reasoning"])
    for call in calls.values():
        arguments = _join_surrogates(call["arguments"])
        answer.tool_calls.append({**call, "arguments": _empty_as_object(arguments)})
    return answer


def _join_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _empty_as_object(arguments: str) -> str:
    return arguments or "{}"
