"""SQLite as a `Database`: the connection of `sqlite3` with the methods that statements of both engines use."""

import contextlib
import itertools
import sqlite3
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from turnwire.domain.errors import StorageBusy, StorageCorrupt, StorageError, StorageFull
from turnwire.storage.rows import Row
from turnwire.storage.sql.changes import Change, Delete, Insert
from turnwire.storage.sql.database import Dialect, Interrupted, OneServer, Words

_OF_THE_DISK = frozenset((sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN))
"""Errors of reading or writing the disk, some of them temporary: it was mounted again, or no descriptor was left."""

_UNREADABLE = (UnicodeDecodeError, msgspec.DecodeError)
"""Errors of a row whose bytes were changed, and of a message of SQLite that quotes such a row."""

FAILURES: tuple[type[Exception], ...] = (sqlite3.Error, *_UNREADABLE)
"""The errors that a failing database causes in Python."""


def _json(keys: Collection[Any]) -> str:
    return msgspec.json.encode(list(keys)).decode()


def _phrase(words: Sequence[str], is_prefix: bool) -> str:
    return f'"{" ".join(words)}"{" *" if is_prefix else ""}'


_FTS5 = Words(
    matches="search_index MATCH ?",
    phrase=_phrase,
    both=" AND ",
    either=" OR ",
    but_not=" NOT ",
    row=str,
    remove="INSERT INTO search_index (search_index, rowid, terms) VALUES ('delete', ?, ?)",
    clear="INSERT INTO search_index (search_index) VALUES ('delete-all')",
)

INSTRUCTIONS = 2_000
"""SQLite's instructions between two checks of the clock: well under a millisecond."""

SQLITE = Dialect(
    among="IN (SELECT value FROM json_each(?))",
    keys=_json,
    byte_length="length(CAST({} AS BLOB))".format,
    field="json_extract({}, '$.{}')".format,
    beginning=None,
    merges_branches=True,
    greatest="max",
    least="min",
    without="json_remove({}, '$.{}')".format,
    contains="instr({}, ?) > 0".format,
    hint="INDEXED BY {}".format,
    row_id="rowid",
    words=_FTS5,
)


_SIZES = (64, 16, 4, 1)
"""Numbers of rows in one insert: a few sizes, so that SQLite need not parse statements again. With one statement for
each row, the thread would wait for the interpreter each time."""

_NUMBERED = ("sessions", "turns", "messages", "files", "permissions", "questions")
"""Tables whose numbers the store makes."""


@lru_cache
def _statement(change: Change, rows: int = 1) -> str:
    """Returns a change as a statement with parameters for a number of rows."""
    if isinstance(change, Insert):
        values = f"({', '.join('?' * len(change.columns))})"
        return (
            f"INSERT INTO {change.table} ({', '.join(change.columns)}) VALUES {', '.join([values] * rows)}{change.tail}"
        )
    if isinstance(change, Delete):
        return f"DELETE FROM {change.table} WHERE {' AND '.join(f'{name} = ?' for name in change.columns)}"
    changes = ", ".join(f"{name} = {expression.format('?')}" for name, expression in change.expressions)
    return f"UPDATE {change.table} SET {changes} WHERE {change.key} = ?"


class SqliteDatabase(sqlite3.Connection, OneServer):
    """Implements `turnwire.storage.sql.database.Database`; see there. In autocommit mode."""

    dialect = SQLITE
    failures = FAILURES
    _changes_before = 0
    """The changes that the connection had made when the transaction began."""

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Returns all rows."""
        return self.execute(statement, parameters).fetchall()

    def row(self, statement: str, parameters: Sequence[Any] = ()) -> Row | None:
        """Returns the first row."""
        row: Row | None = self.execute(statement, parameters).fetchone()
        return row

    def each(self, statement: str, parameters: Sequence[Any] = ()) -> Generator[Row]:
        """Yields rows as they are read."""
        with contextlib.closing(self.execute(statement, parameters)) as cursor:
            yield from cursor

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Carries out a statement."""
        return self.execute(statement, parameters).rowcount

    def run_many(self, statement: str, parameters: Iterable[Sequence[Any]]) -> None:
        """Carries out a statement for each of the parameters."""
        self.executemany(statement, parameters)

    def write(self, change: Change, rows: Sequence[Row]) -> None:
        """Carries out a change for each of the rows."""
        if not isinstance(change, Insert) or change.tail or change.is_apart:
            if rows:
                self.executemany(_statement(change), rows)
            return
        at = 0
        for size in _SIZES:
            while len(rows) - at >= size:
                self.execute(_statement(change, size), tuple(itertools.chain.from_iterable(rows[at : at + size])))
                at += size

    def together(self) -> contextlib.AbstractContextManager[None]:
        """Does nothing: each statement is carried out at once."""
        return contextlib.nullcontext()

    def numbers(self) -> Iterator[int]:
        """Yields numbers for rows."""
        return itertools.count(
            1 + max(self.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0] for table in _NUMBERED)
        )

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Makes all reads in the block see the same moment."""
        self.execute("BEGIN")
        try:
            yield
        finally:
            if self.in_transaction:  # an error may have rolled it back
                self.execute("COMMIT")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Begins a transaction that writes."""
        self._changes_before = self.total_changes
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self.in_transaction:  # a full disk has rolled it back
                self.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def limited(self, is_over: Callable[[], bool], max_seconds: float) -> Iterator[None]:
        """Ends what runs in the block when `is_over` is true or the time has passed."""
        ends_at = time.monotonic() + max_seconds
        self.set_progress_handler(lambda: is_over() or time.monotonic() > ends_at, INSTRUCTIONS)
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                raise Interrupted from None
            raise
        finally:
            self.set_progress_handler(None, 0)

    def has_changed(self) -> bool:
        """Returns whether the transaction has changed a row."""
        return self.total_changes > self._changes_before

    def begins_history(self, position: int) -> bool:
        """Returns True: a file does not show whether it was restored."""
        del position
        return True

    def concerns_all(self, error: BaseException) -> bool:
        """Returns whether an error concerns the disk or another process."""
        return isinstance(error, sqlite3.OperationalError)

    def translate(self, error: Exception) -> StorageError:
        """Returns the storage error for one of FAILURES."""
        return translate(error)


def translate(error: Exception) -> StorageError:
    """Returns the storage error for one of FAILURES. Its text has no stored data."""
    if isinstance(error, _UNREADABLE):
        return StorageCorrupt(
            "the database file is damaged: a text in it cannot be read", {"detail": type(error).__name__}
        )
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageBusy("the database is in use by another process")
    if code == sqlite3.SQLITE_FULL:
        return StorageFull("no space is left for the database")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StorageCorrupt(f"the database file is damaged or not a database: {error}", {"detail": str(error)})
    failed = StorageError(f"the database failed: {error}", {"detail": str(error)})
    failed.may_pass = code in _OF_THE_DISK
    return failed
