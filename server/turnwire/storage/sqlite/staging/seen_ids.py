"""Ids that an archive has shown so far, in a temporary database of SQLite: it lies on the disk and has no name."""

import sqlite3
from collections.abc import Sequence

from turnwire.storage.sqlite.connection import translate

CACHE_KIBIBYTES = 4096
"""Of the memory that it takes, however many ids there are."""


class TemporaryIds:
    """Implements `ports.moving.archives.SeenIds`."""

    def __init__(self) -> None:
        """Starts without ids."""
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=OFF")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute(f"PRAGMA cache_size=-{CACHE_KIBIBYTES}")
        self._db.execute("CREATE TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID")

    def add(self, ids: Sequence[str]) -> str | None:
        """Adds ids, which costs a search in a tree for each. Raises StorageError: the disk has no room for them."""
        before = self._db.total_changes
        try:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT OR IGNORE INTO ids VALUES (?)", [(one,) for one in ids])
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise translate(error) from error
        if self._db.total_changes - before == len(ids):
            return None
        return next((one for number, one in enumerate(ids) if one in ids[:number]), ids[0])

    def has(self, one: str) -> bool:
        """Returns whether an id was added."""
        return self._db.execute("SELECT 1 FROM ids WHERE id = ?", (one,)).fetchone() is not None

    def close(self) -> None:
        """Closes the database, which removes it."""
        self._db.close()
