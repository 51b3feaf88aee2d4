"""Turnwire's own tokens in an SQLite file of their own, in the folder of the database.

The file has no write-ahead log, so that it is always one file that can be copied. Only its owner can read it. It is not
the database, because a restored backup would bring revoked tokens back.
"""

import os
import stat
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

from turnwire.domain.errors import StorageError, StorageSchemaTooNew
from turnwire.ports.identity.token_book import TokenRecord
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.schema import TOKENS
from turnwire.storage.sql.tokens import SqlTokens
from turnwire.storage.sqlite import connection as connections
from turnwire.storage.sqlite.connection import connected
from turnwire.storage.sqlite.database import SqliteDatabase

_SCHEMA_VERSION = 1


class TokenFile(SqlTokens):
    """The tokens of a file. One that is gone has none, and one that was replaced is opened."""

    def __init__(self, path: Path, connection: Connection[Database], identity: tuple[int, int]) -> None:
        """Use `open`."""
        super().__init__(connection)
        self._path = path
        self._identity = identity
        """Device and inode of the file that the connection reads."""

    @classmethod
    async def open(cls, path: Path, *, create: bool = True) -> "TokenFile":
        """Opens the file, readable by its owner only.

        Args:
            path: Where it is.
            create: Whether to make it, and its folder, if it is not there.

        Raises:
            StorageError: it is not there, cannot be created or opened, or was written by a newer version.
        """
        return cls(path, *await _connected(path, create=create))

    async def all(self) -> tuple[TokenRecord, ...]:
        """Returns every token; none if the file is gone."""
        return await super().all() if await self._in_place() else ()

    async def changed(self) -> bool:
        """Returns whether others have changed the tokens since `all`."""
        return not await self._in_place() or await super().changed()

    async def note_uses(self, uses: Mapping[str, datetime]) -> None:
        """Stores times of last use, unless the file is gone."""
        if uses and await self._in_place():
            await super().note_uses(uses)

    async def _in_place(self) -> bool:
        """Returns whether the file exists. If it was replaced, the new one is opened."""
        try:
            status = os.stat(self._path)  # noqa: PTH116 - as in `storage.sqlite.files`
        except (FileNotFoundError, NotADirectoryError):
            self._known = None
            return False
        except OSError as error:
            raise _unusable(self._path, error) from error
        if (status.st_dev, status.st_ino) != self._identity:
            self._known = None
            before = self._connection
            self._connection, self._identity = await _connected(self._path, create=False)
            await before.close()
        return True


async def _connected(path: Path, *, create: bool) -> tuple[Connection[Database], tuple[int, int]]:
    status = _made(path, create=create)
    connection = await Connection.open(partial(_opened, path), is_reader=False)
    return connection, (status.st_dev, status.st_ino)


def opened_tokens(path: Path) -> SqliteDatabase:
    """Opens the file for the calling thread, and makes it if it is not there. Raises the errors of `TokenFile.open`."""
    _made(path, create=True)
    return _opened(path)


def _opened(path: Path) -> SqliteDatabase:
    return connected(path, "the tokens", _prepare)


def _made(path: Path, *, create: bool) -> os.stat_result:
    """Returns what the file is, which only its owner can read from now on."""
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            # SQLite gives its journal the mode of the file
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        status = path.stat()
        if stat.S_IMODE(status.st_mode) & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise _unusable(path, error) from error
    return status


def _prepare(db: SqliteDatabase) -> None:
    """Makes the schema of an empty file. Two processes may do so at the same time."""
    db.run(f"PRAGMA synchronous = {connections.SYNCHRONOUS}")
    if _schema_version(db) > 0:
        return
    with db.transaction():
        if _schema_version(db) == 0:
            db.run(TOKENS)
            db.run(f"PRAGMA user_version = {_SCHEMA_VERSION}")


def _schema_version(db: SqliteDatabase) -> int:
    [(version,)] = db.rows("PRAGMA user_version")
    if version > _SCHEMA_VERSION:
        raise StorageSchemaTooNew(f"the tokens have schema {version}, this version knows {_SCHEMA_VERSION}")
    return int(version)


def _unusable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot use the tokens {path}: {error.strerror}", {"path": str(path)})
