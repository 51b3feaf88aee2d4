"""Opens the database file."""

import contextlib
import fcntl
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

from turnwire.domain.errors import StorageBusy, StorageError
from turnwire.storage.sqlite.database import FAILURES, SqliteDatabase, translate
from turnwire.storage.sqlite.files import LOCK_SUFFIX, DatabaseFiles

PAGE_BYTES = 8192
"""Twice SQLite's default: a message with its display form mostly fits one page, which halves the reads of a page."""

SYNCHRONOUS = "FULL"
"""A commit waits for the disk: an answered call outlives a loss of power."""

LOCKS_DATABASE = sys.platform == "linux"
"""On other systems flock on the database would prevent SQLite from taking its own locks."""

BUSY_TIMEOUT_SECONDS = 2.0
"""Maximum time to wait for another process (a backup, a shell) that holds the database before failing with StorageBusy.
"""


def opened(path: Path, *, read_only: bool) -> SqliteDatabase:
    """Opens the file in autocommit mode with the settings that the store relies on.

    Raises:
        StorageError: the file cannot be opened or is not a database.
    """
    try:
        db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_SECONDS, factory=SqliteDatabase)
    except sqlite3.Error as error:
        raise StorageError(f"cannot open the database {path}: {error}", {"path": str(path)}) from error
    try:
        _configure(db, read_only)
    except BaseException as error:
        db.close()
        if isinstance(error, FAILURES):
            raise translate(error) from error
        raise
    return db


def _configure(connection: sqlite3.Connection, read_only: bool) -> None:
    if connection.execute("PRAGMA page_count").fetchone() == (0,):  # both have an effect only in new files
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # writes, in every file
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={SYNCHRONOUS}")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA cache_size=-32768")
    if read_only:
        connection.execute("PRAGMA query_only=ON")


def empty_log(db: sqlite3.Connection) -> None:
    """Moves the contents of the write-ahead log into the file, unless the disk or another process prevents it.

    The log of a dead process may have pages that its disk failed to keep while the kernel reported success. Whatever is
    stored after them would be lost with them.
    """
    with contextlib.suppress(sqlite3.OperationalError):
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


class ProcessLock:
    """Keeps a second server away from the database.

    Two locks, which the kernel releases when the process ends, however it ends. SQLite's own locks would let two
    servers write in turns, each unaware of the other's changes. The lock on a file next to the database names its
    owner, and is lost when somebody deletes that file. The lock on the database itself holds for every name of the
    file, such as a hard link or another mount. It exists only on Linux, where such locks do not interfere with those of
    SQLite.
    """

    def __init__(self, files: DatabaseFiles) -> None:
        """Takes the database's files; nothing is locked yet."""
        self._files = files
        self._path = files.beside(LOCK_SUFFIX)  # one lock per file, whatever link leads to it
        self._descriptors: list[int] = []

    def acquire(self, *, create: bool = False) -> None:
        """Takes the locks. Call it before SQLite opens the database in this process; see `release`.

        Args:
            create: Whether to create the database if it does not exist; otherwise it must exist.

        Raises:
            StorageBusy: another process holds one of them.
            StorageCorrupt: as `DatabaseFiles.create` and `DatabaseFiles.refuse_other_log`.
            StorageError: the lock file or the database cannot be created or opened.
        """
        if not self._path.parent.is_dir():
            raise StorageError(f"the folder {self._path.parent} does not exist", {"path": str(self._path.parent)})
        try:
            descriptor = self._lock(self._path, os.O_RDWR | os.O_CREAT)
            if create:
                self._files.create()
            if LOCKS_DATABASE:
                self._lock(self._files.beside(""), os.O_RDONLY)
            self._files.refuse_other_log()
        except BaseException:
            self.release()
            raise
        # The process id only helps people, and a full disk must not prevent a server from starting.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())

    def release(self) -> None:
        """Releases the locks. Idempotent.

        Call it after SQLite has closed the database in this process: closing a descriptor of a file drops all locks
        that SQLite holds on it (POSIX).
        """
        for descriptor in reversed(self._descriptors):
            os.close(descriptor)
        self._descriptors.clear()

    def _lock(self, path: Path, flags: int) -> int:
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"cannot open {path}: {error.strerror}", {"path": str(path)}) from error
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(self._descriptors[0], 32, 0).decode("ascii", "replace").strip()
            if path != self._path:  # the other server has no lock on the file next to the database
                owner = ""
            raise StorageBusy(
                f"the database is in use by another server (process {owner or 'unknown'}); one server per file",
                {"path": str(path), "process": owner or "unknown"},
            ) from error
        return descriptor


@contextlib.contextmanager
def locked(files: DatabaseFiles, *, create: bool = False) -> Iterator[None]:
    """Keeps servers from the database in the block. Arguments and errors are those of `ProcessLock.acquire`."""
    lock = ProcessLock(files)
    lock.acquire(create=create)
    try:
        yield
    finally:
        lock.release()
