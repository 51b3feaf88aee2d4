"""A ring of the newest events, bounded by bytes, that many cursors read."""

import asyncio

from turnwire.ports.feed import Entry, Taken

ENTRY_BYTES = 500
"""What an entry takes in memory besides its frame: its objects are larger than the frame of a word."""

TRIM_EVERY = 1024
"""Entries after which those are dropped that every cursor has passed: looking at the cursors costs their number."""

_COMPACT_AT = 1024
"""Dropped entries after which the list is cut: cutting costs the list's length, so it must not happen for each."""


class Cursor:
    """A reader's place in a ring."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        """Made by `Ring.open_cursor`."""
        self.position = position


class Ring:
    """Keeps the newest entries. Positions in it count all entries that ever were, so they stay valid when old ones go.

    What every cursor has passed is dropped now and then, so a ring whose readers keep up stays small. Used on the event
    loop only. `_waiting` holds the futures of watchers that sleep; `wake` ends them all.
    """

    def __init__(self, max_bytes: int, entry_bytes: int = ENTRY_BYTES) -> None:
        """Args:
        max_bytes: Memory that entries may take, about; the newest entry is always kept.
        entry_bytes: What an entry takes besides its frame.
        """
        self._max_bytes = max_bytes
        self._entry_bytes = entry_bytes
        self._entries: list[Entry | None] = []  # None: dropped
        self._bytes = 0
        self._dropped = 0  # entries at the front of the list that count as gone
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
        """Adds an entry and wakes those who wait."""
        self._entries.append(entry)
        self._bytes += len(entry.frame) + self._entry_bytes
        if entry.order:
            self.head = entry.order
        while self._bytes > self._max_bytes and self.end - self.start > 1:
            self._drop_oldest()
        self._untrimmed += 1
        if self._untrimmed >= TRIM_EVERY:
            self._drop_passed()
        if self._dropped > _COMPACT_AT and self._dropped * 2 > len(self._entries):
            del self._entries[: self._dropped]
            self._base += self._dropped
            self._dropped = 0
        self.wake()

    def slice(self, position: int, max_bytes: int) -> tuple[Taken, int]:
        """Returns the frames from a position on, about max_bytes at most, and the position after them.

        Watchers that keep up ask for the same slice one after the other, so the last one is kept.
        """
        key = (position, self.end, max_bytes)
        if self._last_slice is not None and self._last_slice[0] == key:
            return self._last_slice[1]
        frames: list[bytes] = []
        size, order = 0, 0
        for index in range(position - self._base, len(self._entries)):
            entry = self._entries[index]
            if entry is None:
                raise ValueError(f"position {position} is not kept any more")
            frames.append(entry.frame)
            size += len(entry.frame)
            order = entry.order or order
            if size >= max_bytes:
                break
        result = Taken(b"".join(frames), order), position + len(frames)
        self._last_slice = (key, result)
        return result

    def entries(self, position: int) -> list[Entry]:
        """Returns all entries from a position on."""
        return [entry for entry in self._entries[position - self._base :] if entry is not None]

    async def wait(self) -> None:
        """Returns at the next `wake`. Safe to cancel."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def wake(self) -> None:
        """Wakes all who wait."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    def clear(self) -> None:
        """Drops all entries: nobody reads them."""
        self._base = self.end
        self._entries = []
        self._bytes = self._dropped = 0
        self._last_slice = None

    def close(self) -> None:
        """Ends the ring: nothing will be appended any more."""
        self.closed = True
        self.wake()

    def _drop_passed(self) -> None:
        self._untrimmed = 0
        if self._cursors:
            passed = min(cursor.position for cursor in self._cursors)
            while self.start < passed:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._entries[self._dropped]
        if oldest is not None:
            self._bytes -= len(oldest.frame) + self._entry_bytes
        self._entries[self._dropped] = None
        self._dropped += 1
