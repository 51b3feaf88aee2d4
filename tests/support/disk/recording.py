"""The disk after a power cut: its state at any moment of a record, by the bytes synced until then.

What was synced is there. Of what was not, anything may be: nothing, all, the beginning, some of the writes, some
sectors of them. Names are made, changed and removed in their order; after the last sync of the folder, up to any of
them. After a sync that failed, what it should have kept is never there, though the process goes on reading it: so the
kernel drops it.
"""

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_HEAD = struct.Struct("=IiQQII")
_WRITE, _SYNC, _OPEN, _TRUNCATE, _UNLINK, _RENAME, _SYNC_BEGIN = 2, 3, 4, 5, 6, 7, 8

SECTOR_BYTES = 512
"""Written whole or not at all."""


class _Record(NamedTuple):
    end: int
    """The bytes of the record up to its own end."""
    op: int
    result: int
    inode: int
    offset: int
    path: str
    data: bytes


@dataclass
class _File:
    """A file: its bytes on the disk, and its writes that are not synced."""

    kept: bytearray = field(default_factory=bytearray)
    pending: list[_Record] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    """For each sync that runs: how many of the pending records came before it."""


class _Names:
    """The names of the folder, of which only the synced ones are sure."""

    def __init__(self) -> None:
        self.kept: dict[str, _File] = {}
        self.pending: list[tuple[int, str, _File | str]] = []
        self.marks: list[int] = []

    def after(self, count: int) -> dict[str, _File]:
        """Returns the names when so many of the pending changes have reached the disk."""
        names = dict(self.kept)
        for op, path, other in self.pending[:count]:
            if op == _UNLINK:
                names.pop(path, None)
            elif isinstance(other, _File):
                names[path] = other
            elif path in names:
                names[other] = names.pop(path)
        return names


class Recording:
    """A record of one or more processes, one after the other, which began with an empty folder."""

    def __init__(self, record: bytes, folder: Path) -> None:
        """Takes the bytes that `shim.c` has written, and the folder of which they tell."""
        self._folder = str(folder)
        self._records = list(_records(record))

    def moments(self, first: int = 0) -> list[int]:
        """Returns the moments between two calls, from one on: bytes of the record."""
        return [record.end for record in self._records if record.end >= first]

    def write(self, at: int, chance: random.Random, target: Path) -> None:
        """Writes what a power cut at a moment has left into a new folder; what is not sure, as chance wills."""
        names = self._state(at)
        target.mkdir()
        for path, file in names.after(
            chance.choice((0, len(names.pending), chance.randint(0, len(names.pending))))
        ).items():
            name = Path(path).name
            if name.endswith("-shm"):  # mapped, so nobody knows what is in it
                if chance.random() < 0.5:
                    (target / name).write_bytes(chance.randbytes(32768))
                continue
            content = bytearray(file.kept)
            for record in _surviving(file.pending, chance):
                _apply(content, record)
            (target / name).write_bytes(content)

    def _state(self, at: int) -> _Names:
        names, folders, files = _Names(), set[int](), dict[int, _File]()
        for record in self._records:
            if record.end > at:
                break
            if record.op == _OPEN:
                if record.path == self._folder:
                    folders.add(record.inode)
                elif record.result:
                    files[record.inode] = _File()
                    names.pending.append((_OPEN, record.path, files[record.inode]))
            elif record.op in (_WRITE, _TRUNCATE):
                files.setdefault(record.inode, _File()).pending.append(record)
            elif record.op == _UNLINK:
                names.pending.append((_UNLINK, record.path, ""))
            elif record.op == _RENAME:
                names.pending.append((_RENAME, record.path, record.data.decode()))
            else:
                _sync(record, names if record.inode in folders else files.setdefault(record.inode, _File()))
        return names


def _records(record: bytes) -> Iterator[_Record]:
    at = 0
    while at + _HEAD.size <= len(record):
        op, result, inode, offset, path_bytes, data_bytes = _HEAD.unpack_from(record, at)
        data_at = at + _HEAD.size + path_bytes
        path = record[at + _HEAD.size : data_at].decode()
        at = data_at + data_bytes
        if at <= len(record):  # else the process was killed while it wrote this
            yield _Record(at, op, result, inode, offset, path, record[data_at:at])


def _sync(record: _Record, of: _File | _Names) -> None:
    """Begins or ends a sync of a file or of the folder."""
    if record.op == _SYNC_BEGIN:
        of.marks.append(len(of.pending))
        return
    if not of.marks:
        return
    count = of.marks.pop(0)
    if isinstance(of, _Names):
        if record.result == 0:
            of.kept = of.after(count)
            del of.pending[:count]
            of.marks = [max(0, mark - count) for mark in of.marks]
        return
    if record.result == 0:
        for pending in of.pending[:count]:
            _apply(of.kept, pending)
    del of.pending[:count]
    of.marks = [max(0, mark - count) for mark in of.marks]


def _surviving(pending: Sequence[_Record], chance: random.Random) -> Iterator[_Record]:
    """Yields what has reached the disk of what was not synced, in its order."""
    how = chance.choice(("nothing", "all", "beginning", "some", "sectors"))
    if how == "all":
        yield from pending
    elif how == "beginning":
        yield from pending[: chance.randint(0, len(pending))]
    elif how == "some":
        yield from (record for record in pending if chance.random() < 0.5)
    elif how == "sectors":
        for record in pending:
            yield from _sectors(record, chance)


def _sectors(record: _Record, chance: random.Random) -> Iterator[_Record]:
    if record.op == _TRUNCATE:
        if chance.random() < 0.5:
            yield record
        return
    begin, end = record.offset, record.offset + len(record.data)
    while begin < end:
        stop = min(end, (begin // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if chance.random() < 0.5:
            yield record._replace(offset=begin, data=record.data[begin - record.offset : stop - record.offset])
        begin = stop


def _apply(content: bytearray, record: _Record) -> None:
    size = record.offset + len(record.data)
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    if record.op == _TRUNCATE:
        del content[record.offset :]
    else:
        content[record.offset : size] = record.data
