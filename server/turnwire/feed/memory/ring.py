"""A ring of the newest events, bounded by bytes, that many cursors read."""

import asyncio
from collections.abc import Callable

from turnwire.feed.memory.waking import Waking
from turnwire.ports.feed import Entry, Taken

ENTRY_BYTES = 500
"""Memory of an entry besides its frame: its objects are larger than the frame of a one-word delta."""

TRIM_EVERY = 1024
"""Appends between two trims, which drop entries that every cursor has passed: a trim looks at every cursor."""

_SMALL_BYTES = 1024
"""Of the frame of an event that says that a session is deleted."""

_COMPACT_AT = 1024
"""Dropped entries at which the list is cut: a cut costs the list's length, too much for every append."""


class RingMemory:
    """Counts what many rings hold together. Beyond the bound `make_room` is called, which drops entries of some."""

    __slots__ = ("bytes", "make_room", "max_bytes")

    def __init__(self, max_bytes: int, make_room: Callable[[], None]) -> None:
        """Takes the bound, and what is called beyond it."""
        self.max_bytes, self.make_room = max_bytes, make_room
        self.bytes = 0
        """Of the entries of all rings."""


class Cursor:
    """A reader's place in a ring."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        """Called by `Ring.open_cursor`."""
        self.position = position


class Ring:
    """Keeps the newest entries.

    A position counts all entries ever appended, so it stays valid when old ones are dropped. Entries that every cursor
    has passed are dropped now and then, so the ring stays small while its readers keep up. Used on the event loop only.
    `_waiting` holds the futures of sleeping watchers; `wake` hands them on.
    """

    def __init__(
        self,
        max_bytes: int,
        entry_bytes: int = ENTRY_BYTES,
        memory: RingMemory | None = None,
        waking: Waking | None = None,
    ) -> None:
        """Args:
        max_bytes: Approximate memory limit of the entries; the newest entry is always kept by it.
        entry_bytes: Memory of an entry besides its frame.
        memory: What this ring shares a bound with; None if there is none.
        waking: Wakes the watchers of all rings; None if this is alone.
        """
        self._max_bytes = max_bytes
        self._memory = memory
        self._waking = waking or Waking()
        self._entry_bytes = entry_bytes
        self._entries: list[Entry | None] = []  # None: dropped
        self.bytes = 0
        """Of the entries that are kept."""
        self._dropped = 0  # dropped entries that are still at the front of the list
        self._base = 0  # position of the list's first entry
        self._waiting: list[asyncio.Future[None]] = []
        self._last_slice: tuple[tuple[int, int, int], tuple[Taken, int]] | None = None
        self.head = 0
        self._cursors: set[Cursor] = set()
        self._untrimmed = 0  # entries appended since the cursors were last looked at
        self.closed = False

    @property
    def start(self) -> int:
        """Position of the oldest entry that is kept."""
        return self._base + self._dropped

    @property
    def end(self) -> int:
        """Position after the newest entry."""
        return self._base + len(self._entries)

    @property
    def is_watched(self) -> bool:
        """True when anybody reads the ring."""
        return bool(self._cursors)

    def open_cursor(self) -> Cursor:
        """Returns a new cursor at the end."""
        cursor = Cursor(self.end)
        self._cursors.add(cursor)
        return cursor

    def close_cursor(self, cursor: Cursor) -> None:
        """Ends a cursor. Idempotent."""
        self._cursors.discard(cursor)

    def append(self, entry: Entry) -> None:
        """Appends an entry and wakes the waiting watchers."""
        self._entries.append(entry)
        size = len(entry.frame) + self._entry_bytes
        self.bytes += size
        if self._memory is not None:
            self._memory.bytes += size
        if entry.order:
            self.head = entry.order
        if self.bytes > self._max_bytes:
            self._drop_beyond()
        self._untrimmed += 1
        if self._untrimmed >= TRIM_EVERY:
            self.trim()
        if self._memory is not None and self._memory.bytes > self._memory.max_bytes:
            self._memory.make_room()
        if self._dropped > _COMPACT_AT and self._dropped * 2 > len(self._entries):
            del self._entries[: self._dropped]
            self._base += self._dropped
            self._dropped = 0
        self.wake()

    def limit(self, max_bytes: int) -> None:
        """Sets another memory limit, and drops entries beyond it at once."""
        self._max_bytes = max_bytes
        self._drop_beyond()

    def slice(self, position: int, max_bytes: int) -> tuple[Taken, int]:
        """Returns the frames from a position on, about max_bytes at most, and the position after them.

        Watchers that keep up ask for the same slice one after the other, so the last slice is cached.
        """
        key = (position, self.end, max_bytes)
        if self._last_slice is not None and self._last_slice[0] == key:
            return self._last_slice[1]
        frames: list[bytes] = []
        size, order = 0, 0
        for index in range(position - self._base, len(self._entries)):
            entry = self._entries[index]
            if entry is None:
                raise ValueError(f"position {position} is no longer kept")
            if frames and len(entry.frame) > max_bytes:  # alone it is no copy
                break
            frames.append(entry.frame)
            size += len(entry.frame)
            order = entry.order or order
            if size >= max_bytes:
                break
        result = Taken(b"".join(frames), order), position + len(frames)
        self._last_slice = (key, result)
        return result

    def entries(self, position: int, max_entries: int | None = None) -> tuple[list[Entry], int]:
        """Returns the entries from a position on, so many at most, and the position after them."""
        first = position - self._base
        last = len(self._entries) if max_entries is None else min(first + max_entries, len(self._entries))
        return [entry for entry in self._entries[first:last] if entry is not None], self._base + last

    async def wait(self) -> None:
        """Returns at the next `wake`. Safe to cancel."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    async def turn(self) -> None:
        """Returns when the pace allows a watcher that need not wait to go on. Safe to cancel."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waking.wake(id(self), [future])
        await future

    def wake(self) -> None:
        """Wakes all waiting watchers, as soon as the pace allows it."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._waking.wake(id(self), waiting)

    def trim(self) -> None:
        """Drops what every cursor has passed."""
        self._untrimmed = 0
        if self._cursors:
            passed = min(cursor.position for cursor in self._cursors)
            while self.start < passed:
                self._drop_oldest()

    def drop(self) -> None:
        """Drops every entry but a small newest one, which may be the last of all. Cursors before it are behind then."""
        newest = self._entries[-1] if self._entries else None
        kept = newest is not None and len(newest.frame) <= _SMALL_BYTES
        while self.start < self.end - kept:
            self._drop_oldest()

    def leave(self) -> None:
        """Takes the ring out of what it shares a bound with: nobody reads it any more."""
        if self._memory is not None:
            self._memory.bytes -= self.bytes
            self._memory = None

    def close(self) -> None:
        """Closes the ring and wakes its watchers. Nothing may be appended afterwards."""
        self.closed = True
        self.wake()

    def _drop_beyond(self) -> None:
        while self.bytes > self._max_bytes and self.end - self.start > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._entries[self._dropped]
        if oldest is not None:
            size = len(oldest.frame) + self._entry_bytes
            self.bytes -= size
            if self._memory is not None:
                self._memory.bytes -= size
        self._entries[self._dropped] = None
        self._dropped += 1
        self._last_slice = None  # which may be a large frame
