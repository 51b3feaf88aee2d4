"""The connection for reads that may take long, beside the one for all others.

Whoever lists a long conversation or all sessions waits for others who do the same, and nobody else does.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import aiosqlite

from turnwire.storage.sqlite.connection import run
from turnwire.storage.sqlite.reading.rows import session_row

LONG_MESSAGES = 500
"""A conversation of more messages is long: reading it takes more than a few milliseconds."""

T = TypeVar("T")


class LongReads:
    """One read at a time; tenants take turns, and the reads of one tenant go on in their order.

    `_waiting` holds the futures of waiting reads by tenant, the tenant whose turn is next first. `_is_busy` says
    whether a read runs or was told to begin. Used on the event loop only.
    """

    def __init__(self, connection: aiosqlite.Connection) -> None:
        """Takes a reading connection of its own, which the caller closes."""
        self._connection = connection
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_busy = False

    async def read(self, query: Callable[..., T], tenant: str, *args: object) -> T:
        """Runs a query, which takes the connection, the tenant and the arguments, when it is its turn.

        A caller that is cancelled does not wait for the end of a query that runs.

        Raises:
            StorageError: as `run` does.
        """
        if self._is_busy:
            await self._turn(tenant)
        self._is_busy = True
        task = asyncio.create_task(run(self._connection, query, tenant, *args), name="long read")
        task.add_done_callback(self._finish)
        return await asyncio.shield(task)

    async def _turn(self, tenant: str) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(future)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():  # it was this one's turn already
                self._next()
            raise

    def _finish(self, task: "asyncio.Task[T]") -> None:
        if not task.cancelled():
            task.exception()  # the caller may be gone; then nobody else looks at it
        self._next()

    def _next(self) -> None:
        self._is_busy = False
        while self._waiting and not self._is_busy:
            tenant = next(iter(self._waiting))
            waiting = self._waiting.pop(tenant)
            future = waiting.popleft()
            if waiting:
                self._waiting[tenant] = waiting  # behind the others
            if not future.done():  # else its caller was cancelled
                self._is_busy = True
                future.set_result(None)


def unless_long(
    db: sqlite3.Connection, query: Callable[..., T], tenant: str, session_id: str, *args: object
) -> T | None:
    """Returns what a query finds in a session's conversation; None, without reading it, when it is long."""
    counted = "SELECT count(*) FROM (SELECT 1 FROM messages WHERE session = ? AND hidden = 0 LIMIT ?)"
    (messages,) = db.execute(counted, (session_row(db, tenant, session_id), LONG_MESSAGES + 1)).fetchone()
    return None if messages > LONG_MESSAGES else query(db, tenant, session_id, *args)
