"""Memory of an idle watcher."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench import report
from bench.bare_server import Method
from bench.child import Child, bare_server, can_read_usage, turnwire
from bench.client import connect

SETTLE_SECONDS = 0.5
"""Gives the last stream time to allocate its buffers."""


async def measure(folder: Path, quick: bool) -> None:
    """Prints KiB of the server's resident memory for each idle watcher."""
    watchers = 200 if quick else 900
    report.title(
        "watcher_memory",
        f"resident memory of the server for each of {watchers} idle watchers; ceiling: an idle stream of a bare"
        " grpc.aio server",
    )
    if not can_read_usage():
        report.note("this system does not report what the server used")
        return
    async with bare_server(folder) as bare, connect(bare.address) as client:
        await _grown(bare, lambda: client.bare_stream(Method.IDLE), 50)  # one-time costs of the first streams
        ceiling = await _grown(bare, lambda: client.bare_stream(Method.IDLE), watchers)
    for name, same in (("all on one session", True), ("each on its own session", False)):
        fresh = folder / name.replace(" ", "_")
        fresh.mkdir()
        async with (
            turnwire(fresh, "[limits]\nmax_streams_per_connection = 1000\n") as server,
            connect(server.address) as client,
        ):
            sessions = [await client.create_session() for _ in range(1 if same else watchers + 50)]
            turns = iter(sessions * (watchers + 50) if same else sessions)
            await _grown(server, lambda: client.watch(next(turns)), 50)  # noqa: B023 - used in this round only
            value = await _grown(server, lambda: client.watch(next(turns)), watchers)  # noqa: B023
            report.show([report.Figure(f"KiB, {name}", value, ceiling, "KiB", lower_is_better=True)])


async def _grown(server: Child, open_stream: Callable[[], Awaitable[Any]], count: int) -> float:
    """Opens streams and leaves them open. Returns the server's growth in KiB per stream."""
    before = server.resident_bytes()
    _open.extend([await open_stream() for _ in range(count)])
    await asyncio.sleep(SETTLE_SECONDS)
    return (server.resident_bytes() - before) / 1024 / count


_open: list[Any] = []
"""Keeps the calls referenced, because an unreferenced call is cancelled."""
