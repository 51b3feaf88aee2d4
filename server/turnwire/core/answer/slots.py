"""A place among concurrent model calls, which can be left and taken again."""

from types import TracebackType
from typing import Self

from turnwire.domain.incremental.room import Room


class Slot:
    """One place; an asynchronous context manager that holds it. Used by one task."""

    def __init__(self, slots: Room, owner: str) -> None:
        """Takes all places, each of which counts as one, and who has turns with others; holds none before `take`."""
        self._slots = slots
        self._owner = owner
        self._is_held = False

    async def take(self) -> None:
        """Waits for a place. Safe to cancel."""
        await self._slots.take(self._owner, 1)
        self._is_held = True

    def leave(self) -> None:
        """Gives up the place; `take` waits for one again. Idempotent."""
        if self._is_held:
            self._is_held = False
            self._slots.change(-1)

    async def __aenter__(self) -> Self:
        """Takes a place."""
        await self.take()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Gives up the place, unless it was left already."""
        self.leave()
