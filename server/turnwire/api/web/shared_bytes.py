"""A byte budget that several clients share. Above it, the newest large lease of the client that has most is refused."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from turnwire.api.admission.requests import RETRY_AFTER
from turnwire.domain.errors import TooManyCalls

LARGE_BYTES = 64 * 1024
"""A smaller lease is refused only if its owner has no larger one: behind a proxy, many clients share an address."""


class ByteLease:
    """The bytes that one client holds."""

    def __init__(self, shared: "SharedBytes", owner: str, scope: asyncio.Timeout) -> None:
        """Called by `SharedBytes.lease`."""
        self._shared, self.owner, self.scope = shared, owner, scope
        self.size = 0

    def grow(self, by: int) -> None:
        """Acquires `by` more bytes. Raises TooManyCalls; see `SharedBytes.lease`."""
        self._shared.grow(self, by)


class SharedBytes:
    """Counts the bytes that clients hold together. Used on the event loop only.

    A client that has sent much and stalls cannot keep out the others, and of many that start together the oldest
    continue.
    """

    def __init__(self, name: str, max_bytes: int, text: str) -> None:
        """Takes the limit with its name, and the text of a refusal."""
        self._name, self._max_bytes, self._text = name, max_bytes, text
        self._leases: dict[str, dict[ByteLease, None]] = {}
        """By owner, oldest first."""
        self._bytes = Counter[str]()

    @property
    def total(self) -> int:
        """Bytes in use by all."""
        return self._bytes.total()

    @contextlib.asynccontextmanager
    async def lease(self, owner: str) -> AsyncIterator[ByteLease]:
        """Yields a lease of no bytes, which may grow. The body is cancelled when the lease is refused.

        Raises:
            TooManyCalls: the limit is exceeded, and this is the newest large lease of the owner with most.
        """
        lease = ByteLease(self, owner, asyncio.timeout(None))
        self._leases.setdefault(owner, {})[lease] = None
        try:
            async with lease.scope:
                yield lease
        except TimeoutError:
            if not lease.scope.expired():
                raise
            raise self._refusal() from None
        finally:
            self._forget(lease)

    def grow(self, lease: ByteLease, by: int) -> None:
        """See `ByteLease.grow`."""
        if lease not in self._leases.get(lease.owner, {}):  # it was refused, and did not know yet
            raise self._refusal()
        lease.size += by
        self._bytes[lease.owner] += by
        while self.total > self._max_bytes:
            [(most, _)] = self._bytes.most_common(1)
            leases = self._leases[most]
            newest = next((one for one in reversed(leases) if one.size >= LARGE_BYTES), next(reversed(leases)))
            self._forget(newest)
            if newest is lease:
                raise self._refusal()
            newest.scope.reschedule(asyncio.get_running_loop().time())

    def _refusal(self) -> TooManyCalls:
        return TooManyCalls.of(self._name, self._max_bytes, self._text, RETRY_AFTER)

    def _forget(self, lease: ByteLease) -> None:
        """Releases a lease. Idempotent."""
        leases = self._leases.get(lease.owner, {})
        if lease in leases:
            del leases[lease]
            self._bytes[lease.owner] -= lease.size
            if not leases:
                del self._leases[lease.owner], self._bytes[lease.owner]
