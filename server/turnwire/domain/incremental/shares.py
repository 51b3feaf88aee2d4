"""Room of which nobody may have all, so that whoever comes later finds some."""

import asyncio
from collections import Counter, OrderedDict


class Shares:
    """Counts the bytes of all that have a place. Used on the event loop only.

    `_waiting` has those that wait, by owner, the owner whose turn is next first. Who has no place at all is overtaken
    by nobody, so it does not wait for ever; who has one already is overtaken by others. It is bounded by those who ask.
    """

    def __init__(self, max_bytes: int, share: int | None = None) -> None:
        """Args:
        max_bytes: Of all together.
        share: How many times what is left to others an owner may have; its first place may be of any size. None: all.
        """
        self.max_bytes = max_bytes
        self.held_bytes = 0
        """Of those that have a place."""
        self._share = share
        self._held_of = Counter[str]()
        self._waiting = OrderedDict[str, OrderedDict[asyncio.Future[None], int]]()

    def has_room(self, owner: str, size: int) -> bool:
        """Takes a place for so many bytes if there is room now and it overtakes nobody. Returns whether it did."""
        if owner in self._waiting or self._is_held_up() or not self._fits(owner, size):
            return False
        self._take(owner, size)
        return True

    async def take(self, owner: str, size: int) -> None:
        """Returns when it is this one's turn and there is room, which is taken then. Safe to cancel.

        Args:
            owner: Who wants it.
            size: In bytes; at most `max_bytes`.
        """
        if self.has_room(owner, size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, OrderedDict())[turn] = size
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(owner, size)
            elif turn in (turns := self._waiting.get(owner, OrderedDict())):
                del turns[turn]
                if not turns:
                    del self._waiting[owner]
                self._go_on()  # the one that left may have held up others
            raise

    def give_back(self, owner: str, size: int) -> None:
        """Takes a place back, and gives it to those that wait."""
        self.held_bytes -= size
        self._held_of[owner] -= size
        if not self._held_of[owner]:
            del self._held_of[owner]
        self._go_on()

    def _take(self, owner: str, size: int) -> None:
        self.held_bytes += size
        self._held_of[owner] += size

    def _fits(self, owner: str, size: int) -> bool:
        left, own = self.max_bytes - self.held_bytes - size, self._held_of[owner]
        return left >= 0 and (not own or self._share is None or own + size <= self._share * left)

    def _is_held_up(self) -> bool:
        """Returns whether one waits that has no place."""
        return any(owner not in self._held_of for owner in self._waiting)

    def _go_on(self) -> None:
        while self._has_given():
            pass

    def _has_given(self) -> bool:
        """Gives the next one its place, or forgets it if it is gone. Returns False when there is room for none."""
        for owner, turns in self._waiting.items():
            turn, size = next(iter(turns.items()))
            if not turn.done() and not self._fits(owner, size):
                if owner not in self._held_of:
                    return False
                continue
            del turns[turn]
            if turns:
                self._waiting.move_to_end(owner)
            else:
                del self._waiting[owner]
            if not turn.done():  # else its caller was cancelled
                self._take(owner, size)
                turn.set_result(None)
            return True
        return False
