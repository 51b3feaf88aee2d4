"""What waits in lines of which each keeps its order, with what is small before what is large."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

SMALL_FIRST = 16
"""Of so many that are taken, all but one are small ones, as long as there are."""


class Lines(Generic[T]):
    """Things that wait. Lines have turns, those whose first is small before the others. A line keeps its order.

    So a small thing does not wait for large ones of hundreds of other lines. One of `SMALL_FIRST` is of a line whose
    first is large, so that none waits for ever.
    """

    def __init__(self, line_of: Callable[[T], str], is_large: Callable[[T], bool]) -> None:
        """Takes what tells the line of a thing and whether it is large, which must stay the same."""
        self._line_of, self._is_large = line_of, is_large
        self._lines: dict[str, deque[T]] = {}
        self._small, self._large = OrderedDict[str, None](), OrderedDict[str, None]()
        """Lines by their first thing, in the order of their turns."""
        self._taken = 0
        self._count = 0

    def __len__(self) -> int:
        """Returns how many wait."""
        return self._count

    def add(self, one: T) -> None:
        """Lets one wait at the end of its line."""
        name = self._line_of(one)
        line = self._lines.setdefault(name, deque())
        line.append(one)
        self._count += 1
        if len(line) == 1:
            self._turns_of(one)[name] = None

    def take(self, most: int) -> list[T]:
        """Returns what is next, so many at most; it waits no more."""
        taken = list[T]()
        while self._count and len(taken) < most:
            self._taken += 1
            is_turn_of_large = self._large and (not self._small or self._taken % SMALL_FIRST == 0)
            name, _ = (self._large if is_turn_of_large else self._small).popitem(last=False)
            line = self._lines[name]
            taken.append(line.popleft())
            self._count -= 1
            if line:
                self._turns_of(line[0])[name] = None
            else:
                del self._lines[name]
        return taken

    def put_back(self, taken: list[T]) -> None:
        """Takes back the last ones that were taken, in their order; they wait again before all others."""
        self._taken -= len(taken)  # or a large one that is taken back each time would wait for ever
        for one in reversed(taken):
            name = self._line_of(one)
            line = self._lines.setdefault(name, deque())
            if line:
                del self._turns_of(line[0])[name]
            line.appendleft(one)
            self._count += 1
            turns = self._turns_of(one)
            turns[name] = None
            turns.move_to_end(name, last=False)

    def _turns_of(self, first: T) -> OrderedDict[str, None]:
        return self._large if self._is_large(first) else self._small
