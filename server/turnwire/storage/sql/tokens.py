"""Turnwire's own tokens in a table of either engine."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from turnwire.domain.errors import StorageCorrupt, StorageError
from turnwire.domain.principal import Principal, Role
from turnwire.ports.identity.token_book import TokenRecord
from turnwire.storage.rows import Row
from turnwire.storage.sql.changes import insert, upsert
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.database import Database

_COLUMNS = "token_id, token_hash, tenant, subject, role, created_at_ms, expires_at_ms, last_used_at_ms, revoked_at_ms"

_ADD = insert("tokens", _COLUMNS)

_PUT = upsert("tokens", _COLUMNS, "token_id")

_COUNT = "SELECT count(*), count(revoked_at_ms) FROM tokens"

_NOTE_USE = "UPDATE tokens SET last_used_at_ms = ? WHERE token_id = ? AND coalesce(last_used_at_ms, 0) < ?"

T = TypeVar("T")


class SqlTokens:
    """Implements `ports.identity.token_book.TokenBook` on a connection of its own; see there.

    One task at a time may use it; who is cancelled may leave a change stored.
    """

    def __init__(self, connection: Connection[Database]) -> None:
        """Takes the connection, which `aclose` closes, to a database that has the table."""
        self._connection = connection
        self._known: tuple[int, int] | None = None
        """How many tokens `all` has read, and how many of them were revoked. Both numbers only grow, so others mean a
        change. None before the first `all` and after a failure."""

    async def add(self, record: TokenRecord) -> None:
        """Stores a new token."""
        await self._run(lambda db: db.write(_ADD, [_row(record)]))

    async def revoke(self, token_id: str, when: datetime) -> bool:
        """Marks a token as revoked."""
        statement = "UPDATE tokens SET revoked_at_ms = coalesce(revoked_at_ms, ?) WHERE token_id = ?"
        return await self._run(lambda db: db.run(statement, (_to_ms(when), token_id))) > 0

    async def all(self) -> tuple[TokenRecord, ...]:
        """Returns every token."""
        rows = await self._run(token_rows)
        try:
            records = tuple(map(_record, rows))
        except (ValueError, OverflowError) as error:
            raise StorageCorrupt("the tokens have a row that is wrong") from error
        self._known = (len(records), sum(record.revoked_at is not None for record in records))
        return records

    async def changed(self) -> bool:
        """Returns whether others have changed the tokens since `all`."""
        return await self._run(lambda db: db.row(_COUNT)) != self._known

    async def note_uses(self, uses: Mapping[str, datetime]) -> None:
        """Stores times of last use."""
        await self._run(lambda db: _note_uses(db, uses))

    async def aclose(self) -> None:
        """Closes the connection."""
        await self._connection.close()

    async def _run(self, function: Callable[[Database], T]) -> T:
        try:
            return await self._connection.run(function)
        except StorageError:
            self._known = None  # until it succeeds, there may be another database
            raise


def token_rows(db: Database) -> list[Row]:
    """Returns all tokens, oldest first, as `put_tokens` takes them; the first column is the id."""
    return db.rows(f"SELECT {_COLUMNS} FROM tokens ORDER BY created_at_ms, token_id")


def put_tokens(db: Database, rows: Iterable[Row]) -> None:
    """Writes rows of tokens, whether there are tokens of their ids or not."""
    db.write(_PUT, list(rows))


def _note_uses(db: Database, uses: Mapping[str, datetime]) -> None:
    # in one order, so that two servers that do the same do not wait for each other
    times = [(_to_ms(when), token_id, _to_ms(when)) for token_id, when in sorted(uses.items())]
    if times:
        with db.transaction():
            db.run_many(_NOTE_USE, times)


def _row(record: TokenRecord) -> Row:
    principal = record.principal
    times = (record.created_at, record.expires_at, record.last_used_at, record.revoked_at)
    names = (principal.tenant, principal.subject, principal.role.value)
    return (record.token_id, record.token_hash, *names, *map(_to_ms, times))


def _record(row: Row) -> TokenRecord:
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


def _from_ms(milliseconds: Any) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
