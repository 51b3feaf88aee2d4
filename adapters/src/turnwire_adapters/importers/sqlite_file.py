"""SQLite files of other programs, which may have them open."""

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from turnwire_adapters.importers.problems import FileError

BUSY_TIMEOUT_SECONDS = 30.0
"""Maximum wait for another program that writes; a bot may write a long time when it starts."""

_COPY_PAGES = 512
"""Copied in one step: 2 MiB of most files."""


@contextlib.contextmanager
def opened(path: Path, *, writable: bool) -> Iterator[sqlite3.Connection]:
    """Opens a file, which another program may use, in autocommit mode.

    Raises:
        FileError: it is not there, is empty, cannot be read or written, is no SQLite database or is damaged, or
            SQLite reported an error in the context.
    """
    if not path.is_file():
        raise FileError(f"there is no file {path}")
    if path.stat().st_size == 0:
        raise FileError(f"{path} is empty: it holds nothing")
    uri = f"{path.absolute().as_uri()}?mode={'rw' if writable else 'ro'}"
    try:
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_SECONDS)) as db:
            db.execute("PRAGMA foreign_keys=OFF")  # pynchy keeps messages of chats that are not there
            yield db
    except sqlite3.Error as error:
        raise FileError(_explained(path, error)) from error


@contextlib.contextmanager
def private_copy(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a copy of a file at one moment, which goes when it is closed or the process ends, however it does.

    Another program waits at most as long as the copy takes, whatever the file's journal, and not while it is read. The
    copy is on the disk, in SQLite's folder for temporary files. Text that is not valid is read with surrogates.

    Raises:
        FileError: as `opened`, or no space for the copy.
    """
    with opened(path, writable=False) as db, closing(sqlite3.connect("", isolation_level=None)) as copy:
        with transaction(db, "BEGIN"):  # so that each step of the copy is of the same moment
            db.backup(copy, pages=_COPY_PAGES, sleep=0)
        copy.text_factory = lenient
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


def check_pages(db: sqlite3.Connection) -> None:
    """Examines the whole file.

    Raises:
        FileError: it is damaged.
    """
    (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise FileError(f"the file is damaged: {found}")


def quoted(name: str) -> str:
    """Returns a name as SQL."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def lenient(stored: bytes) -> str:
    """Returns text of a file; bytes that are no text become surrogates, and are the same bytes again when encoded."""
    return stored.decode(errors="surrogateescape")


def _explained(path: Path, error: sqlite3.Error) -> str:
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"another program holds {path}"
    if extended == sqlite3.SQLITE_READONLY_ROLLBACK:
        return f"{path} has a transaction that was cut, which only a program that writes can undo"
    if code == sqlite3.SQLITE_FULL:
        return f"no space is left for {path}"
    if code == sqlite3.SQLITE_NOTADB:
        return f"{path} is no SQLite database"
    if code == sqlite3.SQLITE_CORRUPT:
        return f"{path} is damaged: {error}"
    return f"{path}: {error}"
