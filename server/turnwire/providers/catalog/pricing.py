"""Reads the price list of genai-prices: facts about models, and the cost of a model call."""

import re
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from functools import lru_cache
from typing import Any

from msgspec import Struct

from turnwire.domain.money import PICO_USD, Usage
from turnwire.providers.token_prices import UNKNOWN_PRICES, TokenPrices

_OTHER_MODALITIES = ("audio", "image", "video")


class ListedModel(Struct, frozen=True, kw_only=True):
    """A model's entry in the price list."""

    name: str
    """"" when the entry is for a family of models and not for this name."""
    description: str
    context_window_tokens: int | None
    prices: TokenPrices
    """Current prices for the shortest prompts."""


def load() -> None:
    """Reads the price list, so that later calls do not block an event loop. Takes a quarter of a second, once."""
    _providers()


def cost_pico_usd(
    vendor: str, base_url: str, model_id: str, usage: Usage, own: TokenPrices = UNKNOWN_PRICES
) -> int | None:
    """Returns the cost of the usage, rounded half to even.

    None when a needed price is unknown, or when the usage has no counts.

    In the price list, a missing price for cached tokens means that there is no discount, so they are priced as fresh
    tokens. With configured prices a missing price has no such meaning, and the cost is unknown.

    Args:
        vendor: Vendor as the price list names it; "" to find it by the address.
        base_url: Address of the API; only used without a vendor.
        model_id: The requested model.
        usage: Buckets that do not overlap.
        own: Configured prices, which take precedence; the price list gives the others, for the length of this prompt.
    """
    if own == UNKNOWN_PRICES:
        return _list_cost(vendor, base_url, model_id, usage)
    cost = own.cost_pico_usd(usage)
    if cost is not None:
        return cost
    model = _find(vendor, base_url, model_id)
    if model is None:
        return None
    return own.completed(_prices(model[1], usage.prompt_total or 0)).cost_pico_usd(usage)


def listed_model(vendor: str, base_url: str, model_id: str) -> ListedModel | None:
    """Returns a model's entry in the price list; None when there is none. Arguments as for `cost_pico_usd`."""
    model = _find(vendor, base_url, model_id)
    if model is None:
        return None
    info = model[1]
    return ListedModel(
        name=(info.name or "") if info.id == model_id else "",
        description=info.description or "",
        context_window_tokens=info.context_window,
        prices=_prices(info, 0),
    )


def vendor_models(vendor: str) -> tuple[str, ...]:
    """Returns the names of the vendor's models that generate text and are currently sold, in the list's order.

    The list does not give the kind of an entry, nor reliably whether it is still sold, so its prices decide: text in
    and out has a price, sound and pictures have none, and cached input or web searches have one, which recent models
    have and older models and those of other APIs do not. Entries without a context window are name prefixes, not
    models. Omitting a model is better than listing one that the API rejects, because unlisted models can be used as
    well.
    """
    for provider in _providers():
        if provider.id == vendor:
            return tuple(info.id for info in provider.models if _generates_text(info))
    return ()


def is_address_of(vendor: str, base_url: str) -> bool:
    """Returns whether an address is the vendor's own."""
    return any(provider.id == vendor and re.match(provider.api_pattern, base_url) for provider in _providers())


def _generates_text(info: Any) -> bool:
    prices = {key: value for key, value in vars(_model_price(info)).items() if value is not None}
    if info.deprecated or not info.context_window or not {"input_mtok", "output_mtok"} <= prices.keys():
        return False
    if any(modality in key for key in prices for modality in _OTHER_MODALITIES):
        return False
    return not prices.keys().isdisjoint({"cache_read_mtok", "web_searches_kcount"})


def _list_cost(vendor: str, base_url: str, model_id: str, usage: Usage) -> int | None:
    prompt, generated = usage.prompt_total, usage.generated_total
    model = _find(vendor, base_url, model_id)
    if model is None or (prompt is None and generated is None):
        return None
    from genai_prices import Usage as ListUsage  # noqa: PLC0415 - takes a quarter of a second

    provider, info = model
    known = _prices(info, prompt or 0)
    if (prompt and known.input is None) or (generated and known.output is None):
        return None  # the list would count them as free
    # Here a count includes its parts, as in OpenAI's convention (genai_prices.types.Usage).
    counts = ListUsage(
        input_tokens=prompt,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=generated,
    )
    try:
        price: Decimal = info.calc_price(counts, provider, genai_request_timestamp=None).total_price
    except (LookupError, ValueError):
        return None
    return _pico_usd(price)


def _prices(info: Any, prompt_tokens: int) -> TokenPrices:
    """Returns the current prices for a prompt of this length."""
    price = _model_price(info)
    return TokenPrices(
        input=_price_at(price.input_mtok, prompt_tokens),
        output=_price_at(price.output_mtok, prompt_tokens),
        cache_read=_price_at(price.cache_read_mtok, prompt_tokens),
        cache_write=_price_at(price.cache_write_mtok, prompt_tokens),
    )


def _model_price(info: Any) -> Any:
    return info.get_prices(datetime.now(UTC))


def _price_at(price: Any, prompt_tokens: int) -> int | None:
    if price is None or isinstance(price, Decimal):
        return None if price is None else _pico_usd(price)
    # tiers are in ascending order; the last one reached applies
    reached = [tier.price for tier in price.tiers if prompt_tokens > tier.start]
    return _pico_usd(reached[-1] if reached else price.base)


def _pico_usd(usd: Decimal) -> int:
    return int((usd * PICO_USD).to_integral_value(ROUND_HALF_EVEN))


def _providers() -> list[Any]:
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - takes a quarter of a second

    return get_snapshot().providers


@lru_cache(maxsize=512)
def _find(vendor: str, base_url: str, model_id: str) -> tuple[Any, Any] | None:
    """Returns the price list's provider and model. Caches misses too, which the list itself does not."""
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - takes a quarter of a second

    try:
        return get_snapshot().find_provider_model(model_id, None, vendor or None, None if vendor else base_url)
    except LookupError:
        return None
