"""The file of pynchy: which file is one, what a migration adds to it, and how its rows are read."""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct

from turnwire.domain.conversation.messages import MessageType
from turnwire.domain.errors import StorageBusy, StorageCorrupt, StorageError, StorageFull, StorageSchemaTooNew

OLD_COLUMNS = ("id", "chat_jid", "sender", "sender_name", "content", "timestamp", "is_from_me")
"""Of `messages`; programs that know only these go on reading and writing the file."""

CHAT_COLUMNS = ("jid", "name", "last_message_time")
"""Of `chats`; files of later versions have `cleared_at` too."""

_TYPES = ", ".join(f"'{type_}'" for type_ in MessageType)

NEW_COLUMNS = {
    "message_type": f"message_type TEXT NOT NULL DEFAULT 'user' CHECK (message_type IN ({_TYPES}))",
    "metadata": "metadata TEXT CHECK (metadata IS NULL OR json_valid(metadata))",
}
"""What a migration adds to `messages`. In a column that is declared JSON, the text "007" would become the number 7.

A check that is NULL passes in SQLite, but some versions refuse to add it to a table with rows.
"""

INDEX = "idx_messages_by_chat"

INDEX_COLUMNS = ("chat_jid", "timestamp")

BUSY_TIMEOUT_SECONDS = 30.0
"""How long to wait for another program that writes; a bot may write a long time when it starts."""


class Shape(Struct, frozen=True):
    """What a file has of a migrated one."""

    missing_columns: tuple[str, ...]
    has_index: bool

    @property
    def is_complete(self) -> bool:
        """Whether only rows may be left to migrate."""
        return self.has_index and not self.missing_columns


class Row(Struct, frozen=True):
    """A row of `messages`."""

    rowid: int
    old: tuple[Any, ...]
    """The values of the old columns in their order, of any type that SQLite has. Text that is not valid is kept."""
    message_type: str
    """"user" while the column is missing."""
    metadata: Any
    """JSON text or None; another program may have stored a number, which is JSON too."""

    @property
    def sender(self) -> str | None:
        """Who sent it; None when the row does not name a sender as text."""
        sender = self.old[2]
        return sender if isinstance(sender, str) else None

    @property
    def content(self) -> str:
        """What was sent, "" for nothing."""
        content = self.old[4]
        if isinstance(content, bytes):
            return content.decode(errors="replace")
        return "" if content is None else str(content)

    @property
    def legacy_kind(self) -> str | None:
        """What a migrated row is when it is no conversation."""
        if not isinstance(self.metadata, str) or "legacy_kind" not in self.metadata:
            return None
        facts = json.loads(self.metadata)
        kind = facts.get("legacy_kind") if isinstance(facts, dict) else None
        return kind if isinstance(kind, str) else None


@contextlib.contextmanager
def opened(path: Path, *, writable: bool) -> Iterator[sqlite3.Connection]:
    """Opens a file, which another program may use, in autocommit mode.

    Raises:
        StorageError: it is not there, is empty, cannot be read or written, is no SQLite database or is damaged, or
            SQLite reported an error in the context.
    """
    if not path.is_file():
        raise StorageError(f"there is no file {path}", {"path": str(path)})
    if path.stat().st_size == 0:
        raise StorageError(f"{path} is empty: it holds no messages of pynchy", {"path": str(path)})
    uri = f"{path.absolute().as_uri()}?mode={'rw' if writable else 'ro'}"
    try:
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_SECONDS)) as db:
            db.execute("PRAGMA foreign_keys=OFF")  # pynchy keeps messages of chats that are not there
            yield db
    except sqlite3.Error as error:
        raise _translated(path, error) from error


@contextlib.contextmanager
def private_copy(
    path: Path, advance: Callable[[int, int], None] = lambda _done, _all: None
) -> Iterator[sqlite3.Connection]:
    """Opens a copy of a file at one moment, which goes when it is closed or the process ends, however it does.

    Another program waits at most as long as the copy takes, whatever the file's journal, and not while it is read. The
    copy is on the disk, in SQLite's folder for temporary files. Text that is not valid is read with surrogates.

    Args:
        path: The file, which is only read.
        advance: Hears how many pages are copied, and how many there are.

    Raises:
        StorageError: as `opened`, or no space for the copy.
    """
    with opened(path, writable=False) as db, closing(sqlite3.connect("", isolation_level=None)) as copy:
        with transaction(db, "BEGIN"):  # so that each step of the copy is of the same moment
            db.backup(copy, pages=_COPY_PAGES, progress=lambda _, left, total: advance(total - left, total), sleep=0)
        copy.text_factory = _lenient
        yield copy


@contextlib.contextmanager
def transaction(db: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Commits at the end, or rolls back, also when the process is interrupted."""
    db.execute(begin)
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        db.rollback()
        raise


def examine(db: sqlite3.Connection) -> Shape:
    """Returns what the file has of a migrated one.

    Raises:
        StorageSchemaTooNew: a newer version of pynchy has written it.
        StorageError: it is another program's file, or one that was migrated in another way.
    """
    tables = dict(db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
    if {"sessions", "turns"} <= tables.keys():
        raise StorageError("the file is a Turnwire database, not one of pynchy")
    _require("table", ("chats", "messages"), tables, "the file")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version:
        raise StorageSchemaTooNew(
            f"the file has version {version}, files of pynchy that can be migrated have none: it is newer",
            {"version": str(version)},
        )
    _require("column", CHAT_COLUMNS, _columns(db, "chats"), "the table chats")
    columns = _columns(db, "messages")
    _require("column", OLD_COLUMNS, columns, "the table messages")
    if unknown := [name for name in columns if name not in (*OLD_COLUMNS, *NEW_COLUMNS)]:
        raise StorageSchemaTooNew(
            f"the table messages has a column {unknown[0]}, which is not known here: the file is of a newer version",
            {"column": unknown[0]},
        )
    definition = _normal(tables["messages"])
    if "without rowid" in definition:
        raise StorageError("the table messages is WITHOUT ROWID, which files of pynchy never are")
    for name, wanted in NEW_COLUMNS.items():
        if name in columns and _normal(wanted) not in definition:
            raise StorageError(
                f"the table messages has a column {name} of another form than {wanted!r}: restore the file as it was",
                {"column": name},
            )
    return Shape(tuple(name for name in NEW_COLUMNS if name not in columns), _has_index(db))


def rows_after(
    db: sqlite3.Connection, shape: Shape, after: int | None = None, last: int | None = None
) -> Generator[Row, None, None]:
    """Gives rows in the order of their rowids, each when it is asked for.

    Args:
        db: The file.
        shape: What it has.
        after: Rows after this one; None for all.
        last: The last row to give; None for no end.
    """
    query = f"SELECT {columns_of_rows(shape)} FROM messages"
    query += " WHERE rowid BETWEEN ? AND ? ORDER BY rowid"
    first = _MIN_ROWID if after is None else after + 1
    while True:
        try:
            with closing(db.execute(query, (first, _MAX_ROWID if last is None else last))) as found:
                for values in found:
                    yield row_of(values)
                    first = values[0] + 1
            return
        except sqlite3.OperationalError as error:
            if "decode" not in str(error) or db.text_factory is _lenient:
                raise
            db.text_factory = _lenient  # several times slower, so only once it is needed


def columns_of_rows(shape: Shape) -> str:
    """Returns what a query selects of `messages`, for `row_of`."""
    added = [name if name not in shape.missing_columns else stand_in for name, stand_in in _STAND_INS]
    return ", ".join(("messages.rowid", *OLD_COLUMNS, *added))


def row_of(values: tuple[Any, ...]) -> Row:
    """Returns the row of what a query has selected."""
    return Row(values[0], values[1:-2], *values[-2:])


def _lenient(stored: bytes) -> str:
    return stored.decode(errors="surrogateescape")


_COPY_PAGES = 512
"""Copied between two reports of the progress: 2 MiB of most files."""

_MIN_ROWID, _MAX_ROWID = -(2**63), 2**63 - 1

_STAND_INS = (("message_type", "'user'"), ("metadata", "NULL"))


def count_rows(db: sqlite3.Connection) -> int:
    """Returns how many messages there are."""
    (count,) = db.execute("SELECT count(*) FROM messages").fetchone()
    return int(count)


def last_row(db: sqlite3.Connection) -> int:
    """Returns the largest rowid; 0 when there is no row."""
    (rowid,) = db.execute("SELECT coalesce(max(rowid), 0) FROM messages").fetchone()
    return int(rowid)


def data_version(db: sqlite3.Connection) -> int:
    """Returns a number that is another one once another connection has changed the file."""
    (version,) = db.execute("PRAGMA data_version").fetchone()
    return int(version)


def check_pages(db: sqlite3.Connection) -> None:
    """Examines the whole file.

    Raises:
        StorageCorrupt: it is damaged.
    """
    (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise StorageCorrupt(f"the file is damaged: {found}", {"detail": found})


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,))]


def _require(what: str, wanted: tuple[str, ...], found: object, where: str) -> None:
    missing = [name for name in wanted if name not in found]  # type: ignore[operator]
    if missing:
        raise StorageError(f"{where} has no {what} {missing[0]}: it is no file of pynchy", {what: missing[0]})


def _has_index(db: sqlite3.Connection) -> bool:
    found = db.execute("SELECT tbl_name FROM sqlite_master WHERE type = 'index' AND name = ?", (INDEX,)).fetchone()
    if found is None:
        return False
    columns = tuple(name for (name,) in db.execute("SELECT name FROM pragma_index_info(?)", (INDEX,)))
    if (found[0], columns) != ("messages", INDEX_COLUMNS):
        raise StorageError(f"the file has an index {INDEX} of another form", {"index": INDEX})
    return True


def _normal(sql: str) -> str:
    return " ".join(sql.lower().split())


def _translated(path: Path, error: sqlite3.Error) -> StorageError:
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    facts = {"path": str(path), "detail": str(error)}
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageBusy(f"another program holds {path}", facts)
    if extended == sqlite3.SQLITE_READONLY_ROLLBACK:
        return StorageError(f"{path} has a transaction that was cut, which only a program that writes can undo", facts)
    if code == sqlite3.SQLITE_FULL:
        return StorageFull(f"no space is left for {path}", facts)
    if code == sqlite3.SQLITE_NOTADB:
        return StorageCorrupt(f"{path} is no SQLite database", facts)
    if code == sqlite3.SQLITE_CORRUPT:
        return StorageCorrupt(f"{path} is damaged: {error}", facts)
    return StorageError(f"{path}: {error}", facts)
