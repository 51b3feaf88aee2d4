"""Turnwire's own tokens in a table of either engine."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from turnwire.domain.errors import StorageCorrupt
from turnwire.domain.principal import Principal, Role
from turnwire.ports.identity.token_book import TokenRecord
from turnwire.storage.rows import Row
from turnwire.storage.sql.changes import upsert
from turnwire.storage.sql.database import Database

_COLUMNS = "token_id, token_hash, tenant, subject, role, created_at_ms, expires_at_ms, last_used_at_ms, revoked_at_ms"

_ALL = f"SELECT {_COLUMNS} FROM tokens ORDER BY created_at_ms, token_id"

_ADD = f"INSERT INTO tokens ({_COLUMNS}) VALUES ({', '.join('?' for _ in _COLUMNS.split(', '))})"

_REVOKE = "UPDATE tokens SET revoked_at_ms = coalesce(revoked_at_ms, ?) WHERE token_id = ?"

_PUT = upsert("tokens", _COLUMNS, "token_id")

_COUNT = "SELECT count(*), count(revoked_at_ms) FROM tokens"


class TokenTable(Protocol):
    """A connection of either engine to the table. All methods raise StorageError."""

    async def rows(self, statement: str) -> Sequence[Row]:
        """Returns the rows that a statement finds."""
        ...

    async def change(self, statement: str, parameters: Row) -> int:
        """Carries out a statement in a transaction of its own. Returns how many rows it changed."""
        ...

    async def note_uses(self, uses: Mapping[str, int]) -> None:
        """Stores times of last use in milliseconds, by the ids of tokens, unless a later one is stored."""
        ...

    async def close(self) -> None:
        """Closes the connection. Idempotent."""
        ...


class SqlTokens:
    """Implements `ports.identity.token_book.TokenBook` on a connection of its own; see there.

    One task at a time may use it; who is cancelled may leave a change stored.
    """

    def __init__(self, table: TokenTable) -> None:
        """Takes the table, which `aclose` closes."""
        self._table = table
        self._known: tuple[int, int] | None = None
        """Number of tokens that `all` has read, and of revoked ones among them. Both only grow, so others mean a
        change. None before the first `all` and after a failure."""

    async def add(self, record: TokenRecord) -> None:
        """Stores a new token."""
        await self._table.change(_ADD, _row(record))

    async def revoke(self, token_id: str, when: datetime) -> bool:
        """Marks a token as revoked."""
        return await self._table.change(_REVOKE, (_ms(when), token_id)) > 0

    async def all(self) -> tuple[TokenRecord, ...]:
        """Returns every token."""
        self._known = None
        rows = await self._table.rows(_ALL)
        try:
            records = tuple(map(_record, rows))
        except (ValueError, OverflowError) as error:
            raise StorageCorrupt("the tokens have a row that is wrong") from error
        self._known = (len(records), sum(record.revoked_at is not None for record in records))
        return records

    async def changed(self) -> bool:
        """Returns whether others have changed the tokens since `all`."""
        known, self._known = self._known, None  # while this fails, there may be another database
        [found] = await self._table.rows(_COUNT)
        self._known = known
        return found != known

    async def note_uses(self, uses: Mapping[str, datetime]) -> None:
        """Stores times of last use."""
        if uses:
            await self._table.note_uses({token_id: _ms(when) for token_id, when in uses.items()})

    async def aclose(self) -> None:
        """Closes the connection."""
        await self._table.close()


def token_rows(db: Database) -> list[Row]:
    """Returns all tokens, oldest first, as `put_tokens` takes them; the first column is the id."""
    return db.rows(_ALL)


def put_tokens(db: Database, rows: Iterable[Row]) -> None:
    """Writes rows of tokens, whether there are tokens of their ids or not."""
    db.write(_PUT, list(rows))


def _row(record: TokenRecord) -> Row:
    principal = record.principal
    times = (record.created_at, record.expires_at, record.last_used_at, record.revoked_at)
    names = (principal.tenant, principal.subject, principal.role.value)
    return (record.token_id, record.token_hash, *names, *(None if time is None else _ms(time) for time in times))


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


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def _from_ms(milliseconds: Any) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
