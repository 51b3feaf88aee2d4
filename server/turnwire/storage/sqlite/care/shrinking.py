"""Gives free pages back to the file system: a few at a time while a server runs, or all at once."""

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

from msgspec import Struct

from turnwire.domain.errors import StorageError
from turnwire.storage.sqlite.care.opening import schema_version, translated
from turnwire.storage.sqlite.connection import BUSY_TIMEOUT_SECONDS, locked
from turnwire.storage.sqlite.files import DatabaseFiles

STEP_PAGES = 16
"""Pages given back in one step: 128 KiB, each page of which may be moved first."""
SPARE_PAGES = 256
"""Free pages that are kept for what is stored next: 2 MiB."""
SPARE_SHARE = 20
"""One page in this many may be free even after a compaction."""


class Compacted(Struct, frozen=True, kw_only=True):
    """The changes of a compaction."""

    path: str
    bytes_before: int
    bytes_after: int


def shrink_some(db: sqlite3.Connection) -> bool:
    """Gives some pages back, inside a transaction or not. Returns False when there is nothing to give back."""
    free, pages = _number(db, "freelist_count"), _number(db, "page_count")
    if free <= SPARE_PAGES + pages // SPARE_SHARE:
        return False
    db.execute(f"PRAGMA incremental_vacuum({STEP_PAGES})").fetchall()  # gives back one page for each fetched row
    return True


def compact(path: Path) -> Compacted:
    """Rewrites a database without free pages, which temporarily needs as much free disk space as the database.

    No server can start meanwhile. An interrupted compaction has changed nothing.

    Args:
        path: The database.

    Raises:
        StorageBusy: a server has the database open.
        StorageError: it cannot be read or written, or is not a Turnwire database.
    """
    if not path.is_file():
        raise StorageError(f"the file {path} does not exist", {"path": str(path)})
    connecting = partial(sqlite3.connect, path, isolation_level=None, timeout=BUSY_TIMEOUT_SECONDS)
    with locked(DatabaseFiles(path)), translated(path), closing(connecting()) as db:
        schema_version(db)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        before = path.stat().st_size
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return Compacted(path=str(path), bytes_before=before, bytes_after=path.stat().st_size)


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])
