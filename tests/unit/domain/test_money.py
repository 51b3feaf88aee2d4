"""Tokens and their sums, where None means that nobody said."""

import pytest

from turnwire.domain.money import Usage, add_known, add_usage, usd


@pytest.mark.parametrize(("a", "b", "total"), [(None, None, None), (0, None, 0), (None, 2, 2), (1, 2, 3)])
def test_known_counts_are_added(a: int | None, b: int | None, total: int | None) -> None:
    """Unknown only when neither is known."""
    assert add_known(a, b) == total


@pytest.mark.parametrize(
    ("usage", "prompt", "generated"),
    [
        (Usage(), None, None),
        (Usage(input_tokens=1, cache_read_tokens=2, cache_write_tokens=3), 6, None),
        (Usage(cache_read_tokens=2), 2, None),
        (Usage(output_tokens=4, reasoning_tokens=5), None, 9),
        (Usage(output_tokens=0), None, 0),
    ],
)
def test_totals_are_of_what_is_known(usage: Usage, prompt: int | None, generated: int | None) -> None:
    """Cached tokens belong to the prompt, reasoning to what was generated."""
    assert (usage.prompt_total, usage.generated_total) == (prompt, generated)


@pytest.mark.parametrize(
    ("a", "b", "total"),
    [
        (None, None, None),
        (Usage(input_tokens=1), None, Usage(input_tokens=1)),
        (None, Usage(input_tokens=1), Usage(input_tokens=1)),
        (Usage(), Usage(), Usage()),
        (
            Usage(input_tokens=1, cache_read_tokens=2, output_tokens=3),
            Usage(input_tokens=10, cache_write_tokens=20, output_tokens=30, reasoning_tokens=40),
            Usage(input_tokens=11, cache_read_tokens=2, cache_write_tokens=20, output_tokens=33, reasoning_tokens=40),
        ),
    ],
)
def test_usage_is_added_bucket_by_bucket(a: Usage | None, b: Usage | None, total: Usage | None) -> None:
    """A bucket that one step does not know is the other's."""
    assert add_usage(a, b) == total


@pytest.mark.parametrize(
    ("a", "b", "shown"),
    [
        (Usage(output_tokens=1, reasoning_tokens=2), None, 3),
        (Usage(output_tokens=1, reasoning_tokens=2, reported_output_tokens=1), None, 1),
        (Usage(output_tokens=1, reasoning_tokens=2, reported_output_tokens=1), Usage(output_tokens=10), 11),
        (Usage(output_tokens=10), Usage(output_tokens=1, reported_output_tokens=0), 10),
    ],
)
def test_shown_output_is_the_providers_own_count(a: Usage, b: Usage | None, shown: int) -> None:
    """Where it differs from the buckets; in a sum each step counts as it was shown."""
    assert add_usage(a, b).shown_output == shown


@pytest.mark.parametrize(
    ("pico_usd", "text"),
    [
        (0, "0"),
        (1, "0.000000000001"),
        (75_000_000_000, "0.075"),
        (10 * 10**12, "10"),
        (123_456_789 * 10**12 + 100, "123456789.0000000001"),
    ],
)
def test_money_is_written_exactly(pico_usd: int, text: str) -> None:
    """Without exponents, and without zeros that say nothing."""
    assert usd(pico_usd) == text
