"""Limits the number of signatures that are checked per second, so that wrong tokens do not take the time of other
callers.
"""

import time
from collections import Counter
from collections.abc import Callable

from turnwire.domain.errors import TooManySignIns

PER_SECOND = 500
"""Maximum tokens checked in a second. A check takes 50 to 200 microseconds: at most a tenth of the event loop."""

WRONG_PER_ADDRESS = 50
"""Maximum wrong signatures of one address in a second. Its other callers are identified again in the next second."""

_TOO_MANY = "too many credentials are being checked"


class VerificationBudget:
    """Counts checks in each second, and wrong ones by the address of the caller."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Takes the clock, in seconds."""
        self._clock = clock
        self._second = 0
        self._checks = 0
        self._wrong: Counter[str] = Counter()
        """At most `PER_SECOND` addresses, because it is emptied each second."""

    def take(self, address: str) -> None:
        """Allows one check. Raises TooManySignIns when the limit of the second is reached."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._checks = second, 0
            self._wrong.clear()
        if self._checks >= PER_SECOND:
            raise TooManySignIns.of("PER_SECOND", PER_SECOND, _TOO_MANY)
        if self._wrong.get(address, 0) >= WRONG_PER_ADDRESS:
            raise TooManySignIns.of("WRONG_PER_ADDRESS", WRONG_PER_ADDRESS, _TOO_MANY)
        self._checks += 1

    def count_wrong(self, address: str) -> None:
        """Records that the last check of an address found a wrong signature."""
        self._wrong[address] += 1
