"""Complete copies of a database. A copy is made while a server runs, verified, and gets its name only after that."""

import os
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from turnwire.domain.errors import StorageBusy, StorageCorrupt, StorageError
from turnwire.storage.sqlite.care.integrity import IntegrityReport, integrity_report
from turnwire.storage.sqlite.care.opening import read_only, schema_version, translated

STEP_PAGES = 512
"""Pages copied between two reports of the progress: 4 MiB."""


class Backup(Struct, frozen=True, kw_only=True):
    """A finished copy."""

    path: str
    size_bytes: int
    schema_version: int
    rows: dict[str, int]
    """Number of rows of each table, in the database and in the copy."""


def back_up(
    source: Path,
    target: Path,
    *,
    replace: bool = False,
    keeps_damage: bool = False,
    identify: Callable[[sqlite3.Connection], int] = schema_version,
    advance: Callable[[int, int], None] = lambda _done, _all: None,
) -> Backup:
    """Copies a database as of one moment to another file, and returns when the copy is verified and on the disk.

    The copy is a single file that only its owner can read. It gets its name once it is verified; before, and when this
    fails or is interrupted, no new file is left.

    Args:
        source: The database. A server may use it, and continues to write meanwhile.
        target: The file to create. Its folder must exist.
        replace: Whether an existing file of that name may be replaced. One that is in use is never replaced.
        keeps_damage: Whether a damaged database is copied as it is, damage included.
        identify: Returns the version of the schema, and raises a StorageError for a database that is not to be copied.
            The default accepts only Turnwire's own databases.
        advance: Called with the number of copied pages and the number of all pages.

    Raises:
        StorageCorrupt: the source is damaged, or the copy differs from the source.
        StorageError: the source cannot be read, or the target cannot be written or may not be replaced.
    """
    _check_target(source, target, replace)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        with read_only(source) as db:
            version = identify(db)
            _create_private(temporary)
            before = integrity_report(db)
            if not before.is_whole and not keeps_damage:
                raise StorageCorrupt(f"{source} is damaged, see `turnwire doctor`: {before.integrity[0]}")
            with translated(temporary):
                after = _copy(db, temporary, advance)
        if after != before:
            raise StorageCorrupt(f"the copy of {source} differs from the database; it was removed")
        _sync(temporary)
        _check_target(source, target, replace)
        temporary.replace(target)
        _sync(target.parent)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror}", {"path": str(target)}) from error
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)
    return Backup(path=str(target), size_bytes=target.stat().st_size, schema_version=version, rows=before.rows)


def _check_target(source: Path, target: Path, replace: bool) -> None:
    if not target.parent.is_dir():
        raise StorageError(f"the folder {target.parent} does not exist", {"path": str(target.parent)})
    if target.is_dir():
        raise StorageError(f"{target} is a folder", {"path": str(target)})
    # SQLite would take the log of the former file for the copy's own
    if beside := [path for s in ("-wal", "-journal") if (path := target.with_name(target.name + s)).exists()]:
        raise StorageBusy(f"{target} is in use, or was not closed: {beside[0]} exists", {"path": str(beside[0])})
    if not target.exists():
        return
    if source.exists() and target.samefile(source):
        raise StorageError(f"{target} is the database itself", {"path": str(target)})
    if not replace:
        raise StorageError(f"{target} exists already; --replace replaces it", {"path": str(target)})


def _create_private(path: Path) -> None:
    """Creates an empty file that only its owner can access; SQLite fills it."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _copy(db: sqlite3.Connection, path: Path, advance: Callable[[int, int], None]) -> IntegrityReport:
    """Copies the database and returns the copy's integrity report.

    The source's transaction is open, so SQLite copies that moment, however much is written meanwhile; without it, each
    write of a server would restart the copy.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as copy:
        db.backup(
            copy, pages=STEP_PAGES, progress=lambda _, remaining, total: advance(total - remaining, total), sleep=0
        )
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, which can also be read on a read-only disk
        return integrity_report(copy)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
