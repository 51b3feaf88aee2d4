"""Removing the blocks of uploads that are gone, in small steps between commits."""

import asyncio
import sqlite3

import aiosqlite

from turnwire.domain.errors import StorageError
from turnwire.storage.sqlite.connection import run, transaction
from turnwire.storage.sqlite.uploads import blocks

STEP_BLOCKS = 8
"""Of one step, 2 MiB: it holds up commits for some milliseconds. Two gigabytes at once would do so for seconds."""
STEP_UPLOADS = 64
"""Of one step: many small ones go as quickly as they can be made."""
PAUSE_SECONDS = 0.005
"""Between steps; what waits to be written comes first anyway. Two gigabytes take about 10 seconds: less than sending
them does, so that who uploads and deletes all the time does not fill the disk."""
RETRY_SECONDS = 60.0
"""After a step that failed, as on a full disk. No caller waits for it."""


class BlockRemoval:
    """Removes what `changes.remove` has marked. A step is a transaction of its own on the writing connection.

    So no order of steps, commits and crashes removes anything else, and the next start goes on.
    """

    def __init__(self, connection: aiosqlite.Connection) -> None:
        """Takes the writing connection, which the caller closes after `aclose`."""
        self._connection = connection
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the task, which looks at once for what an earlier run has left."""
        self._task = asyncio.create_task(self._run(), name="upload removal")

    def wake(self) -> None:
        """Tells the task that something was removed."""
        self._wake.set()

    async def aclose(self) -> None:
        """Ends the task; the next start goes on. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                is_more = await run(self._connection, _remove_some)
            except StorageError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if is_more:
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                await self._wake.wait()


def _remove_some(db: sqlite3.Connection) -> bool:
    """Carries out a step. Returns False when nothing is left to remove."""
    some = db.execute("SELECT id FROM uploads WHERE removed = 1 ORDER BY id LIMIT ?", (STEP_UPLOADS,)).fetchall()
    if not some:
        return False
    left = STEP_BLOCKS
    with transaction(db):
        for row in some:
            left -= blocks.remove_some(db, row[0], left)
            if not left:  # more of this one may be there
                break
            db.execute("DELETE FROM uploads WHERE id = ?", row)
    return True
