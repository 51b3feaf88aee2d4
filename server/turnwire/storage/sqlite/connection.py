"""Opening the database file, and running functions on a connection's thread."""

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Concatenate, ParamSpec, TypeVar

import msgspec

from turnwire.domain.errors import StorageBusy, StorageCorrupt, StorageError, StorageFull
from turnwire.event_loop.owner import NOBODY, OWNER
from turnwire.storage.sqlite.files import LOCK_SUFFIX, DatabaseFiles

PAGE_BYTES = 8192
"""Twice SQLite's default: a message with its display form mostly fits one page, which halves the reads of a page."""

LOCKS_DATABASE = sys.platform == "linux"
"""Elsewhere flock on the database would keep SQLite's own locks from being taken."""

BUSY_TIMEOUT_SECONDS = 2.0
"""How long to wait for another process (a backup, a shell) that holds the database before failing with StorageBusy."""

_OF_THE_DISK = frozenset((sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN))
"""The disk did not read or write, or only for now: it was mounted again, or no descriptor was left."""

_UNREADABLE = (UnicodeDecodeError, msgspec.DecodeError)
"""What a row whose bytes were changed leads to, and a message of SQLite that quotes such a row."""

FAILURES: tuple[type[Exception], ...] = (sqlite3.Error, *_UNREADABLE)
"""How a database fails, as far as Python tells it."""

P = ParamSpec("P")
T = TypeVar("T")


class Connection:
    """A connection and its thread, which carries out one function after the other. Used on the event loop only.

    Owners take turns with their reads; what is written goes in its order. `_db` is used on the thread alone.
    """

    def __init__(self, *, is_reader: bool) -> None:
        """Use `open`."""
        self._calls = _Calls()
        self._is_reader = is_reader
        self._db: sqlite3.Connection | None = None  # from `open` to `close`

    @classmethod
    async def open(cls, path: Path, *, read_only: bool) -> "Connection":
        """Opens a connection in autocommit mode with the settings that the store relies on. Close it with `close`.

        Raises:
            StorageError: the file cannot be opened or is not a database.
        """
        connection = cls(is_reader=read_only)
        threading.Thread(target=_serve, args=(connection._calls,), name="sqlite", daemon=True).start()
        try:
            connection._db = await connection._call(partial(_connected, path, read_only=read_only))
        except BaseException:
            connection._calls.end()
            raise
        return connection

    async def run(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs a function on the thread; no other use of the connection interrupts it.

        Cancelling the caller does not stop the function, unless it reads and has not begun.

        Raises:
            StorageError: SQLite reported an error; its subclass says which kind.
        """
        if self._db is None:
            raise StorageError("the database is closed")
        return await self._call(partial(function, self._db, *args, **kwargs))

    async def close(self) -> None:
        """Closes the connection once the thread has done what it has; what comes later is refused. Idempotent."""
        db, self._db = self._db, None
        if db is not None:
            result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._calls.end(partial(_answer, result, db.close))
            await _translated(result)

    async def _call(self, function: Callable[[], T]) -> T:
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._is_reader:
            self._calls.add(OWNER.get(), partial(_answer_unless_gone, result, function))
        else:
            self._calls.add(NOBODY, partial(_answer, result, function))
        return await _translated(result)


class _Calls:
    """What a thread is to do: owners take turns, and what one of them wants is done in its order. For all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # for all below but `_ready`
        self._waiting = OrderedDict[str, deque[Callable[[], None]]]()
        """By owner, in the order of their turns."""
        self._last: Callable[[], None] | None = None
        self._ready = SimpleQueue[None]()
        """One for each call, and one for the end."""

    def add(self, owner: str, call: Callable[[], None]) -> None:
        with self._lock:
            self._waiting.setdefault(owner, deque()).append(call)
        self._ready.put(None)

    def end(self, last: Callable[[], None] | None = None) -> None:
        """Ends the thread when it has done what waits, and the last one."""
        with self._lock:
            self._last = last
        self._ready.put(None)
        self._ready.put(None)

    def take(self) -> Callable[[], None] | None:
        """Returns the next one once there is one; None at the end."""
        self._ready.get()
        with self._lock:
            if not self._waiting:
                last, self._last = self._last, None
                return last
            owner, calls = self._waiting.popitem(last=False)
            call = calls.popleft()
            if calls:
                self._waiting[owner] = calls  # behind the others
            return call


def _serve(calls: _Calls) -> None:
    """Runs on the thread of a connection. Keeps nothing of a call: the next one may be an hour away."""
    while (call := calls.take()) is not None:
        call()
        del call


async def _translated(result: "asyncio.Future[T]") -> T:
    try:
        return await result
    except FAILURES as error:
        raise translate(error) from error


def _answer_unless_gone(result: "asyncio.Future[T]", function: Callable[[], T]) -> None:
    if not result.cancelled():
        _answer(result, function)


def _answer(result: "asyncio.Future[T]", function: Callable[[], T]) -> None:
    """Calls a function, and gives what it returns or raises to the event loop."""
    try:
        deliver = partial(result.set_result, function())
    except BaseException as error:  # the thread must outlive every failure
        deliver = partial(result.set_exception, error)
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
        result.get_loop().call_soon_threadsafe(_tell, result, deliver)


def _tell(result: "asyncio.Future[T]", deliver: Callable[[], None]) -> None:
    if not result.done():  # else its caller is gone
        deliver()


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


def translate(error: Exception) -> StorageError:
    """Returns the storage error for one of FAILURES. Its text has nothing of what is stored."""
    if isinstance(error, _UNREADABLE):
        return StorageCorrupt(
            "the database file is damaged: a text in it cannot be read", {"detail": type(error).__name__}
        )
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageBusy("another process holds the database")
    if code == sqlite3.SQLITE_FULL:
        return StorageFull("no space is left for the database")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StorageCorrupt(f"the database file is damaged or not a database: {error}", {"detail": str(error)})
    failed = StorageError(f"the database failed: {error}", {"detail": str(error)})
    failed.may_pass = code in _OF_THE_DISK
    return failed


def _connected(path: Path, *, read_only: bool) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_SECONDS)
    except sqlite3.Error as error:
        raise StorageError(f"cannot open the database {path}: {error}", {"path": str(path)}) from error
    try:
        _configure(db, read_only)
    except BaseException:
        db.close()
        raise
    return db


def _configure(connection: sqlite3.Connection, read_only: bool) -> None:
    if connection.execute("PRAGMA page_count").fetchone() == (0,):  # they count in new files alone
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # writes, in every file
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA cache_size=-32768")
    if read_only:
        connection.execute("PRAGMA query_only=ON")


def empty_log(db: sqlite3.Connection) -> None:
    """Moves what the write-ahead log holds into the file, unless the disk or another process is in the way.

    A dead process may have left there what its disk failed to keep and the kernel took for kept. What is stored behind
    it would be lost with it.
    """
    with contextlib.suppress(sqlite3.OperationalError):
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


class ProcessLock:
    """Keeps a second server away from the database.

    Two locks, released by the kernel when the process ends, however it ends. SQLite's own locks would let two servers
    write in turns, each unaware of what the other did. The lock on a file beside the database says who has it, and is
    gone when somebody deletes that file. The lock on the database itself holds by whatever name the file is found:
    a hard link, another mount. It exists on Linux alone, where such locks and those of SQLite do not meet.
    """

    def __init__(self, files: DatabaseFiles) -> None:
        """Takes the database's files; nothing is locked yet."""
        self._files = files
        self._path = files.beside(LOCK_SUFFIX)  # one lock per file, whatever link leads to it
        self._descriptors: list[int] = []

    def acquire(self, *, create: bool = False) -> None:
        """Takes the locks. To be called before SQLite opens the database in this process, see `release`.

        Args:
            create: Whether to make the database if there is none; else it must be there.

        Raises:
            StorageBusy: another process holds one of them.
            StorageCorrupt: as `DatabaseFiles.create` and `DatabaseFiles.refuse_other_log`.
            StorageError: the lock file or the database cannot be made or opened.
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
        # The process id only helps people, and a full disk must not keep a server from starting.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())

    def release(self) -> None:
        """Releases the locks. Idempotent.

        To be called after SQLite has closed the database in this process: closing a descriptor of a file drops all
        locks that SQLite holds on it (POSIX).
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
            if path != self._path:  # whose server has no lock on the file beside the database
                owner = ""
            raise StorageBusy(
                f"the database is in use by another server (process {owner or 'unknown'}); one server per file",
                {"path": str(path), "process": owner or "unknown"},
            ) from error
        return descriptor
