"""Turnwire's own tokens in an SQLite file of their own, in the folder of the database.

The file has no write-ahead log, so that it is always one file that can be copied. Only its owner can read it. It is not
the database, because a restored backup would bring revoked tokens back.
"""

import asyncio
import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import aiosqlite
import msgspec

from turnwire.domain.errors import StorageError, StorageSchemaTooNew
from turnwire.ports.identity.token_book import TokenRecord
from turnwire.storage.rows import Row
from turnwire.storage.sql.schema import TOKENS
from turnwire.storage.sql.tokens import SqlTokens
from turnwire.storage.sqlite import connection as connections
from turnwire.storage.sqlite.connection import BUSY_TIMEOUT_SECONDS
from turnwire.storage.sqlite.database import FAILURES, SqliteDatabase, translate

_SCHEMA_VERSION = 1


_NOTE_USES = """
UPDATE tokens SET last_used_at_ms = uses.value FROM json_each(?) AS uses
WHERE uses.key = tokens.token_id AND coalesce(last_used_at_ms, 0) < uses.value
"""
"""One statement is its own transaction: one over several would stay open while the event loop does other work."""


class TokenFile(SqlTokens):
    """The tokens of a file. One that is gone has none, and one that was replaced is opened."""

    def __init__(self, path: Path, table: "_Table", identity: tuple[int, int]) -> None:
        """Use `open`."""
        super().__init__(table)
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
            before, (self._table, self._identity) = self._table, await _connected(self._path, create=False)
            await before.close()
        return True


class _Table:
    """The table in a file, on the thread of aiosqlite. Implements `TokenTable`."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def rows(self, statement: str) -> Sequence[Row]:
        with _translated():
            return [tuple(row) for row in await self._connection.execute_fetchall(statement)]

    async def change(self, statement: str, parameters: Row) -> int:
        with _translated():
            return (await self._connection.execute(statement, parameters)).rowcount

    async def note_uses(self, uses: Mapping[str, int]) -> None:
        await self.change(_NOTE_USES, (msgspec.json.encode(uses).decode(),))

    async def close(self) -> None:
        await self._connection.close()


async def _connected(path: Path, *, create: bool) -> tuple[_Table, tuple[int, int]]:
    status = _made(path, create=create)
    await asyncio.to_thread(lambda: opened_tokens(path, create=False).close())  # makes the schema
    with _translated():
        connection = await aiosqlite.connect(path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)
        await connection.execute(f"PRAGMA synchronous = {connections.SYNCHRONOUS}")
    return _Table(connection), (status.st_dev, status.st_ino)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except FAILURES as error:
        raise translate(error) from error
    except ValueError as error:  # of aiosqlite
        raise StorageError("the tokens are closed") from error


def opened_tokens(path: Path, *, create: bool) -> SqliteDatabase:
    """Opens the file for the calling thread. Arguments and errors are those of `TokenFile.open`."""
    _made(path, create=create)
    try:
        db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_SECONDS, factory=SqliteDatabase)
    except sqlite3.Error as error:
        raise StorageError(f"cannot open the tokens {path}: {error}", {"path": str(path)}) from error
    try:
        _prepare(db)
    except BaseException as error:
        db.close()
        if isinstance(error, FAILURES):
            raise translate(error) from error
        raise
    return db


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
