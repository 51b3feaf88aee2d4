"""Settings of providers and their models.

The configuration reads its tables as these types: their fields, defaults, ranges and docstrings are the reference of
the keys (docs/reference/configuration.md).
"""

from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from turnwire.domain.bounds import Count, Seconds, Tokens
from turnwire.providers.token_prices import UNKNOWN_PRICES, TokenPrices

ProviderKind = Literal["openai_chat", "openai_responses", "anthropic", "offline"]
Capability = Literal["tools", "images", "documents", "reasoning"]

_VENDOR_HOSTS: Mapping[str, str] = {
    "openai_chat": "api.openai.com",
    "openai_responses": "api.openai.com",
    "anthropic": "api.anthropic.com",
}


class ProviderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A [provider of models](../guides/models.md). NAME has letters, digits, "_", "-" and "."."""

    kind: ProviderKind
    """Its API."""
    name: str = ""
    """Name for people; "" uses the table's name."""
    base_url: str = ""
    """Address, without user name or password; "" uses the vendor's own."""
    api_key_env: str = ""
    """NAME of the variable that has the key, never the key; "" for none."""
    default_model: str = ""
    """Model to suggest, without the provider's name; "": the first listed one."""
    models: tuple[str, ...] = ()
    """Models to list. Left out: at the vendor's address those of the price list."""
    only_listed_models: bool = False
    """True rejects models that neither `models` nor `[models]` names."""
    price_provider: str = ""
    """Vendor in the price list; "" uses the kind's own."""
    timeout_seconds: Seconds = 600.0
    """Maximum silence of the provider, including the time to connect."""
    max_output_tokens: Count = 8192
    """Output limit where the API requires one and the caller sets none."""
    stream_usage: bool = True
    """False for servers that reject `stream_options`."""
    sends_reasoning: bool = False
    """True for Chat Completions servers that require `reasoning_content` back (DeepSeek, Moonshot)."""
    sends_traceparent: bool = False
    """True sends the header `traceparent`, which shows which requests belong together. Needs `tracing.enabled`."""
    reasoning_summary: Literal["", "auto", "concise", "detailed"] = ""
    """Readable reasoning to request from OpenAI Responses, where the organisation has access."""


def address_of(settings: ProviderSettings) -> str:
    """Returns the host of a provider, with its port if the address has one; "" for a provider that needs no network."""
    if settings.base_url:
        return urlsplit(settings.base_url).netloc.rpartition("@")[2]
    return _VENDOR_HOSTS.get(settings.kind, "")


class ModelFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts about a model. The price list supplies what is left out."""

    name: str = ""
    """Name for people."""
    description: str = ""
    """Description for people."""
    context_window_tokens: Tokens | None = None
    """If unknown, nothing is compacted until the model rejects a request."""
    max_output_tokens: Tokens | None = None
    """For people: the longest answer of the model."""
    capabilities: tuple[Capability, ...] | None = None
    """Left out: unknown. Images and documents that a model cannot see become a line of text."""


class ModelSettings(ModelFacts, frozen=True, kw_only=True):
    """A model with its prices."""

    prices: TokenPrices = UNKNOWN_PRICES
