"""The frame of hostile servers: listens, tells where, and ends at once when told to."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

from bench.child import ANNOUNCEMENT

BACKLOG = 4096
"""Connections that wait to be taken: the measured server opens thousands in one moment."""


async def listen(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
    """Serves connections on a free port of 127.0.0.1 until SIGTERM, which ends the process. Prints its address."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=BACKLOG)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"{ANNOUNCEMENT}http://{host}:{port}", flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    os._exit(0)  # connections may be in the middle of a flood
