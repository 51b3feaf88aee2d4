"""Turnwire's own tokens in a database of PostgreSQL, whose servers and commands all use the same table."""

from collections.abc import Callable
from functools import partial
from typing import Self, TypeVar

from turnwire.domain.errors import StorageError
from turnwire.storage.postgres.connection import WAITING_OF_NODES, PostgresDatabase, opened
from turnwire.storage.postgres.schema import TOKENS_VERSION, migrate, schema_version
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.tokens import SqlTokens

T = TypeVar("T")


class _TokenConnection(PostgresDatabase):
    """A connection for tokens. A server looks each second: it notices soon that a connection leads nowhere."""

    waiting = WAITING_OF_NODES


class PostgresTokens(SqlTokens):
    """The tokens of a database. A connection that was lost is made again at the next use."""

    @classmethod
    async def open(cls, url: str, *, create: bool = True) -> Self:
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

    async def _run(self, function: Callable[[Database], T]) -> T:
        return await super()._run(partial(_with_connection, function))


def _with_connection(function: Callable[[Database], T], db: Database) -> T:
    assert isinstance(db, PostgresDatabase)
    if db.connection.closed:
        db.renew()
    return function(db)


def _refuse_without_tokens(db: Database) -> None:
    if schema_version(db) < TOKENS_VERSION:
        raise StorageError("the database has no tokens yet: `turnwire token create` makes the first one")
