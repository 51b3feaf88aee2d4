"""Room for prompts: what the requests that are on their way to models may take in memory together.

A prompt has its place before its conversation is read, and until its provider has read it. Who waits for a place keeps
nothing of the conversation.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from turnwire.core.answer.slots import Slot
from turnwire.domain.errors import ConversationTooLarge
from turnwire.domain.incremental.room import Room

LIMIT = "limits.max_prompts_bytes"
"""The name of the limit."""

ALWAYS_BYTES = 2**19
"""Of a prompt that needs no place: more than nearly all. Those of all running turns have 128 MiB."""


class PromptPlace:
    """The place of one turn's prompt. Used by the turn's task."""

    def __init__(self, room: Room, tenant: str) -> None:
        """Takes the room, and whose turn it is; holds no place yet."""
        self._room = room
        self._tenant = tenant
        self._slot: Slot | None = None
        self._size = 0

    @contextmanager
    def beside(self, slot: Slot) -> Iterator[None]:
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
        return self._room.max_bytes

    async def take(self, size: int) -> None:
        """Leaves the place, and returns when there is one of this size; at once when none is needed. Safe to cancel.

        Raises:
            ConversationTooLarge: there is never as much room.
        """
        self.leave()
        if size > self._room.max_bytes:
            raise ConversationTooLarge(size, self._room.max_bytes, LIMIT)
        if self.fits(size):
            return
        if self._slot is not None:
            self._slot.leave()  # so that prompts that wait hold up no smaller ones
        await self._room.take(self._tenant, size)
        self._size = size
        if self._slot is not None:
            await self._slot.take()

    def fits(self, size: int) -> bool:
        """Makes the place as large as this if it is not, and returns True; False when there is no room for that now."""
        if size <= max(self._size, ALWAYS_BYTES):
            return True
        if not self._room.has_room(size - self._size):
            return False
        self._size = size
        return True

    def shrink(self, size: int) -> None:
        """Makes the place no larger than this."""
        if size <= ALWAYS_BYTES:
            self.leave()
        elif size < self._size:
            self._room.change(size - self._size)
            self._size = size

    def leave(self) -> None:
        """Gives up the place. Idempotent."""
        size, self._size = self._size, 0
        if size:
            self._room.change(-size)
