"""Types of numbers with a range, for the fields of settings.

msgspec checks the range when the configuration is read, and docs/reference/configuration.md is generated from it.
"""

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
Tokens = Annotated[int, Meta(ge=1, le=2**32 - 1)]
"""Tokens of one request or answer, which the contract stores in 32 bits."""
TokenLimit = Annotated[int, Meta(ge=0, le=10**15)]
"""Tokens of a sum, which the contract and the database store in 64 bits; 0 sets no limit."""
QuotaLimit = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""A count or a size, at most the largest number that every client holds exactly; 0 sets no limit."""
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
"""A duration in seconds: more than 0, at most a day."""
Share = Annotated[float, Meta(ge=0, le=1)]
"""A share of something, from 0 to 1."""
