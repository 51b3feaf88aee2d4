"""Room for a number of bytes or of things, in an order that is fair to those who want it."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator


class Places(ABC):
    """Counts the bytes of all that have a place, and those that wait for one. Used on the event loop only.

    `_waiting` has the sizes of those that wait, by owner, the owner whose turn is next first: what one wants goes in
    its order. It is bounded by those who ask.
    """

    def __init__(self, max_bytes: int) -> None:
        """Takes what all may have together."""
        self.max_bytes = max_bytes
        self.held_bytes = 0
        """Of those that have a place."""
        self._waiting = OrderedDict[str, OrderedDict[asyncio.Future[None], int]]()

    @abstractmethod
    def _may_go(self) -> str | None:
        """Returns whose turn it is; None when nobody waits for whom there is room now."""

    def _hold(self, _owner: str, by: int) -> None:
        """Counts so many bytes more of an owner, or fewer."""
        self.held_bytes += by

    async def _wait(self, owner: str, size: int) -> None:
        """Returns when it is this one's turn and there is room, which is taken then. Safe to cancel."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, OrderedDict())[turn] = size
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._hold(owner, -size)
            elif turn in self._waiting.get(owner, ()):
                del self._waiting[owner][turn]
                if not self._waiting[owner]:
                    del self._waiting[owner]
            self._go_on()  # the one that left may have held up others
            raise

    def _go_on(self) -> None:
        """Gives places to those that wait: the owners one after the other."""
        while (owner := self._may_go()) is not None:
            turns = self._waiting[owner]
            turn, size = turns.popitem(last=False)
            if turns:
                self._waiting.move_to_end(owner)
            else:
                del self._waiting[owner]
            if not turn.done():  # else its caller was cancelled
                self._hold(owner, size)
                turn.set_result(None)


class Room(Places):
    """Room for whoever wants it. What is large is not overtaken for ever by what is small."""

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
        if not self.has_room(size):
            await self._wait(owner, size)

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

    def _may_go(self) -> str | None:
        owner = next(iter(self._waiting), None)
        if owner is None:
            return None
        turn, size = next(iter(self._waiting[owner].items()))
        return owner if turn.done() or self.held_bytes + size <= self.max_bytes else None
