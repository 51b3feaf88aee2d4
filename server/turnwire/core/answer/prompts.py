"""Memory for prompts: what the requests that are on their way to models may take together.

A prompt has its place before its conversation is read, and until its provider has read it. Who waits for a place keeps
nothing of the conversation.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from turnwire.domain.errors import ConversationTooLarge
from turnwire.domain.fair_semaphore import FairSemaphore, Lease

LIMIT = "limits.max_prompts_bytes"
"""The name of the limit."""

ALWAYS_BYTES = 2**19
"""Of a prompt that needs no place: more than nearly all. Those of all running turns have 128 MiB."""


class PromptPlace:
    """The place of one turn's prompt. Used by the turn's task."""

    def __init__(self, prompts: FairSemaphore, tenant: str) -> None:
        """Takes the budget of all prompts, and whose turn it is; holds no place yet."""
        self._lease = Lease(prompts, tenant)
        self._slot: Lease | None = None

    @contextmanager
    def beside(self, slot: Lease) -> Iterator[None]:
        """Gives up a slot of the model calls while it waits, and the place in the end."""
        self._slot = slot
        try:
            yield
        finally:
            self._slot = None
            self.leave()

    @property
    def max_bytes(self) -> int:
        """The largest place."""
        return self._lease.budget.limit

    async def take(self, size: int) -> None:
        """Leaves the place, and returns when there is one of this size; at once when none is needed. Safe to cancel.

        Raises:
            ConversationTooLarge: there is never as much memory.
        """
        self.leave()
        if size > self.max_bytes:
            raise ConversationTooLarge(size, self.max_bytes, LIMIT)
        if self.fits(size):
            return
        if self._slot is not None:
            self._slot.release()  # so that prompts that wait hold up no smaller ones
        await self._lease.acquire(size)
        if self._slot is not None:
            await self._slot.acquire(1)

    def fits(self, size: int) -> bool:
        """Makes the place as large as this if it is not, and returns True; False when that cannot be had now."""
        return size <= max(self._lease.size, ALWAYS_BYTES) or self._lease.try_grow(size)

    def shrink(self, size: int) -> None:
        """Makes the place no larger than this."""
        self._lease.shrink(size if size > ALWAYS_BYTES else 0)

    def leave(self) -> None:
        """Gives up the place. Idempotent."""
        self._lease.release()
