"""The end of tasks."""

import asyncio
from collections.abc import Iterable
from typing import Any


def retrieve(done: "asyncio.Future[Any]") -> None:
    """Retrieves the error of what has ended, so that asyncio does not log it when nobody awaits that."""
    if not done.cancelled():
        done.exception()


async def end(tasks: "Iterable[asyncio.Task[Any] | None]") -> None:
    """Cancels tasks, and returns when they have ended, whatever came of them. None stands for no task."""
    left = [task for task in tasks if task is not None]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)
