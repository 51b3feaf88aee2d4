"""Settings of providers and their models, as the configuration gives them."""

from typing import Literal

from msgspec import Struct

from turnwire.providers.token_prices import UNKNOWN_PRICES, TokenPrices

ProviderKind = Literal["openai_chat", "openai_responses", "anthropic", "offline"]


class ProviderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[providers.NAME]` table."""

    kind: ProviderKind
    name: str = ""
    """To show to people; "" uses the table's name."""
    base_url: str = ""
    """"" uses the vendor's own address."""
    api_key_env: str = ""
    """Name of the environment variable that holds the key; "" for servers that need none."""
    default_model: str = ""
    models: tuple[str, ...] = ()
    """Models to list. With those that have a table of their own, the only ones accepted when `only_listed_models`."""
    only_listed_models: bool = False
    price_provider: str = ""
    """Vendor under which the price list knows the models; "" uses the kind's own."""
    timeout_seconds: float = 600.0
    """Longest silence of the provider, connecting included."""
    max_output_tokens: int = 8192
    """Output limit where the API demands one and the caller gave none."""
    stream_usage: bool = True
    """False for servers that refuse `stream_options`."""
    sends_reasoning: bool = False
    """True for Chat Completions servers that want `reasoning_content` back with tool calls (DeepSeek, Moonshot)."""
    reasoning_summary: Literal["", "auto", "concise", "detailed"] = ""
    """"auto", "concise" or "detailed": readable reasoning of OpenAI Responses, where the organisation may have it."""


class ModelSettings(Struct, frozen=True, kw_only=True):
    """One `[models."provider/model"]` table. What it leaves out is as the price list knows it."""

    name: str = ""
    """To show to people."""
    description: str = ""
    context_window_tokens: int | None = None
    max_output_tokens: int | None = None
    prices: TokenPrices = UNKNOWN_PRICES
    capabilities: tuple[str, ...] | None = None
    """Of "tools", "images", "documents", "reasoning"; None says nothing."""
