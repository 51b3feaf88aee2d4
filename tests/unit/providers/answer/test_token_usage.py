"""Token counts of the providers as buckets, and the total by their own word."""

from typing import Any

import pytest

from turnwire.domain.money import Usage
from turnwire.providers.answer.token_usage import from_anthropic, from_openai


def openai(prompt: int, completion: int, total: int, reasoning: int | None, cached: int | None = None) -> Usage | None:
    """Returns the usage of a Chat Completions answer."""
    return from_openai(
        {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": total,
            "completion_tokens_details": {"reasoning_tokens": reasoning},
            "prompt_tokens_details": {"cached_tokens": cached},
        }
    )


@pytest.mark.parametrize(
    ("usage", "buckets", "paid", "shown"),
    [
        (openai(10, 7, 17, None), Usage(input_tokens=10, output_tokens=7), 7, 7),
        (openai(10, 7, 17, 5), Usage(input_tokens=10, output_tokens=2, reasoning_tokens=5), 7, 7),
        (
            openai(12, 2, 354, 340, 11),
            Usage(
                input_tokens=1, cache_read_tokens=11, output_tokens=2, reasoning_tokens=340, reported_output_tokens=2
            ),
            342,
            2,
        ),
        (
            openai(43, 10, 53, 11),
            Usage(input_tokens=43, output_tokens=0, reasoning_tokens=11, reported_output_tokens=10),
            11,
            10,
        ),
    ],
    ids=["no reasoning", "reasoning inside", "xAI adds reasoning on top", "two tokenisers"],
)
def test_openai(usage: Usage, buckets: Usage, paid: int, shown: int) -> None:
    """Buckets do not overlap, and the provider's own total is kept where they do not add up to it."""
    assert (usage, usage.generated_total, usage.shown_output) == (buckets, paid, shown)


def test_anthropic_thinking_is_a_share_of_the_output() -> None:
    """Where Anthropic tells the share, it is a bucket of its own."""
    usage = {"input_tokens": 3, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}
    expected = Usage(input_tokens=3, cache_read_tokens=0, cache_write_tokens=0, output_tokens=5, reasoning_tokens=4)
    assert from_anthropic(usage) == expected


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": None}, {"total_tokens": 3}, {"prompt_tokens": "x"}])
def test_nothing_counted(usage: dict[str, Any]) -> None:
    """Usage without counts is absent, not 0."""
    assert from_openai(usage) is None
    assert from_anthropic(usage) is None
