"""Tokens and money of one model call, and their sums."""

from msgspec import Struct

PICO_USD = 10**12
"""Pico-USD in one USD: a price of 0.1 USD per million tokens is a whole number of pico-USD per token."""

MAX_USD = 1_000_000
"""Largest price or budget: in pico-USD it fits into the 64 bits of the contract and the database."""


class PicoUsd(int):
    """Money in pico-USD. The configuration gives USD, as a number or a text such as "0.075"; nothing is rounded."""


def usd(pico_usd: int) -> str:
    """Returns an amount in USD as a decimal number, exact and without needless zeros: "0.00125"."""
    whole, rest = divmod(pico_usd, PICO_USD)
    return f"{whole}.{rest:012d}".rstrip("0").rstrip(".")


class Usage(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Token counts in buckets that do not overlap. None: the provider did not report it."""

    input_tokens: int | None = None
    """Prompt tokens neither read from nor written to a cache."""
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    """Visible generated tokens; all generated tokens when the reasoning share is unknown."""
    reasoning_tokens: int | None = None
    reported_output_tokens: int | None = None
    """The provider's own count of generated tokens if it differs from the sum of the two buckets: xAI omits reasoning,
    routers count with two tokenisers. None if it is the sum."""

    @property
    def prompt_total(self) -> int | None:
        """The complete prompt, cached tokens included; None when the provider did not report it."""
        return add_known(add_known(self.input_tokens, self.cache_read_tokens), self.cache_write_tokens)

    @property
    def generated_total(self) -> int | None:
        """All generated tokens, including reasoning: the billed count. None when the provider did not report it."""
        return add_known(self.output_tokens, self.reasoning_tokens)

    @property
    def shown_output(self) -> int | None:
        """The generated tokens as the provider counts them, for comparison with its other reports."""
        return self.generated_total if self.reported_output_tokens is None else self.reported_output_tokens


def add_known(a: int | None, b: int | None) -> int | None:
    """Adds two counts where None means unknown: returns the sum of the known ones, or None when both are unknown."""
    if a is None:
        return b
    return a if b is None else a + b


def add_usage(a: Usage | None, b: Usage | None) -> Usage | None:
    """Adds the usage of two steps, bucket by bucket; None when neither is known."""
    if a is None or b is None:
        return a or b
    reported = None
    if a.reported_output_tokens is not None or b.reported_output_tokens is not None:
        reported = add_known(a.shown_output, b.shown_output)
    return Usage(
        input_tokens=add_known(a.input_tokens, b.input_tokens),
        cache_read_tokens=add_known(a.cache_read_tokens, b.cache_read_tokens),
        cache_write_tokens=add_known(a.cache_write_tokens, b.cache_write_tokens),
        output_tokens=add_known(a.output_tokens, b.output_tokens),
        reasoning_tokens=add_known(a.reasoning_tokens, b.reasoning_tokens),
        reported_output_tokens=reported,
    )


class Estimate(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The usage of a model call, as far as it is known without a report of its provider."""

    usage: Usage
    cost_pico_usd: int | None = None
    """None when the price is unknown."""


class Consumption(Struct, frozen=True):
    """The usage so far. Unreported tokens and unknown prices count as 0."""

    tokens: int = 0
    cost_pico_usd: int = 0

    def __add__(self, other: "Consumption") -> "Consumption":
        return Consumption(self.tokens + other.tokens, self.cost_pico_usd + other.cost_pico_usd)

    @classmethod
    def of(cls, usage: Usage | None, cost_pico_usd: int | None) -> "Consumption":
        """Returns the tokens of prompt and answer together, and their cost."""
        tokens = 0 if usage is None else (usage.prompt_total or 0) + (usage.generated_total or 0)
        return cls(tokens, cost_pico_usd or 0)
