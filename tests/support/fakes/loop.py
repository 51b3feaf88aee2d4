"""The event loop as a clock that tests move: nothing waits for time, and no test counts the steps of a task."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

T = TypeVar("T")


async def settled() -> None:
    """Returns when the loop has nothing to run: every task waits for a future, a timer, a thread or a socket."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(0)
        if not loop._ready:  # type: ignore[attr-defined]  # asyncio has no other way to ask
            return


async def begun(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begins a task, and returns it when the loop has nothing to run."""
    task = asyncio.create_task(work)
    await settled()
    return task


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancels a task, and returns when it has ended."""
    task.cancel()
    await asyncio.wait((task,))


class _MovedClock:
    """The loop's clock, so many seconds ahead: one for all tests of a loop, because the loop asks it all the time."""

    def __init__(self, real: Callable[[], float]) -> None:
        self._real = real
        self.ahead = 0.0

    def __call__(self) -> float:
        return self._real() + self.ahead


async def elapse(time: timedelta) -> None:
    """Lets the loop settle, moves its clock, and lets what is due then run until the loop has settled again.

    The clock never goes back, so that timers keep their order; the time of day is not touched.
    """
    await settled()
    loop = asyncio.get_running_loop()
    clock = loop.time if isinstance(loop.time, _MovedClock) else _MovedClock(loop.time)
    clock.ahead += time.total_seconds()
    loop.time = clock  # type: ignore[method-assign]
    await settled()
