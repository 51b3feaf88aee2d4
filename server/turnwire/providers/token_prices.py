"""Prices of tokens by bucket, and the cost of a usage."""

from fractions import Fraction

from msgspec import Struct

from turnwire.domain.money import Usage


class TokenPrices(Struct, frozen=True, kw_only=True):
    """Prices of a million tokens in pico-USD. None means unknown, not free."""

    input: int | None = None
    """For prompt tokens that are neither read from nor written to a cache."""
    output: int | None = None
    """For generated tokens, including reasoning."""
    cache_read: int | None = None
    cache_write: int | None = None

    def completed(self, others: "TokenPrices") -> "TokenPrices":
        """Returns these prices, with unknown ones taken from the others."""
        return TokenPrices(
            input=others.input if self.input is None else self.input,
            output=others.output if self.output is None else self.output,
            cache_read=others.cache_read if self.cache_read is None else self.cache_read,
            cache_write=others.cache_write if self.cache_write is None else self.cache_write,
        )

    def cost_pico_usd(self, usage: Usage) -> int | None:
        """Returns the cost of the usage, rounded half to even.

        None when a used bucket has no price. No other bucket's price replaces it, because cached tokens may cost a
        tenth of other tokens or more than them. None also when the usage has no counts.
        """
        paid = (
            (usage.input_tokens, self.input),
            (usage.cache_read_tokens, self.cache_read),
            (usage.cache_write_tokens, self.cache_write),
            (usage.generated_total, self.output),
        )
        if all(tokens is None for tokens, _ in paid):
            return None
        million_times = 0
        for tokens, price in paid:
            if tokens and price is None:
                return None
            million_times += (tokens or 0) * (price or 0)
        return round(Fraction(million_times, 1_000_000))


UNKNOWN_PRICES = TokenPrices()
