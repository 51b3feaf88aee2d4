"""Requests in work: how much memory they have, from before they are parsed until what they ask for is done.

A request is in memory several times: as its bytes, as a message of protobuf, as texts, in which each character takes
four bytes when one of them is wide, and as what waits for the disk. Requests come faster than they are stored, so
without a bound a hundred large ones would wait in memory, whatever the server refuses by then.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

from turnwire.api.bounds.sending import Client
from turnwire.api.bounds.shared_bytes import SharedBytes
from turnwire.domain.incremental.shares import Shares
from turnwire.domain.networks import network_of_peer
from turnwire.domain.text import WIDEST_BYTES

COUNTED_BYTES = 4096
"""A smaller request has no part in this: a call takes several times as much by itself."""

LARGE_BYTES = 2**20
"""A larger request shares the room of the large ones, so that others do not wait behind these. Requests that have to
wait for long, as copies of sessions do for each other, are not larger."""

SHARE = 2
"""A tenant and address has at most so many times the room that it leaves to others: those that come later do not wait
for the end of what it asks for, which may take seconds each. Not of the room for large ones: few have room there."""

MEMORY_OF_BYTE = 1 + WIDEST_BYTES
"""What a byte of a request may take: in its message, and in a text with a wide character."""

MAX_WORKING_BYTES = 64 * 2**20
"""Memory of requests in work that are not large. Others wait, those of each tenant and address in their order."""

MAX_LARGE_WORKING_BYTES = 128 * 2**20
"""Memory of large requests in work; one alone may have more. Others wait."""

MAX_LARGE_READS = 1
"""Large requests in work that only read. They are explanations of contexts, which are made one after the other, each
for a second and more: what is to be stored would wait for many of them."""

MAX_WAITING_REQUESTS_BYTES = 64 * 2**20
"""Of requests that wait for that. With more, the newest of the tenant and address that has most of it is refused."""

T = TypeVar("T")


class Finish(Protocol):
    """Does what a request asks for."""

    def __call__(self, work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Returns what the work returns."""
        ...


class Working:
    """Counts requests in work. Belongs to the event loop."""

    def __init__(self) -> None:
        """Begins empty."""
        self._others, self._large = Shares(MAX_WORKING_BYTES, SHARE), Shares(MAX_LARGE_WORKING_BYTES)
        self._large_reads = Shares(MAX_LARGE_READS)
        text = "the server has too many large requests in work"
        self._waiting = SharedBytes("MAX_WAITING_REQUESTS_BYTES", MAX_WAITING_REQUESTS_BYTES, text)

    @property
    def held_bytes(self) -> int:
        """Memory of all requests in work."""
        return self._others.held_bytes + self._large.held_bytes

    @contextlib.asynccontextmanager
    async def room(self, client: Client, size: int, *, only_reads: bool = False) -> AsyncIterator[Finish]:
        """Has room for a request of so many bytes; waits for it.

        Safe to cancel. What its body does by the yielded `Finish` is done to its end, and the room is kept until then.

        Args:
            client: Whose request it is.
            size: Of the request.
            only_reads: What it asks for ends when it is cancelled, so it is not done to its end.

        Raises:
            TooManyCalls: too much waits.
        """
        if size < COUNTED_BYTES:
            yield _directly
            return
        owner = f"{network_of_peer(client.connection)} {client.tenant}"
        room = self._large if size > LARGE_BYTES else self._others
        wanted = [(room, min(size * MEMORY_OF_BYTE, room.max_bytes))]
        if only_reads and room is self._large:
            wanted.insert(0, (self._large_reads, 1))
        with contextlib.ExitStack() as held:
            for one, amount in wanted:
                if not one.has_room(owner, amount):
                    async with self._waiting.part(owner) as waiting:
                        waiting.grow(size)
                        await one.take(owner, amount)
                held.callback(one.give_back, owner, amount)
            yield _directly if only_reads else certain


def _directly(work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    return work()


async def certain(work: Callable[[], Awaitable[T]]) -> T:
    """Returns what the work returns. When this is cancelled, the work goes on, and this ends when it has ended.

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
        return task.result()
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it
    raise left
