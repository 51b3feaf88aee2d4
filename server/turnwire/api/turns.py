"""What waits, by owner, and whose turn is next."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

from turnwire.domain.networks import network_of_peer

T = TypeVar("T")

_FEW = 4
"""Things of an owner that do not matter for its turns; from there on each doubling puts it behind others."""

_LONGEST_WAITING = 4
"""One of so many turns is of the owner that has waited longest, so that none waits for ever."""


class Turns(Generic[T]):
    """Things that wait. Those of one owner keep their order.

    Groups of owners have turns, so that hundreds of connections of one address have as many as the only one of another
    address. In a group, owners with few things go before those with many, else in turns. All that it does takes the
    same time however much waits, but for `drop`.
    """

    def __init__(self, further: Callable[[str], int] = lambda _: 0) -> None:
        """Nothing waits. `further` tells what an owner has beside what waits; see `changed`."""
        self._further = further
        self._lines: dict[str, deque[T]] = {}
        self._groups: OrderedDict[str, _Group] = OrderedDict()
        """In the order of their turns."""
        self._sizes = _Sizes()
        """Of the groups."""
        self.count = 0
        """How many wait."""

    def add(self, owner: str, one: T) -> None:
        """Lets one wait."""
        line = self._lines.setdefault(owner, deque())
        line.append(one)
        self._resized(owner, len(line) - 1, len(line))

    def take(self) -> tuple[str, T]:
        """Returns whose turn is next, and the first that waits of theirs. Raises IndexError when none does."""
        if not self.count:
            raise IndexError
        name, group = next(iter(self._groups.items()))
        self._groups.move_to_end(name)
        owner = group.next()
        line = self._lines[owner]
        one = line.popleft()
        self._resized(owner, len(line) + 1, len(line))
        return owner, one

    def count_of(self, owner: str) -> int:
        """Returns how many of an owner's wait."""
        return len(self._lines.get(owner, ()))

    def has_others(self, owner: str) -> bool:
        """Returns whether something waits of another group than an owner's."""
        return len(self._groups) > (network_of_peer(owner) in self._groups)

    def owner_of_most(self) -> str:
        """Returns of whom most wait, in the group of whom most wait. Something must wait."""
        return self._groups[self._sizes.most()].sizes.most()

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

    def changed(self, owner: str) -> None:
        """Takes that an owner has more or less beside what waits."""
        if owner in self._lines:
            self._place(owner)

    def _resized(self, owner: str, before: int, now: int) -> None:
        """Gives an owner of whom more or fewer wait its place, and forgets it when none does."""
        self.count += now - before
        name = network_of_peer(owner)
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group()
        self._sizes.change(name, group.count, group.count + now - before)
        group.count += now - before
        group.sizes.change(owner, before, now)
        if now:
            self._place(owner)
            return
        del self._lines[owner]
        group.remove(owner)
        if not group.count:
            del self._groups[name]

    def _place(self, owner: str) -> None:
        level = ((len(self._lines[owner]) + self._further(owner)) // _FEW).bit_length()
        self._groups[network_of_peer(owner)].place(owner, level)


class _Sizes:
    """Names by a number that each has."""

    def __init__(self) -> None:
        self._names: list[dict[str, None]] = [{}]

    def change(self, name: str, before: int, now: int) -> None:
        """Takes a change of a number, which is 0 for all names at the beginning."""
        self._names[before].pop(name, None)
        while now >= len(self._names):
            self._names.append({})
        if now:
            self._names[now][name] = None
        while len(self._names) > 1 and not self._names[-1]:
            self._names.pop()

    def most(self) -> str:
        """Returns who has most, and of several the last who came to that."""
        return next(reversed(self._names[-1]))


class _Group:
    """Owners whose things wait, by their levels, the lower ones first."""

    def __init__(self) -> None:
        self._owners: OrderedDict[str, int] = OrderedDict()
        """Their levels, in the order of their last turns."""
        self._levels: list[OrderedDict[str, None]] = []
        self._given = 0
        self.count = 0
        """How many things wait."""
        self.sizes = _Sizes()
        """How many things of each owner wait."""

    def place(self, owner: str, level: int) -> None:
        """Puts an owner whose level is another one behind those of that level."""
        before = self._owners.get(owner)
        if before == level:
            return
        if before is not None:
            del self._levels[before][owner]
        self._owners[owner] = level
        while level >= len(self._levels):
            self._levels.append(OrderedDict())
        self._levels[level][owner] = None

    def remove(self, owner: str) -> None:
        """Forgets an owner."""
        del self._levels[self._owners.pop(owner)][owner]

    def next(self) -> str:
        """Returns whose turn is next, and puts it behind the others."""
        self._given += 1
        longest = self._given % _LONGEST_WAITING == 0
        owner = next(iter(self._owners if longest else next(filter(None, self._levels))))
        self._owners.move_to_end(owner)
        self._levels[self._owners[owner]].move_to_end(owner)
        return owner
