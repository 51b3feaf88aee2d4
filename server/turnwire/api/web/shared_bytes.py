"""A byte budget that several clients share. Above it, the newest large lease of the client that has most is refused."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from turnwire.api.admission.requests import RETRY_AFTER
from turnwire.domain.errors import TooManyCalls

LARGE_BYTES = 64 * 1024
"""A smaller part is refused only where its owner has no larger one: behind a proxy an address is that of many."""


class Part:
    """The bytes that one client holds."""

    def __init__(self, shared: "SharedBytes", owner: str, scope: asyncio.Timeout) -> None:
        """Called by `SharedBytes.part`."""
        self._shared, self.owner, self.scope = shared, owner, scope
        self.size = 0

    def grow(self, by: int) -> None:
        """Acquires `by` more bytes. Raises TooManyCalls; see `SharedBytes.part`."""
        self._shared.grow(self, by)


class SharedBytes:
    """Counts bytes that many have. Belongs to the event loop.

    Who has sent much and waits cannot keep out the others so, and of many that came together the oldest go on.
    """

    def __init__(self, name: str, max_bytes: int, text: str) -> None:
        """Takes the limit with its name, and what a refusal says."""
        self._name, self._max_bytes, self._text = name, max_bytes, text
        self._parts: dict[str, dict[Part, None]] = {}
        """By owner, oldest first."""
        self._bytes = Counter[str]()

    @property
    def total(self) -> int:
        """Bytes in use by all."""
        return self._bytes.total()

    @contextlib.asynccontextmanager
    async def part(self, owner: str) -> AsyncIterator[Part]:
        """Has a part of no bytes, which may grow. Its body is cancelled when it is refused.

        Raises:
            TooManyCalls: all have too much, and it is the newest large one of the owner with most.
        """
        part = Part(self, owner, asyncio.timeout(None))
        self._parts.setdefault(owner, {})[part] = None
        try:
            async with part.scope:
                yield part
        except TimeoutError:
            if not part.scope.expired():
                raise
            raise self._refusal() from None
        finally:
            self._forget(part)

    def grow(self, part: Part, by: int) -> None:
        """See `Part.grow`."""
        if part not in self._parts.get(part.owner, {}):  # it was refused, and did not know yet
            raise self._refusal()
        part.size += by
        self._bytes[part.owner] += by
        while self.total > self._max_bytes:
            [(most, _)] = self._bytes.most_common(1)
            parts = self._parts[most]
            newest = next((one for one in reversed(parts) if one.size >= LARGE_BYTES), next(reversed(parts)))
            self._forget(newest)
            if newest is part:
                raise self._refusal()
            newest.scope.reschedule(asyncio.get_running_loop().time())

    def _refusal(self) -> TooManyCalls:
        return TooManyCalls.of(self._name, self._max_bytes, self._text, RETRY_AFTER)

    def _forget(self, part: Part) -> None:
        """Counts one no longer. Idempotent."""
        parts = self._parts.get(part.owner, {})
        if part in parts:
            del parts[part]
            self._bytes[part.owner] -= part.size
            if not parts:
                del self._parts[part.owner], self._bytes[part.owner]
