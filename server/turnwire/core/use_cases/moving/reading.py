"""An archive while it is read: in batches, on threads."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from turnwire.core.use_cases.moving.parts import PART_BYTES, PART_CHANGES, weight
from turnwire.domain.archive.records import ArchivedFile, ArchivedMessage, ImportProblem, Record, SessionEnd
from turnwire.ports.moving.archives import ArchiveReader

Item = Record | ImportProblem


class Reading:
    """Reads an archive. A batch is about what one commit stores, and ends with the end of a session at the latest."""

    def __init__(self, reader: ArchiveReader, source: BinaryIO, options: Mapping[str, str]) -> None:
        """Begins at the beginning of the source, whatever was read of it before."""
        self._reader = reader
        self._source = source
        self._options = options
        self._items: Iterator[Item] | None = None
        self.position = 0
        """How many bytes have been read."""
        self.sessions = 0
        """How many sessions have been read to their end."""
        self.last = list[Item]()
        """The batch that was read last."""

    @property
    def is_at_end(self) -> bool:
        """Whether the last batch has ended its session."""
        return bool(self.last) and isinstance(self.last[-1], SessionEnd)

    async def next(self) -> list[Item]:
        """Returns the next items; [] at the end of the archive."""
        self.last = await asyncio.to_thread(self._next)
        return self.last

    async def again(self, sessions: int) -> list[Item]:
        """Goes back, and returns the first batch behind some sessions."""
        self._items, self.position, self.sessions = None, 0, 0
        while self.sessions < sessions:
            await self.next()
        return await self.next()

    def _next(self) -> list[Item]:
        if self._items is None:
            self._source.seek(0)
            self._items = iter(self._reader.read(self._source, self._options))
        batch, size = list[Item](), 0
        for item in self._items:
            batch.append(item)
            read = self._advanced()  # the whole of a line, whatever it has
            size += max(read, _weight(item))
            if isinstance(item, SessionEnd):
                self.sessions += 1
                break
            if len(batch) >= PART_CHANGES or size >= PART_BYTES:
                break
        self._advanced()
        return batch

    def _advanced(self) -> int:
        """Moves the position to where the reader is. Returns by how many bytes."""
        before = self.position
        if not self._source.closed:
            self.position = self._source.tell()
        return self.position - before


async def end_of(reading: Reading) -> int:
    """Reads to the end of a session. Returns how many messages it has."""
    while not reading.is_at_end:
        await reading.next()
    end = reading.last[-1]
    return end.messages if isinstance(end, SessionEnd) else 0


def _weight(item: Item) -> int:
    match item:
        case ArchivedFile(content=content):
            return len(content)
        case ArchivedMessage(message):
            return weight(message)
    return 0
