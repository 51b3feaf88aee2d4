"""Removing uploads that nobody writes to any more."""

import asyncio

from turnwire.core.environment import Environment
from turnwire.domain.errors import ShuttingDown, StorageError
from turnwire.ports.clock import Clock

INTERVAL_SECONDS = 60.0
"""Between looks for what has expired: what the contract says of how late an upload may go."""


class UploadExpiry:
    """A task that removes expired uploads of all tenants: at the start and every minute, a bounded number at a time."""

    def __init__(self, environment: Environment, clock: Clock | None = None) -> None:
        """Takes the store, and the clock that tells what is old: a patient one; None is that of the environment."""
        self._store = environment.store.uploads
        self._clock = clock or environment.clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the task."""
        self._task = asyncio.create_task(self._run(), name="upload expiry")

    async def aclose(self) -> None:
        """Ends the task. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            await self._remove_expired()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def _remove_expired(self) -> None:
        try:
            while await asyncio.shield(self._store.remove_expired(self._clock())):
                pass
        except (StorageError, ShuttingDown):
            return  # as on a full disk; the next look, or the next start, tries again
