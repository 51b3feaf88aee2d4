"""Work that a task carries out in small steps while the server runs, so that it holds no commit up for long."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable

import aiosqlite

from turnwire.domain.errors import ShuttingDown, StorageError
from turnwire.storage.sqlite.connection import run

RETRY_SECONDS = 60.0
"""After a step that failed, as on a full disk. No caller waits for it."""


class Steps:
    """Carries out steps until nothing is left to do, and again whenever it is woken.

    A step is a transaction of its own on the writing connection, between those of commits. One task, which `start`
    makes and `aclose` ends.
    """

    def __init__(
        self,
        connection: aiosqlite.Connection,
        step: Callable[[sqlite3.Connection], bool],
        pause_seconds: float,
        name: str,
        *,
        idle_seconds: float | None = None,
    ) -> None:
        """Args:
        connection: The writing connection, which the caller closes after `aclose`.
        step: Carries out a step on the connection's thread. Returns False when nothing is left to do. Raises
            StorageError; what it had begun is rolled back then.
        pause_seconds: Between steps, for commits.
        name: Of the task.
        idle_seconds: After this time it looks again, though nobody has woken it. None: it waits to be woken.
        """
        self._connection = connection
        self._step = step
        self._pause_seconds = pause_seconds
        self._name = name
        self._idle_seconds = idle_seconds
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the task, which looks at once for what an earlier run has left."""
        self._task = asyncio.create_task(self._run(), name=self._name)

    def wake(self) -> None:
        """Tells the task that there may be something to do."""
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
                is_more = await self._carry_out()
            except (StorageError, ShuttingDown):  # of the latter, `aclose` comes soon
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if is_more:
                await asyncio.sleep(self._pause_seconds)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._idle_seconds):
                        await self._wake.wait()

    async def _carry_out(self) -> bool:
        return await run(self._connection, self._step)
