"""Opening the database file, and running functions on a connection's thread."""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import aiosqlite

from turnwire.domain.errors import StorageBusy, StorageCorrupt, StorageError, StorageFull
from turnwire.storage.sqlite.files import LOCK_SUFFIX, DatabaseFiles

PAGE_BYTES = 8192
"""Twice SQLite's default: a message with its display form mostly fits one page, which halves the reads of a page."""

BUSY_TIMEOUT_SECONDS = 2.0
"""How long to wait for another process (a backup, a shell) that holds the database before failing with StorageBusy."""

P = ParamSpec("P")
T = TypeVar("T")


async def run(
    connection: aiosqlite.Connection,
    function: Callable[Concatenate[sqlite3.Connection, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Runs a function on the connection's thread; no other use of the connection interrupts it.

    aiosqlite offers one call per statement, each a trip between threads, and a task cancelled between two of them
    leaves its transaction open. Its own calls all go through `_execute`, which takes any function and has no public
    name. Cancelling the caller does not stop the function.

    Raises:
        StorageError: SQLite reported an error; its subclass says which kind.
    """
    try:
        result: T = await connection._execute(function, connection._conn, *args, **kwargs)  # type: ignore[no-untyped-call]
    except sqlite3.Error as error:
        raise translate(error) from error
    except ValueError as error:
        if connection._connection is None:  # how aiosqlite reports a closed connection
            raise StorageError("the database is closed") from error
        raise
    return result


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Begins a transaction that writes, and commits it at the end; an error in the block rolls it back."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has rolled it back
            db.execute("ROLLBACK")
        raise


def translate(error: sqlite3.Error) -> StorageError:
    """Returns the storage error for what SQLite reported."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageBusy("another process holds the database")
    if code == sqlite3.SQLITE_FULL:
        return StorageFull("no space is left for the database")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StorageCorrupt(f"the database file is damaged or not a database: {error}", {"detail": str(error)})
    return StorageError(f"the database failed: {error}", {"detail": str(error)})


async def open_connection(path: Path, *, read_only: bool) -> aiosqlite.Connection:
    """Opens a connection in autocommit mode with the settings that the store relies on.

    Raises:
        StorageError: the file cannot be opened or is not a database.
    """
    try:
        connection = await aiosqlite.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_SECONDS)
    except sqlite3.Error as error:
        raise StorageError(f"cannot open the database {path}: {error}", {"path": str(path)}) from error
    try:
        await run(connection, _configure, read_only)
    except BaseException:
        await connection.close()
        raise
    return connection


def _configure(connection: sqlite3.Connection, read_only: bool) -> None:
    connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # counts in new files alone, before their first table
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA cache_size=-32768")
    if read_only:
        connection.execute("PRAGMA query_only=ON")


class ProcessLock:
    """Keeps a second server away from the database file.

    A lock on a file beside the database, released by the kernel when the process ends, however it ends. SQLite's own
    locks would let two servers write in turns, each unaware of what the other did.
    """

    def __init__(self, files: DatabaseFiles) -> None:
        """Takes the database's files; nothing is locked yet."""
        self._path = files.beside(LOCK_SUFFIX)  # one lock per file, whatever link leads to it
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Takes the lock.

        Raises:
            StorageBusy: another process holds it.
            StorageError: the lock file cannot be made.
        """
        if not self._path.parent.is_dir():
            raise StorageError(f"the folder {self._path.parent} does not exist", {"path": str(self._path.parent)})
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"cannot create {self._path}: {error.strerror}", {"path": str(self._path)}) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise StorageBusy(
                f"the database is in use by another server (process {owner}); one server per file",
                {"path": str(self._path), "process": owner},
            ) from error
        self._descriptor = descriptor
        # The process id only helps people, and a full disk must not keep a server from starting.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())

    def release(self) -> None:
        """Releases the lock. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
