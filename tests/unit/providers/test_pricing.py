"""Prices of model calls."""

import subprocess
import sys

from turnwire.domain.messages import ModelRef
from turnwire.domain.money import PICO_USD, Usage
from turnwire.providers.pricing import cost_pico_usd
from turnwire.providers.registry import ConfiguredProviders
from turnwire.providers.settings import ProviderSettings

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
    """What xAI itself says that an answer cost (`cost_in_usd_ticks` 1721250, of 1e-10 USD each)."""
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


def test_importing_the_registry_imports_no_sdk() -> None:
    """Neither SDK is imported before a provider is used."""
    code = (
        "import sys, turnwire.providers.registry; assert not {'openai', 'anthropic', 'genai_prices'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
