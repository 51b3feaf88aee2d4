"""Memory for large messages that are read again because something is to come of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from turnwire.domain.errors import TooManyTurns
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.text import WIDEST_BYTES
from turnwire.ports.store import TenantStore

MAX_READ_BYTES = 64 * 2**20
"""Of messages that wait, with the tools and system prompts of their turns, and of questions that are to be answered:
from before they are read until their beginning or a change of them is stored. The turns of hundreds of sessions may end
at once, or wait at a start on a full disk."""

PATIENCE_SECONDS = 10.0
"""How long a request waits for memory to read a message. On a full disk those that have it may keep it for long."""


class ReadBudget(FairSemaphore):
    """The budget of all sessions. What is larger than all of it has all of it."""

    def __init__(self) -> None:
        """Begins empty."""
        super().__init__(MAX_READ_BYTES)

    async def acquire_soon(self, tenant: str, size: int) -> None:
        """Acquires for what a caller waits for. Raises TooManyTurns: it could not be had in time."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.acquire(tenant, size)
        except TimeoutError:
            text = "too many messages are read to be answered or changed"
            raise TooManyTurns.of("MAX_READ_BYTES", self.limit, text) from None

    @contextlib.asynccontextmanager
    async def for_question(
        self, store: TenantStore, tenant: str, session_id: str, message_id: str
    ) -> AsyncIterator[None]:
        """Has memory for a message that is to be answered, and for what is read with it.

        Raises SessionNotFound, StorageError and TooManyTurns.
        """
        async with self.to_read(tenant, await store.question_bytes(session_id, message_id)):
            yield

    @contextlib.asynccontextmanager
    async def to_read(self, tenant: str, stored_bytes: int) -> AsyncIterator[None]:
        """Has memory for texts of so many stored bytes; waits as `acquire_soon` does, and never for nothing."""
        size = min(WIDEST_BYTES * stored_bytes, self.limit)
        if size:
            await self.acquire_soon(tenant, size)
        try:
            yield
        finally:
            self.release(tenant, size)
