"""Numbers with a range, as the fields of settings have them.

msgspec checks a range where the configuration is read; the reference of the configuration is made of it.
"""

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
Tokens = Annotated[int, Meta(ge=1, le=2**32 - 1)]
"""Of one request or answer: the contract holds such a count in 32 bits."""
TokenLimit = Annotated[int, Meta(ge=0, le=10**15)]
"""Of a sum, which the contract and the database hold in 64 bits; 0 sets no limit."""
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
"""A wait: more than none, at most a day."""
