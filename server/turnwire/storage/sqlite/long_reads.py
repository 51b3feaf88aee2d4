"""The connection for reads that may take long, beside the one for all others.

Whoever lists a long conversation or all sessions waits for others who do the same, and nobody else does. Whoever has
room that all tenants share does not wait behind the other reads of its tenant: these may be thousands.
"""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

import aiosqlite

from turnwire.domain.incremental.fairness import OneAtATime
from turnwire.storage.sqlite.connection import run
from turnwire.storage.sqlite.reading.rows import session_row

LONG_MESSAGES = 500
"""A conversation of more messages is long: reading it takes more than a few milliseconds."""

LONG_BYTES = 2 * 2**20
"""So is one with more bytes, all that is stored of it together."""

_WITH_ROOM = "\0room"
"""No name of a tenant ends with it."""

T = TypeVar("T")


class LongReads:
    """One read at a time; tenants take turns, and the reads of one tenant go on in their order."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        """Takes a reading connection of its own, which the caller closes."""
        self._connection = connection
        self._turns = OneAtATime()

    async def read(self, query: Callable[..., T], tenant: str, *args: object, has_room: bool = False) -> T:
        """Runs a query, which takes the connection, the tenant and the arguments, when it is its turn.

        A caller that is cancelled does not wait for the end of a query that runs.

        Args:
            query: The query.
            tenant: Whose turn it is.
            args: Further arguments of the query.
            has_room: Whether others wait for room that the caller has. Such reads have turns of their own.

        Raises:
            StorageError: as `run` does.
        """
        owner = f"{tenant}{_WITH_ROOM}" if has_room else tenant
        return await self._turns.run(owner, lambda: run(self._connection, query, tenant, *args))


def unless_long(
    db: sqlite3.Connection, query: Callable[..., T], tenant: str, session_id: str, *args: object
) -> T | None:
    """Returns what a query finds in a session's conversation; None, without reading it, when it is long."""
    row = session_row(db, tenant, session_id)
    counted = "SELECT count(*) FROM (SELECT 1 FROM messages WHERE session = ? AND hidden = 0 LIMIT ?)"
    (messages,) = db.execute(counted, (row, LONG_MESSAGES + 1)).fetchone()
    (stored,) = db.execute("SELECT stored_bytes FROM sessions WHERE id = ?", (row,)).fetchone()
    return None if messages > LONG_MESSAGES or stored > LONG_BYTES else query(db, tenant, session_id, *args)
