"""Prices of model calls."""

import subprocess
import sys

import pytest

from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.money import PICO_USD, Usage
from turnwire.providers.catalog.pricing import cost_pico_usd, listed_model, vendor_models
from turnwire.providers.registry import ConfiguredProviders
from turnwire.providers.settings import ProviderSettings
from turnwire.providers.token_prices import TokenPrices

MICRO_USD = PICO_USD // 1_000_000
"""A price of N USD per million tokens is N micro-USD per token."""


def test_each_bucket_has_its_price() -> None:
    """Claude Sonnet 4.5: 3 USD fresh, 0.3 read, 3.75 written, 15 generated, reasoning as generated."""
    usage = Usage(
        input_tokens=700, cache_read_tokens=200, cache_write_tokens=100, output_tokens=300, reasoning_tokens=200
    )
    cost = cost_pico_usd("anthropic", "", "claude-sonnet-4-5", usage)
    assert cost == (700 * 3 + 60 + 375 + 500 * 15) * MICRO_USD


def test_reasoning_that_is_not_in_the_reported_output_is_paid() -> None:
    """The cost is that which xAI itself reports (`cost_in_usd_ticks` 1721250, of 1e-10 USD each)."""
    usage = Usage(input_tokens=1, cache_read_tokens=11, output_tokens=2, reasoning_tokens=340, reported_output_tokens=2)
    assert cost_pico_usd("", "https://api.x.ai/v1", "grok-3-mini", usage) == 1721250 * 100


def test_cached_tokens_are_not_billed_twice() -> None:
    """A prompt that was read from the cache costs the cache's price alone."""
    usage = Usage(input_tokens=0, cache_read_tokens=1000)
    assert cost_pico_usd("anthropic", "", "claude-sonnet-4-5", usage) == 300 * MICRO_USD


def test_unknown_is_none() -> None:
    """An unknown model, an unknown address and an empty usage have no price, not the price 0."""
    assert cost_pico_usd("openai", "", "no-such-model", Usage(input_tokens=1)) is None
    assert cost_pico_usd("", "http://127.0.0.1:8000/v1", "gpt-4o", Usage(input_tokens=1)) is None
    assert cost_pico_usd("openai", "", "gpt-4o", Usage()) is None


def test_a_configured_price_wins_and_the_list_gives_the_others() -> None:
    """At the length of the prompt: the list's Sonnet 4.5 costs twice as much to read beyond 200,000 tokens."""
    own = TokenPrices(output=1_000 * PICO_USD)
    short = Usage(input_tokens=10, output_tokens=1)
    long = Usage(input_tokens=200_001, cache_read_tokens=10, output_tokens=1)
    costs = [cost_pico_usd("anthropic", "", "claude-sonnet-4-5", usage, own) for usage in (short, long)]
    assert costs == [(30 + 1000) * MICRO_USD, (200_001 * 6 + 6 + 1000) * MICRO_USD]


def test_a_bucket_without_a_price_leaves_the_cost_unknown() -> None:
    """It is never free, and no other bucket's price stands in; a bucket that was not used needs none."""
    own = TokenPrices(input=2 * PICO_USD, output=3 * PICO_USD)
    local = ("", "http://127.0.0.1:8000/v1", "gpt-4o")
    assert cost_pico_usd(*local, Usage(input_tokens=5, cache_read_tokens=0, output_tokens=7), own) == 31 * MICRO_USD
    assert cost_pico_usd(*local, Usage(input_tokens=5, cache_read_tokens=1), own) is None
    assert cost_pico_usd(*local, Usage(input_tokens=5, cache_write_tokens=1), own) is None
    assert cost_pico_usd(*local, Usage(), own) is None
    assert cost_pico_usd("openai", "", "text-embedding-3-small", Usage(input_tokens=5, output_tokens=1)) is None


def test_configured_prices_are_rounded_once() -> None:
    """Half to even, over all buckets together."""
    own = TokenPrices(input=250_000, output=250_000, cache_read=0, cache_write=1_000_000)
    costs = [
        cost_pico_usd("", "", "m", Usage(input_tokens=n, output_tokens=1, reasoning_tokens=0), own) for n in (1, 5, 6)
    ]
    assert costs == [0, 2, 2]
    assert cost_pico_usd("", "", "m", Usage(cache_write_tokens=3, cache_read_tokens=9), own) == 3


def test_names_are_those_of_the_model_and_not_of_its_family() -> None:
    """The list has one entry for all dated versions of a model."""
    own, dated = (listed_model("openai", "", name) for name in ("gpt-4o", "gpt-4o-2024-08-06"))
    assert (own.name, dated.name) == ("gpt 4o", "")
    assert own.context_window_tokens == dated.context_window_tokens == 128_000
    assert (
        own.prices
        == dated.prices
        == TokenPrices(input=2_500_000 * MICRO_USD, output=10_000_000 * MICRO_USD, cache_read=1_250_000 * MICRO_USD)
    )


def test_a_vendors_models_are_those_that_answer_with_text() -> None:
    """Neither pictures nor sound nor embeddings, no beginnings of names, nothing that is long gone."""
    openai, anthropic = vendor_models("openai"), vendor_models("anthropic")
    assert {"gpt-5", "gpt-5-mini", "gpt-5-pro", "o3"} <= set(openai)
    assert {"claude-sonnet-4-5", "claude-opus-4-1", "claude-haiku-4-5"} <= set(anthropic)
    gone = {"claude-2", "claude-v1", "davinci", "gpt-3.5-turbo-instruct", "gpt-4-32k", "moderation", "computer-use"}
    assert not gone & {*openai, *anthropic}
    for word in ("image", "audio", "realtime", "embedding", "tts", "transcribe", "whisper", "ft:"):
        assert not [name for name in openai if word in name], word
    assert vendor_models("nobody") == ()


def test_vendor_follows_the_settings() -> None:
    """The kind's own vendor, the address's vendor, or the one that was named."""
    providers = ConfiguredProviders(
        {
            "a": ProviderSettings(kind="anthropic"),
            "g": ProviderSettings(kind="openai_chat", base_url="https://api.groq.com/openai/v1"),
            "local": ProviderSettings(kind="openai_chat", base_url="http://localhost/v1"),
            "named": ProviderSettings(kind="openai_chat", base_url="http://localhost/v1", price_provider="openai"),
            "offline": ProviderSettings(kind="offline"),
        },
        {},
    )
    usage = Usage(input_tokens=1000)
    assert providers.cost_pico_usd(ModelRef("a", "claude-sonnet-4-5"), usage) == 3000 * MICRO_USD
    assert providers.cost_pico_usd(ModelRef("g", "llama-3.3-70b-versatile"), usage) == 590 * MICRO_USD
    assert providers.cost_pico_usd(ModelRef("named", "gpt-4o"), usage) == 2500 * MICRO_USD
    for unknown in ("local", "offline", "absent"):
        assert providers.cost_pico_usd(ModelRef(unknown, "gpt-4o"), usage) is None


@pytest.mark.slow
def test_importing_the_registry_imports_no_sdk() -> None:
    """Neither SDK is imported before a provider is used."""
    code = (
        "import sys, turnwire.providers.registry; assert not {'openai', 'anthropic', 'genai_prices'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
