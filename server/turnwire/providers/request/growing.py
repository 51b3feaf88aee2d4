"""State that only grows while messages are written, so that it can go back to where it was."""

from collections.abc import Sequence
from operator import is_
from typing import Any

Mark = tuple[int, ...]
"""Length that each container had."""


class Growing:
    """Lists and dictionaries that are only appended to. Going back cuts off what came after a mark."""

    def __init__(self, containers: Sequence[list[Any] | dict[Any, Any]]) -> None:
        """Takes the containers, which their owners fill."""
        self._containers = tuple(containers)

    def mark(self) -> Mark:
        """Returns the present state."""
        return tuple(map(len, self._containers))

    def go_back(self, mark: Mark) -> None:
        """Forgets all that was added after the mark."""
        for container, length in zip(self._containers, mark, strict=True):
            if isinstance(container, list):
                del container[length:]
            else:
                while len(container) > length:
                    container.popitem()


def common_length(before: Sequence[object], now: Sequence[object]) -> int:
    """Returns how many of the first values are the same objects in both."""
    if all(map(is_, before, now)):  # mostly, and several times as fast as to count
        return min(len(before), len(now))
    return list(map(is_, before, now)).index(False)
