"""The connection for searching: one search at a time, each with a limit of time, beside all other reads."""

import asyncio
import sqlite3
import time
from collections import Counter

from turnwire.domain.errors import SearchTooCostly, TooManySearches
from turnwire.domain.searching.hits import Search, SearchPage
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sqlite.database import SqliteDatabase
from turnwire.storage.sqlite.searching.finding import find

MAX_SECONDS = 2.0
"""Of one search: a hundred times what a search of 100,000 messages takes."""

MAX_OF_TENANT = 4
"""Searches of one tenant that run or wait at once: a search waits for at most so many of another tenant."""

MAX_WAITING = 64
"""Searches of all tenants that run or wait at once."""

_TOO_MANY = "too many searches run or wait; try again"

_INSTRUCTIONS = 2_000
"""Of SQLite between two looks at the clock: well under a millisecond."""


class Searches:
    """Runs searches. Used on the event loop; `_open` counts those that the thread has not finished, by tenant."""

    def __init__(self, connection: Connection[SqliteDatabase], max_seconds: float = MAX_SECONDS) -> None:
        """Takes a reading connection of its own, which the caller closes."""
        self._connection = connection
        self._max_seconds = max_seconds
        self._open: Counter[str] = Counter()

    async def search(self, tenant: str, search: Search, place: bytes, size: int) -> SearchPage:
        """Returns a page of hits; see `TenantStore.search`. When the caller is cancelled, the search ends soon."""
        if self._open[tenant] >= MAX_OF_TENANT:
            raise TooManySearches.of("MAX_OF_TENANT", MAX_OF_TENANT, _TOO_MANY)
        if self._open.total() >= MAX_WAITING:
            raise TooManySearches.of("MAX_WAITING", MAX_WAITING, _TOO_MANY)
        one = _Search(tenant, search, place, size, self._max_seconds)
        self._open[tenant] += 1
        task = asyncio.create_task(self._connection.run(one.run), name="search")
        task.add_done_callback(lambda _: self._finish(tenant))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            one.is_wanted = False
            task.add_done_callback(_look_at)
            raise

    def _finish(self, tenant: str) -> None:
        self._open[tenant] -= 1
        if not self._open[tenant]:
            del self._open[tenant]


class _Search:
    """One search, from the moment when it is called. `is_wanted` is set on the loop and read on the thread."""

    def __init__(self, tenant: str, search: Search, place: bytes, size: int, max_seconds: float) -> None:
        self._what = (tenant, search, place, size)
        self._max_seconds = max_seconds
        self.is_wanted = True

    def run(self, db: sqlite3.Connection) -> SearchPage:
        """Runs on the connection's thread."""
        ends_at = time.monotonic() + self._max_seconds
        db.set_progress_handler(lambda: not self.is_wanted or time.monotonic() > ends_at, _INSTRUCTIONS)
        try:
            if not self.is_wanted:
                raise SearchTooCostly(self._max_seconds)
            return find(db, *self._what)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                raise SearchTooCostly(self._max_seconds) from None
            raise
        finally:
            db.set_progress_handler(None, 0)


def _look_at(task: asyncio.Task[SearchPage]) -> None:
    """Takes the result of a search that nobody waits for, so that its error is not reported as forgotten."""
    if not task.cancelled():
        task.exception()
