"""One piece of work at a time, in an order that is fair to those who want it."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from turnwire.event_loop.owner import for_all

T = TypeVar("T")


class OneAtATime:
    """Runs one piece of work at a time; owners take turns, and the work of one owner goes on in its order.

    `_waiting` holds the futures of waiting work by owner, the owner whose turn is next first; it is bounded by the
    calls in flight. `_is_busy` says whether work runs or was told to begin. Used on the event loop only.
    """

    def __init__(self) -> None:
        """Nothing runs or waits."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_busy = False

    async def run(self, owner: str, work: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of the work, which begins when it is its turn.

        A caller that is cancelled does not wait for the end of work that runs; the next work does.
        """
        if self._is_busy:
            await self._turn(owner)
        self._is_busy = True
        context = for_all()  # who is next waits for it
        task = asyncio.create_task(_awaited(work), name="one at a time", context=context)
        task.add_done_callback(self._finish, context=context)
        return await asyncio.shield(task)

    async def _turn(self, owner: str) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(future)
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
            owner = next(iter(self._waiting))
            waiting = self._waiting.pop(owner)
            future = waiting.popleft()
            if waiting:
                self._waiting[owner] = waiting  # behind the others
            if not future.done():  # else its caller was cancelled
                self._is_busy = True
                future.set_result(None)


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()
