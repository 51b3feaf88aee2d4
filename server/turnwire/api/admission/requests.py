"""Large requests have a part of one memory budget, from their arrival until they are carried out.

A request is in memory several times: as its bytes, as a message of protobuf, as texts, in which each character takes
four bytes when one of them is wide, and as what waits for the disk. Requests come faster than they are stored, so
without a budget a hundred large ones would wait in memory, whatever the server refuses by then.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Protocol, TypeVar

from turnwire.api.admission.flow import Client
from turnwire.domain.errors import TooManyCalls
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.text import WIDEST_BYTES
from turnwire.event_loop.tasks import retrieve

COUNTED_BYTES = 4096
"""A smaller request has no part in the budget: a call takes several times as much by itself, and it would wait behind
large ones."""

MEMORY_OF_BYTE = 1 + WIDEST_BYTES
"""Memory for a byte of a request: in its message, and in a text with a wide character."""

WAITING_SHARE = 1 / 3
"""Maximum size of requests that wait for their part, as a share of the budget; one flow has half of it at most.
Further ones are refused."""

RETRY_AFTER = timedelta(seconds=1)
"""Retry delay of a caller that is refused because of too many calls, or too little memory."""

T = TypeVar("T")


class CallerGone(Exception):
    """The caller has left its call."""


class Finish(Protocol):
    """Does what a request asks for."""

    def __call__(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Returns what the work returns."""
        ...


class Requests:
    """The requests of all listeners. Used on the event loop only."""

    def __init__(self, max_bytes: int) -> None:
        """Takes the memory that requests may have from 4 KiB on."""
        self._memory = FairSemaphore(max_bytes)
        waiting = int(max_bytes * WAITING_SHARE)
        self._waiting = FairSemaphore(waiting, tenant_limit=waiting // 2)

    @contextlib.asynccontextmanager
    async def memory(self, client: Client, size: int, *, only_reads: bool = False) -> AsyncIterator[Finish]:
        """Acquires memory for a request of `size` bytes; waits for it.

        Safe to cancel. What its body does by the yielded `Finish` is done to its end, and the memory is in use until
        then.

        Args:
            client: The client of the request.
            size: Size of the request in bytes.
            only_reads: Whether its work ends when it is cancelled, so that it does not run to completion.

        Raises:
            TooManyCalls: too much waits.
        """
        if size < COUNTED_BYTES:
            yield _directly
            return
        flow, cost = client.flow, min(size * MEMORY_OF_BYTE, self._memory.limit)
        if not self._memory.try_acquire(flow, cost):
            await self._wait(flow, size, cost)
        try:
            yield _directly if only_reads else run_to_completion
        finally:
            self._memory.release(flow, cost)

    async def _wait(self, flow: str, size: int, cost: int) -> None:
        size = min(size, self._waiting.limit)  # a larger one may wait, too, when no other does
        if not self._waiting.try_acquire(flow, size):
            text = "too many large requests wait"
            limit = "limits.max_request_memory_bytes"
            raise TooManyCalls.of(limit, self._memory.limit, text, RETRY_AFTER)
        try:
            await self._memory.acquire(flow, cost)
        finally:
            self._waiting.release(flow, size)


def _directly(work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    return work()


async def run_to_completion(work: Callable[[], Awaitable[T]]) -> T:
    """Returns the result of the work. When this is cancelled, the work continues, and this ends when the work has
    ended.

    What a caller has begun may go on without it; while it does, its request is in memory.
    """
    task = asyncio.ensure_future(work())
    left: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            left = error
    if left is None:
        try:
            return task.result()
        finally:
            del task, work  # its error has this frame, which would keep the request until a full collection
    retrieve(task)
    raise left
