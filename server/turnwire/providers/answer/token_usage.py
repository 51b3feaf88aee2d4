"""Converts token counts of providers into buckets that do not overlap.

OpenAI's convention (https://platform.openai.com/docs/api-reference/chat/object#chat/object-usage): prompt tokens
include cached ones, generated tokens include reasoning. Anthropic's
(https://docs.anthropic.com/en/api/messages#response-usage): input tokens exclude cache reads and writes.
"""

from collections.abc import Mapping
from typing import Any

from turnwire.domain.money import Usage

MAX_COUNT = 2**53
"""Larger counts are invalid, and their sums would not fit the contract's numbers."""

ANTHROPIC_COUNTS = frozenset(
    (
        "input_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "output_tokens",
        "output_tokens_details",
    )
)
"""The fields of a usage that `from_anthropic` reads."""


def from_openai(usage: Mapping[str, Any]) -> Usage | None:
    """Reads the usage of Chat Completions, of compatible servers and of Responses; None when it has no counts."""
    prompt = _count(usage, "prompt_tokens", "input_tokens")
    generated = _count(usage, "completion_tokens", "output_tokens")
    if prompt is None and generated is None:
        return None
    prompt_details = _details(usage, "prompt_tokens_details", "input_tokens_details")
    # DeepSeek and Moonshot report cache hits outside the details.
    read = _first(_count(prompt_details, "cached_tokens"), _count(usage, "prompt_cache_hit_tokens", "cached_tokens"))
    # Servers without paid cache writes send 0, which is not informative.
    written = _count(prompt_details, "cache_write_tokens", "cache_creation_tokens") or None
    reasoning = _count(_details(usage, "completion_tokens_details", "output_tokens_details"), "reasoning_tokens")
    visible, reported = _visible(generated, reasoning)
    if reasoning and generated is not None and _reasoning_is_on_top(usage, prompt, generated, reasoning):
        visible = reported = generated
    return Usage(
        input_tokens=None if prompt is None else max(0, prompt - (read or 0) - (written or 0)),
        cache_read_tokens=_at_most(read, prompt),
        cache_write_tokens=written,
        output_tokens=visible,
        reasoning_tokens=reasoning,
        reported_output_tokens=reported,
    )


def from_anthropic(usage: Mapping[str, Any]) -> Usage | None:
    """Reads the merged usage of an Anthropic answer; None when it has no counts."""
    generated = _count(usage, "output_tokens")
    thinking = _count(_details(usage, "output_tokens_details"), "thinking_tokens")
    prompt = _count(usage, "input_tokens")
    # Older models omit the cache's counts when there is no cache.
    uncached = None if prompt is None else 0
    visible, reported = _visible(generated, thinking)
    result = Usage(
        input_tokens=prompt,
        cache_read_tokens=_first(_count(usage, "cache_read_input_tokens"), uncached),
        cache_write_tokens=_first(_count(usage, "cache_creation_input_tokens"), uncached),
        output_tokens=visible,
        reasoning_tokens=thinking,
        reported_output_tokens=reported,
    )
    return None if result == Usage() else result


def _visible(generated: int | None, reasoning: int | None) -> tuple[int | None, int | None]:
    """Returns the visible part of the generated tokens, and their total when the parts do not add up to it."""
    if generated is None or reasoning is None:
        return generated, None
    # Routers mix counts of two tokenisers, so a part can exceed its total.
    return (generated - reasoning, None) if reasoning <= generated else (0, generated)


def _reasoning_is_on_top(usage: Mapping[str, Any], prompt: int | None, generated: int, reasoning: int) -> bool:
    # xAI does not count reasoning in completion_tokens; the total shows that:
    # https://docs.x.ai/docs/guides/reasoning
    total = _count(usage, "total_tokens")
    return total is not None and total == (prompt or 0) + generated + reasoning


def _at_most(count: int | None, bound: int | None) -> int | None:
    # As in `_visible`.
    return count if count is None or bound is None else min(count, bound)


def _first(a: int | None, b: int | None) -> int | None:
    return b if a is None else a


def _details(usage: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        details = usage.get(name)
        if isinstance(details, dict):
            return details
    return {}


def _count(usage: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MAX_COUNT:
            return int(value)
    return None
