"""Room of which nobody may have all, so that whoever comes later finds some."""

from collections import Counter

from turnwire.domain.incremental.room import Places


class Shares(Places):
    """Room in which each owner has a share at most.

    Who has no place at all is overtaken by nobody, so it does not wait for ever; who has one already is overtaken by
    others.
    """

    def __init__(self, max_bytes: int, share: int | None = None) -> None:
        """Args:
        max_bytes: Of all together.
        share: How many times what is left to others an owner may have; its first place may be of any size. None: all.
        """
        super().__init__(max_bytes)
        self._share = share
        self._held_of = Counter[str]()

    def has_room(self, owner: str, size: int) -> bool:
        """Takes a place for so many bytes if there is room now and it overtakes nobody. Returns whether it did."""
        if owner in self._waiting or self._is_held_up() or not self._fits(owner, size):
            return False
        self._hold(owner, size)
        return True

    async def take(self, owner: str, size: int) -> None:
        """Returns when it is this one's turn and there is room, which is taken then. Safe to cancel.

        Args:
            owner: Who wants it.
            size: In bytes; at most `max_bytes`.
        """
        if not self.has_room(owner, size):
            await self._wait(owner, size)

    def give_back(self, owner: str, size: int) -> None:
        """Takes a place back, and gives it to those that wait."""
        self._hold(owner, -size)
        self._go_on()

    def _hold(self, owner: str, by: int) -> None:
        super()._hold(owner, by)
        self._held_of[owner] += by
        if not self._held_of[owner]:
            del self._held_of[owner]

    def _fits(self, owner: str, size: int) -> bool:
        left, own = self.max_bytes - self.held_bytes - size, self._held_of[owner]
        return left >= 0 and (not own or self._share is None or own + size <= self._share * left)

    def _is_held_up(self) -> bool:
        """Returns whether one waits that has no place."""
        return any(owner not in self._held_of for owner in self._waiting)

    def _may_go(self) -> str | None:
        for owner, turns in self._waiting.items():
            turn, size = next(iter(turns.items()))
            if turn.done() or self._fits(owner, size):
                return owner
            if owner not in self._held_of:
                return None
        return None
