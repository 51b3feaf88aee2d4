"""Opens a database that belongs to a server, which may run."""

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from turnwire.domain.errors import StorageCorrupt, StorageError
from turnwire.storage.sqlite import schema
from turnwire.storage.sqlite.connection import BUSY_TIMEOUT_SECONDS
from turnwire.storage.sqlite.database import FAILURES, SqliteDatabase, translate


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[SqliteDatabase]:
    """Opens the file for reading, in one transaction that ends with the context.

    Such a connection cannot delete the log of a server: closing the last connection deletes it only under an exclusive
    lock, which the kernel does not grant to a descriptor that cannot write. It may leave empty `-wal` and `-shm` files
    next to a database that no server has open.

    Raises:
        StorageError: the file does not exist or cannot be read, or SQLite reported an error in the context.
    """
    if not path.is_file():
        raise StorageError(f"the file {path} does not exist", {"path": str(path)})
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with (
        translated(path),
        closing(
            sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_SECONDS, factory=SqliteDatabase)
        ) as db,
    ):
        db.execute("PRAGMA query_only=ON")
        db.execute("BEGIN")
        yield db


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translates errors of SQLite into those of the store; the text names the file.

    Raises:
        StorageError: SQLite reported an error in the context.
    """
    try:
        yield
    except FAILURES as error:
        found = translate(error)
        raise type(found)(f"{path}: {found.message}", {**found.metadata, "path": str(path)}) from error


def schema_version(db: sqlite3.Connection) -> int:
    """Returns the version of the schema.

    Raises:
        StorageCorrupt: the file is empty, or another program's database.
        StorageSchemaTooNew: a newer version of Turnwire has written it.
    """
    if (version := schema.schema_version(db)) == 0:
        raise StorageCorrupt("the file is empty, not a Turnwire database")
    return version
