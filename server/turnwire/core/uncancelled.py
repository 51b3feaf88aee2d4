"""Work that must be done as a whole although its caller may go away in the middle."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Uncancelled:
    """Owns such work. `_running` is bounded by the calls in flight; `settle` waits for what is left."""

    def __init__(self) -> None:
        """Begins without work."""
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Does the work and returns its result; when the caller is cancelled the work goes on."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def settle(self) -> None:
        """Returns when nothing runs any more."""
        while self._running:
            await asyncio.wait(tuple(self._running))

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen by the caller, or by nobody when it is gone
