"""Room for a number of bytes or of things, in an order that is fair to those who want it."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator


class Room:
    """Counts the bytes of all that have a place, or these themselves. Used on the event loop only.

    `_waiting` has those that wait, by owner, the owner whose turn is next first: what one wants goes in its order, and
    what is large is not overtaken for ever by what is small. It is bounded by those who ask.
    """

    def __init__(self, max_bytes: int) -> None:
        """Takes what all may have together."""
        self.max_bytes = max_bytes
        self.held_bytes = 0
        """Of those that have a place."""
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    def has_room(self, size: int) -> bool:
        """Takes a place for so many bytes if there is room now and nobody waits. Returns whether it did."""
        if self._waiting or self.held_bytes + size > self.max_bytes:
            return False
        self.held_bytes += size
        return True

    async def take(self, owner: str, size: int) -> None:
        """Returns when it is this one's turn and there is room, which is taken then. Safe to cancel.

        Args:
            owner: Who wants it.
            size: In bytes, or 1 where things are counted; at most `max_bytes`.
        """
        if self.has_room(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.held_bytes -= size
            elif (size, turn) in (turns := self._waiting.get(owner, deque())):
                turns.remove((size, turn))
                if not turns:
                    del self._waiting[owner]
            self._go_on()  # the one that left may have held up smaller ones
            raise

    @contextlib.asynccontextmanager
    async def held(self, owner: str, size: int = 1) -> AsyncIterator[None]:
        """Has a place; waits for it as `take` does."""
        await self.take(owner, size)
        try:
            yield
        finally:
            self.change(-size)

    def change(self, by: int) -> None:
        """Counts so many bytes more, or fewer, of those that have a place."""
        self.held_bytes += by
        if by < 0:
            self._go_on()

    def _go_on(self) -> None:
        """Gives places to those that wait: the owners one after the other."""
        while self._waiting:
            owner = next(iter(self._waiting))
            turns = self._waiting[owner]
            size, turn = turns[0]
            if not turn.done() and self.held_bytes + size > self.max_bytes:
                return
            turns.popleft()
            del self._waiting[owner]
            if turns:
                self._waiting[owner] = turns  # behind the others
            if not turn.done():  # else its caller was cancelled
                self.held_bytes += size
                turn.set_result(None)
