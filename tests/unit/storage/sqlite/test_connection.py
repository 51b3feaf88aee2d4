"""Errors that SQLite reports, in our words."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from turnwire.domain.errors import StorageBusy, StorageCorrupt, StorageError, StorageFull
from turnwire.storage.sqlite.connection import PAGE_BYTES, opened
from turnwire.storage.sqlite.database import translate


def _error(code: int, message: str = "told") -> sqlite3.Error:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_BUSY, StorageBusy),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StorageBusy),
        (sqlite3.SQLITE_LOCKED, StorageBusy),
        (sqlite3.SQLITE_FULL, StorageFull),
        (sqlite3.SQLITE_CORRUPT, StorageCorrupt),
        (sqlite3.SQLITE_CORRUPT_INDEX, StorageCorrupt),
        (sqlite3.SQLITE_NOTADB, StorageCorrupt),
        (sqlite3.SQLITE_IOERR, StorageError),
        (sqlite3.SQLITE_READONLY, StorageError),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, StorageError),
    ],
)
def test_codes_become_storage_errors(code: int, kind: type[StorageError]) -> None:
    """Extended codes by their primary one."""
    assert type(translate(_error(code))) is kind


def test_an_error_without_a_code_is_a_storage_error() -> None:
    """The module raises some itself."""
    assert type(translate(sqlite3.ProgrammingError("closed"))) is StorageError


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR])
def test_the_words_of_sqlite_stand_in_the_metadata_too(code: int) -> None:
    """A program need not read the sentence."""
    error = translate(_error(code, "disk I/O error"))
    assert "disk I/O error" in error.message
    assert "disk I/O error" in error.metadata.values()


def test_a_new_file_has_the_pages_that_the_store_relies_on(tmp_path: Path) -> None:
    """Their size suits large texts, and the file can shrink; a file that is there keeps its own."""
    foreign = tmp_path / "foreign.sqlite"
    with contextlib.closing(sqlite3.connect(foreign)) as db:
        db.executescript("PRAGMA page_size = 4096; PRAGMA auto_vacuum = NONE; CREATE TABLE one (text TEXT)")
    incremental = 2
    for path, pages in ((tmp_path / "new.sqlite", (PAGE_BYTES, incremental)), (foreign, (4096, 0))):
        with contextlib.closing(opened(path, read_only=False)) as db:
            db.execute("CREATE TABLE two (text TEXT)")
        with contextlib.closing(sqlite3.connect(path)) as db:
            found = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "auto_vacuum")]
        assert tuple(found) == pages
