"""Room for large messages that are read again because something is to come of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from turnwire.domain.errors import TooManyTurns
from turnwire.domain.incremental.room import Room
from turnwire.domain.text import WIDEST_BYTES
from turnwire.ports.store import TenantStore

MAX_BEGINNING_BYTES = 64 * 2**20
"""Of messages that wait, with the tools and system prompts of their turns, and of questions that are to be answered:
from before they are read until their beginning or a change of them is stored. The turns of hundreds of sessions may end
at once, or wait at a start on a full disk."""

PATIENCE_SECONDS = 10.0
"""How long a request waits for room to read a message. On a full disk those that have it may keep it for long."""


class Beginnings(Room):
    """One for all sessions. What is larger than all of it has all of it."""

    def __init__(self) -> None:
        """Begins empty."""
        super().__init__(MAX_BEGINNING_BYTES)

    async def take_soon(self, owner: str, size: int) -> None:
        """As `take`, for what a caller waits for. Raises TooManyTurns: there was no room in time."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.take(owner, size)
        except TimeoutError:
            text = "too many messages are read to be answered or changed"
            raise TooManyTurns.of("MAX_BEGINNING_BYTES", self.max_bytes, text) from None

    @contextlib.asynccontextmanager
    async def for_question(
        self, store: TenantStore, tenant: str, session_id: str, message_id: str
    ) -> AsyncIterator[None]:
        """Has room for a message that is to be answered, and for what is read with it; waits as `take_soon` does.

        Raises SessionNotFound, StorageError and TooManyTurns.
        """
        async with self.to_read(tenant, await store.question_bytes(session_id, message_id)):
            yield

    @contextlib.asynccontextmanager
    async def to_read(self, owner: str, stored_bytes: int) -> AsyncIterator[None]:
        """Has room for texts of so many stored bytes; waits for it as `take_soon` does, and never for nothing."""
        size = min(WIDEST_BYTES * stored_bytes, self.max_bytes)
        if size:
            await self.take_soon(owner, size)
        try:
            yield
        finally:
            self.change(-size)
