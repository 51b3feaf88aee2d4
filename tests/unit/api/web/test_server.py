"""The end of the web listener."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from datetime import timedelta
from typing import cast

from turnwire.api.web.http.limits import Connection, Connections
from turnwire.api.web.server import WebServer, WebSettings

MANY = 500
"""Connections, and requests that do not end by themselves."""


class Ended:
    """A connection and its transport, which count what is asked of them."""

    count = 0
    """Of all."""

    def shutdown(self) -> None:
        """Is counted."""
        Ended.count += 1

    def abort(self) -> None:
        """Is counted."""
        Ended.count += 1

    def get_extra_info(self, _name: str) -> None:
        """Knows nothing."""


async def most_in_a_round(ending: asyncio.Task[None], count: Callable[[], int]) -> int:
    """Returns how much the count grows at most between two rounds of the loop, until a task has ended."""
    most, before = 0, count()
    while not ending.done():
        await asyncio.sleep(0)
        most, before = max(most, count() - before), count()
    await ending
    return most


async def test_connections_are_closed_a_few_at_a_time() -> None:
    """A stop closes thousands, and turns and other calls go on meanwhile."""
    connections = Connections(MANY)
    for _ in range(MANY):
        one = Ended()
        connections.add(cast(Connection, one), cast(asyncio.Transport, one))
    open_ones = len(connections)
    for close in (connections.shutdown, connections.abort):
        Ended.count = 0
        assert await most_in_a_round(asyncio.create_task(close()), lambda: Ended.count) <= MANY // 5
        assert Ended.count == open_ones
    late = Ended()
    assert not connections.add(cast(Connection, late), cast(asyncio.Transport, late))  # its handshake took so long
    assert not connections.begin_handshake(cast(ssl.SSLObject, late))


async def test_requests_are_cancelled_a_few_at_a_time() -> None:
    """Those that do not end within the grace period."""
    cancelled = 0

    async def request() -> None:
        nonlocal cancelled
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        cancelled += 1

    server = WebServer(WebSettings(1024, MANY))
    server._state.tasks |= {asyncio.create_task(request()) for _ in range(MANY)}
    await asyncio.sleep(0)
    assert await most_in_a_round(asyncio.create_task(server.stop(timedelta())), lambda: cancelled) <= MANY // 5
    assert cancelled == MANY
