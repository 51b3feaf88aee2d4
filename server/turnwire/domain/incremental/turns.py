"""What waits, by owner, and whose turn is next."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

_FEW = 4
"""Things of an owner that do not matter for its turns; from there on each doubling puts it behind others."""

_LONGEST_WAITING = 4
"""One of so many turns is of the owner that has waited longest, so that none waits for ever."""


class Turns(Generic[T]):
    """Things that wait. Owners with few go before those with many, else in turns. Those of one owner keep their order.

    Equal turns would not do: beside hundreds of owners that want all they can get, one that wants little would have a
    part of hundreds. One turn of four is of the owner that has waited longest, whatever it has. All that it does takes
    the same time however much waits, but for `drop` and `all`.
    """

    def __init__(self, further: Callable[[str], int] = lambda _: 0) -> None:
        """Nothing waits. `further` tells what an owner has beside what waits; see `changed`."""
        self._further = further
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()
        """In the order of their last turns."""
        self._levels: list[OrderedDict[str, None]] = []
        """The same owners by how much they have, the fewest first."""
        self._level_of: dict[str, int] = {}
        self._sizes: list[dict[str, None]] = [{}]
        """The same owners by how many things of theirs wait; the last place has those with most."""
        self._given = 0
        self.count = 0
        """How many wait."""

    def add(self, owner: str, one: T) -> None:
        """Lets one wait."""
        line = self._lines.get(owner)
        if line is None:
            line = self._lines[owner] = deque()
        line.append(one)
        self._resized(owner, len(line) - 1, len(line))

    def take(self) -> tuple[str, T]:
        """Returns whose turn is next, and the first that waits of theirs. Raises IndexError when none does."""
        if not self.count:
            raise IndexError
        self._given += 1
        longest = self._given % _LONGEST_WAITING == 0
        owner = next(iter(self._lines if longest else next(filter(None, self._levels))))
        line = self._lines[owner]
        one = line.popleft()
        self._lines.move_to_end(owner)
        self._resized(owner, len(line) + 1, len(line))
        if line:
            self._levels[self._level_of[owner]].move_to_end(owner)
        return owner, one

    def count_of(self, owner: str) -> int:
        """Returns how many of an owner's wait."""
        return len(self._lines.get(owner, ()))

    def owner_of_most(self) -> str:
        """Returns of whom most wait, and of several of them who came to have so many last. Something must wait."""
        return next(reversed(self._sizes[-1]))

    def take_newest(self, owner: str) -> T:
        """Returns the last that waits of an owner's, of whom something must wait."""
        line = self._lines[owner]
        one = line.pop()
        self._resized(owner, len(line) + 1, len(line))
        return one

    def drop(self, owner: str) -> deque[T]:
        """Returns all that waits of an owner's, in order; it waits no more."""
        line = self._lines.get(owner, deque[T]())
        taken = line.copy()
        line.clear()
        if taken:
            self._resized(owner, len(taken), 0)
        return taken

    def all(self) -> Iterator[T]:
        """Yields all that waits."""
        return (one for line in self._lines.values() for one in line)

    def changed(self, owner: str) -> None:
        """Takes that an owner has more or less beside what waits."""
        if owner in self._lines:
            self._place(owner)

    def _resized(self, owner: str, before: int, now: int) -> None:
        self.count += now - before
        self._sizes[before].pop(owner, None)
        while now >= len(self._sizes):
            self._sizes.append({})
        if now:
            self._sizes[now][owner] = None
        while len(self._sizes) > 1 and not self._sizes[-1]:
            self._sizes.pop()
        self._place(owner)

    def _level(self, owner: str) -> int:
        return ((len(self._lines[owner]) + self._further(owner)) // _FEW).bit_length()

    def _place(self, owner: str) -> None:
        """Puts an owner whose level is another one behind those of that level; one who has nothing is forgotten."""
        before, now = self._level_of.get(owner), self._level(owner) if self._lines[owner] else None
        if before is not None and before != now:
            del self._levels[before][owner], self._level_of[owner]
        if now is None:
            del self._lines[owner]
        elif before != now:
            self._level_of[owner] = now
            while now >= len(self._levels):
                self._levels.append(OrderedDict())
            self._levels[now][owner] = None
