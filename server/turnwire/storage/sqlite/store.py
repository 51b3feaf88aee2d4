"""The store in one SQLite file: opens it."""

import contextlib
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Self, cast

from turnwire.domain.errors import StorageError, StorageFull
from turnwire.ports.clock import Clock
from turnwire.ports.codec import Codec
from turnwire.ports.store import FileIdentity, Publisher, Watched
from turnwire.ports.telemetry.observer import Observer
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.removal import give_up_imports
from turnwire.storage.sql.store import READERS, RetentionSettings, SqlStore, Surroundings
from turnwire.storage.sql.words import adopt_words
from turnwire.storage.sqlite.care.damaged_log import refuse_damaged_log
from turnwire.storage.sqlite.care.shrinking import shrink_some
from turnwire.storage.sqlite.connection import ProcessLock, empty_log, opened
from turnwire.storage.sqlite.database import SqliteDatabase
from turnwire.storage.sqlite.files import DatabaseFiles
from turnwire.storage.sqlite.schema import migrate


class StorageSettings(RetentionSettings, frozen=True, kw_only=True):
    """Settings of the store."""

    path: Path
    """The database file; its folder must exist."""


class SqliteKeeper:
    """The files of the database, and the lock on them. Implements `turnwire.storage.sql.writer.Keeper`; see there."""

    def __init__(self, path: Path) -> None:
        """Locks the files and creates the database if needed. Raises as `SqliteStore.open`."""
        self.files = DatabaseFiles(path)
        """The files."""
        self._lock = ProcessLock(self.files)
        self._lock.acquire(create=True)
        try:
            refuse_damaged_log(self.files.beside(""))
        except BaseException:
            self._lock.release()
            raise

    def loss(self) -> StorageError | None:
        """Returns an error once a file was deleted or replaced."""
        return self.files.loss()

    def refusal(self, db: Database, error: Exception) -> tuple[StorageError, StorageError | None]:
        """Returns why the disk or another process rejected a transaction."""
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_IOERR_FSYNC:
            loss = self.files.unsynced()
            return loss, loss
        refusal = db.translate(error)
        if code == sqlite3.SQLITE_IOERR_WRITE:
            refusal = self.files.refusal() or refusal
        if isinstance(refusal, StorageFull):
            _reuse_log(db)
        return refusal, None

    def warnings(self) -> Mapping[str, Mapping[str, object]]:
        """Returns what is unusual about the files."""
        found: dict[str, Mapping[str, object]] = {}
        if modes := self.files.open_to_others():
            found["database_open_to_others"] = {"files": [f"{mode:04o} {path}" for path, mode in modes.items()]}
        if (names := self.files.names()) > 1:
            found["database_has_other_names"] = {"path": str(self.files.beside("")), "names": names}
        return found

    def own_files(self) -> frozenset[FileIdentity]:
        """Returns the identities of the database and SQLite's files for it."""
        return self.files.identities()

    def close(self) -> None:
        """Releases the lock."""
        self.files.close()
        self._lock.release()


class SqliteStore(SqlStore):
    """Implements `ports.store.Store` in a file."""

    @classmethod
    async def open(
        cls,
        settings: StorageSettings,
        codec: Codec,
        publish: Publisher,
        on_loss: Callable[[StorageError], None] = lambda _: None,
        observer: Observer = Observer(),  # noqa: B008 - has no state
        *,
        is_watched: Watched = lambda *_: True,
        clock: Clock | None = None,
    ) -> Self:
        """Opens the file, creates it if needed, and migrates it to the newest schema. Close with `aclose`.

        `Surroundings` describes the arguments.

        Raises:
            StorageBusy: another server has the file open.
            StorageSchemaTooNew: a newer version of Turnwire has written it.
            StorageCorrupt: it is damaged or not a database.
            StorageError: it cannot be opened.
        """
        surroundings = Surroundings(codec, publish, on_loss, observer, is_watched, clock)
        another = partial(_connection, settings.path, is_reader=True)
        keeper = SqliteKeeper(settings.path)
        connections: list[Connection[SqliteDatabase]] = []
        try:
            connections.append(await _connection(settings.path, is_reader=False))
            await connections[0].run(_bring_up_to_date)
            for _ in range(READERS):
                connections.append(await another())
            keeper.files.remember()
            steps = (cast(Callable[[Database], bool], shrink_some),)
            return await cls(keeper, connections, another, settings, surroundings, steps).begin()
        except BaseException:
            for connection in connections:
                await connection.close()
            keeper.close()
            raise


async def _connection(path: Path, *, is_reader: bool) -> Connection[SqliteDatabase]:
    return await Connection.open(partial(opened, path, read_only=is_reader), is_reader=is_reader)


def _bring_up_to_date(db: SqliteDatabase) -> None:
    """Migrates the file to the schema of this version, and ends what a stopped server has left."""
    migrate(db)
    empty_log(db)
    give_up_imports(db)
    adopt_words(db)


def _reuse_log(db: Database) -> None:
    """Makes SQLite restart its write-ahead log, which cannot grow to where it does so by itself."""
    with contextlib.suppress(sqlite3.OperationalError):
        db.rows("PRAGMA wal_checkpoint(PASSIVE)")
