"""Settings of providers and their models.

The configuration reads its tables as these types: their fields, defaults, ranges and docstrings are the reference of
the keys (docs/configuration.md).
"""

from typing import Literal

from msgspec import Struct

from turnwire.domain.bounds import Count, Seconds, Tokens
from turnwire.providers.token_prices import UNKNOWN_PRICES, TokenPrices

ProviderKind = Literal["openai_chat", "openai_responses", "anthropic", "offline"]
Capability = Literal["tools", "images", "documents", "reasoning"]


class ProviderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider of models.

    NAME has letters, digits, "_", "-" and ".", and stands before the slash in `PROVIDER/MODEL`. A table replaces the
    provider of the same name that is there without one.
    """

    kind: ProviderKind
    """The API that it speaks."""
    name: str = ""
    """To show to people; "" uses the table's name."""
    base_url: str = ""
    """Address, without user name or password; "" uses the vendor's own."""
    api_key_env: str = ""
    """NAME of the environment variable that holds the key, never the key; "" for servers that need none."""
    default_model: str = ""
    """Model to suggest to people, without the provider's name; "" suggests the first that is listed."""
    models: tuple[str, ...] = ()
    """Models to list. Left out, a provider at its vendor's own address lists the vendor's models of the price list."""
    only_listed_models: bool = False
    """True refuses models that neither `models` nor a table of `[models]` names."""
    price_provider: str = ""
    """Vendor under which the price list knows the models; "" uses the kind's own."""
    timeout_seconds: Seconds = 600.0
    """Longest silence of the provider, connecting included."""
    max_output_tokens: Count = 8192
    """Output limit where the API demands one and the caller gave none."""
    stream_usage: bool = True
    """False for servers that refuse `stream_options`."""
    sends_reasoning: bool = False
    """True for Chat Completions servers that want `reasoning_content` back with tool calls (DeepSeek, Moonshot)."""
    reasoning_summary: Literal["", "auto", "concise", "detailed"] = ""
    """Asks OpenAI Responses for readable reasoning, where the organisation may have it; "" does not."""


class ModelFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model is. What it leaves out is as the price list knows it."""

    name: str = ""
    """To show to people."""
    description: str = ""
    """To show to people."""
    context_window_tokens: Tokens | None = None
    """Without it nothing is compacted before the model refuses. Offline models have 128000."""
    max_output_tokens: Tokens | None = None
    """To show to people: the most that one answer can have."""
    capabilities: tuple[Capability, ...] | None = None
    """Left out: unknown. A model that is known not to see images or documents gets a line of text in their place."""


class ModelSettings(ModelFacts, frozen=True, kw_only=True):
    """A model with its prices."""

    prices: TokenPrices = UNKNOWN_PRICES
