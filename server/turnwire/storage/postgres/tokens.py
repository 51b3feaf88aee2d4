"""Turnwire's own tokens in a database of PostgreSQL, whose servers and commands all use the same table."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from turnwire.domain.errors import StorageError
from turnwire.storage.postgres.connection import WAITING_OF_NODES, PostgresDatabase, opened
from turnwire.storage.postgres.schema import TOKENS_VERSION, migrate, schema_version
from turnwire.storage.rows import Row
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.database import Database

_NOTE_USE = "UPDATE tokens SET last_used_at_ms = ? WHERE token_id = ? AND coalesce(last_used_at_ms, 0) < ?"

T = TypeVar("T")


class _TokenConnection(PostgresDatabase):
    """A connection for tokens. A server looks each second: it notices soon that a connection leads nowhere."""

    waiting = WAITING_OF_NODES


class PostgresTokens:
    """Implements `TokenTable` in a database; see there. A connection that was lost is made again at the next use."""

    def __init__(self, connection: Connection[PostgresDatabase]) -> None:
        """Use `open`."""
        self._connection = connection

    @classmethod
    async def open(cls, url: str, *, create: bool = True) -> "PostgresTokens":
        """Connects.

        Args:
            url: The address of the database.
            create: Whether to bring the database to the newest schema, as the start of a server does.

        Raises:
            StorageError: it cannot be reached, has no tokens, or is not one of Turnwire.
        """
        opening = partial(opened, url, read_only=False, kind=_TokenConnection)
        connection = await Connection.open(opening, is_reader=False)
        try:
            await connection.run(migrate if create else _refuse_without_tokens)
        except BaseException:
            await connection.close()
            raise
        return cls(connection)

    async def rows(self, statement: str) -> Sequence[Row]:
        """Returns the rows that a statement finds."""
        return await self._run(lambda db: db.rows(statement))

    async def change(self, statement: str, parameters: Row) -> int:
        """Carries out a statement."""
        return await self._run(lambda db: db.run(statement, parameters))

    async def note_uses(self, uses: Mapping[str, int]) -> None:
        """Stores times of last use."""
        # in one order, so that two servers that do the same do not wait for each other
        times = [(when, token_id, when) for token_id, when in sorted(uses.items())]

        def note(db: Database) -> None:
            with db.transaction():
                db.run_many(_NOTE_USE, times)

        await self._run(note)

    async def close(self) -> None:
        """Closes the connection."""
        await self._connection.close()

    async def _run(self, function: Callable[[Database], T]) -> T:
        return await self._connection.run(partial(_with_connection, function))


def _with_connection(function: Callable[[Database], T], db: PostgresDatabase) -> T:
    if db.connection.closed:
        db.renew()
    return function(db)


def _refuse_without_tokens(db: Database) -> None:
    if schema_version(db) < TOKENS_VERSION:
        raise StorageError("the database has no tokens yet: `turnwire token create` makes the first one")
