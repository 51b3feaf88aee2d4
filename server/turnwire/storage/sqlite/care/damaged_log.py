"""Finds a write-ahead log that is damaged in its middle. SQLite silently ends it there, and overwrites the rest.

A power cut damages the end of a log: what was being synced, which is one transaction. Where several complete
transactions follow the position up to which SQLite reads, something else has changed the log, and these transactions
had been acknowledged. The layout is part of SQLite's file format ("The Write-Ahead Log").
"""

import os
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

from turnwire.domain.errors import StorageCorrupt
from turnwire.storage.sqlite.database import FAILURES
from turnwire.storage.sqlite.files import FRAME_HEADER_BYTES, HEADER_BYTES, INDEX_BYTES, log_frames

TORN_COMMITS = 1
"""Maximum number of transactions after the end of the log: the one that was being synced."""

_MAGIC = 0x377F0682
"""Its last bit is the byte order of checksums."""


def refuse_damaged_log(path: Path) -> None:
    """Looks for transactions after the end of a database's log, as SQLite reads it.

    Call it before SQLite opens the database in this process. Reads nothing after an orderly stop; otherwise reads what
    SQLite will, and a few bytes of each frame after that.

    Raises:
        StorageCorrupt: there are some; or the beginning of the log is damaged, so that SQLite reads nothing of it. The
            files are unchanged.
    """
    log = path.with_name(f"{path.name}-wal")
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        header = os.read(descriptor, HEADER_BYTES)
        if len(header) < HEADER_BYTES or not any(header):  # nothing was ever synced
            return
        if not _is_whole(header):
            raise _damaged(log, 0)
        frames = _read_frames(path)
        if frames is not None and _commits_behind(descriptor, header, frames) > TORN_COMMITS:
            raise _damaged(log, frames)
    finally:
        os.close(descriptor)


def _read_frames(path: Path) -> int | None:
    """Returns the number of frames that SQLite reads; None when it cannot read the database, which the start will
    report.

    A connection that cannot write leaves the log when it is closed. The index is closed after it: earlier, that would
    drop its locks.
    """
    index = None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            index = os.open(path.with_name(f"{path.name}-shm"), os.O_RDONLY | os.O_CLOEXEC)
            return log_frames(os.pread(index, INDEX_BYTES, 0))
    except FAILURES:
        return None
    except OSError:
        return None
    finally:
        if index is not None:
            os.close(index)


def _commits_behind(descriptor: int, header: bytes, frames: int) -> int:
    (page_bytes,) = struct.unpack_from(">I", header, 8)
    frame_bytes = FRAME_HEADER_BYTES + page_bytes
    at, commits = HEADER_BYTES + frames * frame_bytes, 0
    while len(frame := os.pread(descriptor, FRAME_HEADER_BYTES, at)) == FRAME_HEADER_BYTES:
        commits += frame[8:16] == header[16:24] and any(frame[4:8])
        at += frame_bytes
    return commits


def _is_whole(header: bytes) -> bool:
    magic, *_ = struct.unpack_from(">I", header)
    first = second = 0
    words = struct.unpack_from(">6I" if magic & 1 else "<6I", header)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return magic & ~1 == _MAGIC and struct.unpack_from(">2I", header, 24) == (first, second)


def _damaged(log: Path, frames: int) -> StorageCorrupt:
    problem = (
        f"the log {log} is damaged behind {frames} pages, and what was stored later is in it; restore a backup, or go"
        " on without that after `turnwire compact`"
    )
    return StorageCorrupt(problem, {"path": str(log)})
