"""A bounded cache of verified credentials."""

from collections import OrderedDict
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Entry(NamedTuple, Generic[T]):
    value: T
    until: float


class Remembered(Generic[T]):
    """Values by the hash of a credential. The least recently used one is removed first."""

    def __init__(self, most: int) -> None:
        """Takes the maximum number of values."""
        self._most = most
        self._entries: OrderedDict[bytes, _Entry[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes, now: float) -> T | None:
        """Returns the value, or None if it is unknown or has expired."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.until <= now:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return entry.value

    def put(self, key: bytes, value: T, until: float) -> None:
        """Keeps a value until a time, in seconds of the same clock as `now`."""
        self._entries[key] = _Entry(value, until)
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        """Forgets everything."""
        self._entries.clear()
