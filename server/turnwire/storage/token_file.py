"""Turnwire's own tokens in an SQLite file of their own, in the folder of the database.

Implements `ports.identity.token_book.TokenBook`. The file has no write-ahead log, so that it is always one file that
can be copied. Only its owner can read it.
"""

import contextlib
import os
import stat
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import aiosqlite
import msgspec

from turnwire.domain.errors import StorageCorrupt, StorageError, StorageSchemaTooNew
from turnwire.domain.principal import Principal, Role
from turnwire.ports.identity.token_book import TokenRecord
from turnwire.storage.sqlite.connection import BUSY_TIMEOUT_SECONDS
from turnwire.storage.sqlite.database import FAILURES, translate

_SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE tokens (
    token_id TEXT PRIMARY KEY,
    token_hash BLOB NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    role TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER,
    last_used_at_ms INTEGER,
    revoked_at_ms INTEGER
) STRICT, WITHOUT ROWID
"""

_COLUMNS = "token_id, token_hash, tenant, subject, role, created_at_ms, expires_at_ms, last_used_at_ms, revoked_at_ms"

_NOTE_USES = """
UPDATE tokens SET last_used_at_ms = max(uses.value, coalesce(last_used_at_ms, 0))
FROM json_each(?) AS uses WHERE token_id = uses.key
"""
"""One statement: a transaction over several would keep others out for as long as the event loop is busy."""


class TokenFile:
    """An open file of tokens. One task at a time may use it; who is cancelled may leave a change stored."""

    def __init__(self, path: Path) -> None:
        """Use `open`."""
        self._path = path
        self._connection: aiosqlite.Connection | None = None
        self._identity: tuple[int, int] | None = None
        """Device and inode of the file that the connection reads."""
        self._version: int | None = None
        """SQLite's counter of changes by others when the tokens were read; None before that."""

    @classmethod
    async def open(cls, path: Path, *, create: bool = True) -> "TokenFile":
        """Opens the file, readable by its owner only.

        Args:
            path: Where it is.
            create: Whether to make it, and its folder, if it is not there.

        Raises:
            StorageError: it is not there, cannot be created or opened, or was written by a newer version.
        """
        file = cls(path)
        await file._connect(create=create)
        return file

    async def add(self, record: TokenRecord) -> None:
        """Stores a new token."""
        principal = record.principal
        values = (record.token_id, record.token_hash, principal.tenant, principal.subject, principal.role.value)
        times = (record.created_at, record.expires_at, record.last_used_at, record.revoked_at)
        statement = f"INSERT INTO tokens ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        async with self._using() as connection:
            await connection.execute(statement, (*values, *map(_to_ms, times)))

    async def revoke(self, token_id: str, when: datetime) -> bool:
        """Marks a token as revoked."""
        statement = "UPDATE tokens SET revoked_at_ms = coalesce(revoked_at_ms, ?) WHERE token_id = ?"
        async with self._using() as connection:
            return (await connection.execute(statement, (_to_ms(when), token_id))).rowcount > 0

    async def all(self) -> tuple[TokenRecord, ...]:
        """Returns every token; none if the file is gone."""
        if not await self._in_place():
            self._version = None
            return ()
        async with self._using() as connection:
            # the counter is read first: a change in between is read now, and once more
            version = await _data_version(connection)
            query = f"SELECT {_COLUMNS} FROM tokens ORDER BY created_at_ms, token_id"
            rows = await connection.execute_fetchall(query)
        self._version = version
        try:
            return tuple(map(_record, rows))
        except (ValueError, OverflowError) as error:
            raise StorageCorrupt(
                f"the tokens {self._path} have a row that is wrong", {"path": str(self._path)}
            ) from error

    async def changed(self) -> bool:
        """Returns whether others have changed the tokens since `all`."""
        if not await self._in_place():
            return self._version is not None
        async with self._using() as connection:
            return await _data_version(connection) != self._version

    async def note_uses(self, uses: Mapping[str, datetime]) -> None:
        """Stores times of last use."""
        if not uses or not await self._in_place():
            return
        times = msgspec.json.encode({token_id: _to_ms(when) for token_id, when in uses.items()}).decode()
        async with self._using() as connection:
            await connection.execute(_NOTE_USES, (times,))

    async def aclose(self) -> None:
        """Closes the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _in_place(self) -> bool:
        """Returns whether the file exists. If it was replaced, the new one is opened."""
        try:
            status = os.stat(self._path)  # noqa: PTH116 - as in `storage.sqlite.files`
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _unusable(self._path, error) from error
        if self._connection is None or (status.st_dev, status.st_ino) != self._identity:
            await self.aclose()
            self._version = None
            await self._connect(create=False)
        return True

    async def _connect(self, *, create: bool) -> None:
        try:
            if create:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                # SQLite gives its journal the mode of the file
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            status = self._path.stat()
            if stat.S_IMODE(status.st_mode) & 0o077:
                self._path.chmod(0o600)
        except OSError as error:
            raise _unusable(self._path, error) from error
        self._identity = (status.st_dev, status.st_ino)
        try:
            self._connection = await aiosqlite.connect(self._path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)
        except FAILURES as error:
            raise StorageError(f"cannot open the tokens {self._path}: {error}", {"path": str(self._path)}) from error
        try:
            async with self._using() as connection:
                await _prepare(connection)
        except BaseException:
            await self.aclose()
            raise

    @contextlib.asynccontextmanager
    async def _using(self) -> AsyncIterator[aiosqlite.Connection]:
        """Yields the connection. What it raises becomes a StorageError."""
        if self._connection is None:
            raise StorageError(f"the tokens {self._path} are closed", {"path": str(self._path)})
        try:
            yield self._connection
        except FAILURES as error:
            raise translate(error) from error


async def _prepare(connection: aiosqlite.Connection) -> None:
    """Makes the schema of an empty file. Two processes may do so at the same time."""
    await connection.execute("PRAGMA synchronous = FULL")
    if await _schema_version(connection) > 0:
        return
    await connection.execute("BEGIN IMMEDIATE")
    try:
        if await _schema_version(connection) == 0:
            await connection.execute(_SCHEMA)
            await connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
    except BaseException:
        await connection.rollback()
        raise
    await connection.commit()


async def _schema_version(connection: aiosqlite.Connection) -> int:
    [[version]] = await connection.execute_fetchall("PRAGMA user_version")
    if version > _SCHEMA_VERSION:
        raise StorageSchemaTooNew(f"the tokens have schema {version}, this version knows {_SCHEMA_VERSION}")
    return int(version)


async def _data_version(connection: aiosqlite.Connection) -> int:
    [[version]] = await connection.execute_fetchall("PRAGMA data_version")
    return int(version)


def _record(row: aiosqlite.Row) -> TokenRecord:
    token_id, token_hash, tenant, subject, role, created_at, expires_at, last_used_at, revoked_at = row
    return TokenRecord(
        token_id=token_id,
        token_hash=token_hash,
        principal=Principal(tenant=tenant, subject=subject, role=Role(role)),
        created_at=_from_ms(created_at),
        expires_at=None if expires_at is None else _from_ms(expires_at),
        last_used_at=None if last_used_at is None else _from_ms(last_used_at),
        revoked_at=None if revoked_at is None else _from_ms(revoked_at),
    )


def _to_ms(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp() * 1000)


def _from_ms(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _unusable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot use the tokens {path}: {error.strerror}", {"path": str(path)})
