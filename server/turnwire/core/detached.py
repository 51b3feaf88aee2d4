"""Work that must complete even when its caller is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from turnwire.event_loop.tasks import retrieve

T = TypeVar("T")


class DetachedTasks:
    """Owns tasks that outlive their callers. Used on the event loop.

    A task whose caller is gone does not count as a call in flight, so it must not wait for long behind others.
    """

    def __init__(self) -> None:
        """Starts without tasks."""
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of the work or raises its error. The work continues when the caller is cancelled."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        try:
            return await asyncio.shield(task)
        finally:
            del task  # its error refers to this frame, and through it to the caller's request

    async def aclose(self) -> None:
        """Returns when no task runs. Safe to cancel."""
        while self._running:
            await asyncio.wait(tuple(self._running))

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        retrieve(task)
