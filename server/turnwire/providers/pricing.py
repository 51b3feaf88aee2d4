"""What a model call costs, from the price list of genai-prices."""

from decimal import ROUND_HALF_EVEN, Decimal
from functools import lru_cache
from typing import Any

from turnwire.domain.money import PICO_USD, Usage

_SAMPLE_TOKENS = 1000
"""A call small enough for the lowest of prices that rise with the length of the prompt."""


def cost_pico_usd(vendor: str, base_url: str, model_id: str, usage: Usage) -> int | None:
    """Returns what the usage costs, rounded half to even.

    None when the price list does not know the model or one of the used prices, or when the usage counts nothing.

    Args:
        vendor: Vendor as the price list names it; "" to find it by the address.
        base_url: Address of the API; only used without a vendor.
        model_id: The model that was asked for.
        usage: Buckets that do not overlap.
    """
    prompt, generated = usage.prompt_total, usage.generated_total
    model = _find(vendor, base_url, model_id)
    if model is None or (prompt is None and generated is None):
        return None
    from genai_prices import Usage as ListUsage  # noqa: PLC0415 - takes a quarter of a second

    provider, info = model
    # Here a count includes its shares, as in OpenAI's convention (genai_prices.types.Usage).
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
    return int((price * PICO_USD).to_integral_value(ROUND_HALF_EVEN))


def list_prices(vendor: str, base_url: str, model_id: str) -> tuple[int | None, int | None]:
    """Returns the prices of a million input and output tokens in pico-USD; None where unknown."""
    usages = (Usage(input_tokens=_SAMPLE_TOKENS), Usage(output_tokens=_SAMPLE_TOKENS))
    costs = [cost_pico_usd(vendor, base_url, model_id, usage) for usage in usages]
    input_price, output_price = (None if cost is None else cost * 1_000_000 // _SAMPLE_TOKENS for cost in costs)
    return input_price, output_price


def context_window_tokens(vendor: str, base_url: str, model_id: str) -> int | None:
    """Returns the model's context window; None when unknown."""
    model = _find(vendor, base_url, model_id)
    return None if model is None else model[1].context_window


@lru_cache(maxsize=512)
def _find(vendor: str, base_url: str, model_id: str) -> tuple[Any, Any] | None:
    """Returns the price list's provider and model. Misses are remembered too: the list itself forgets them."""
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - takes a quarter of a second

    try:
        return get_snapshot().find_provider_model(model_id, None, vendor or None, None if vendor else base_url)
    except LookupError:
        return None
