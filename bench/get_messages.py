"""Reads of a whole conversation per second."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import report
from bench.bare_server import Method
from bench.child import bare_server, turnwire
from bench.client import Client, connect

MESSAGES = 1_000
MESSAGE_BYTES = 1_024
TARGET = 0.5


async def measure(folder: Path, quick: bool) -> None:
    """Prints reads per second, by one caller and by eight."""
    report.title(
        "get_messages",
        f"GetMessages of {MESSAGES} messages of {MESSAGE_BYTES} bytes; ceiling: a bare grpc.aio handler that returns"
        " the same bytes",
    )
    rounds, calls = (3, 20) if quick else (7, 60)
    async with (
        turnwire(folder) as server,
        bare_server(folder) as bare,
        connect(server.address) as client,
        connect(bare.address) as bare_client,
    ):
        session_id = await client.create_session()
        await fill(client, session_id, MESSAGES)
        page = await client.messages(session_id)
        await bare_client.bare(Method.KEEP, page)
        report.note(f"  one answer: {len(page):,} bytes")
        bare_page = bare_client.bare_call(Method.PAGE)
        for callers in (1, 8):
            ours, ceilings = [], []
            for _ in range(rounds):
                ours.append(await rate(lambda: client.messages(session_id), callers, calls))
                ceilings.append(await rate(lambda: bare_page(b""), callers, calls))
            name = f"reads/s, {callers} caller{'s' * (callers > 1)}"
            report.show([report.Figure(name, report.median(ours), report.median(ceilings), "1/s", target=TARGET)])


async def fill(client: Client, session_id: str, messages: int) -> None:
    """Stores messages in a session."""
    text = "x" * MESSAGE_BYTES
    for _ in range(messages // 50):
        await asyncio.gather(*(client.append(session_id, text) for _ in range(50)))


async def rate(call: Callable[[], Awaitable[bytes]], callers: int, calls: int) -> float:
    """Returns the answers per second to this many concurrent callers."""

    async def repeat() -> None:
        for _ in range(calls // callers):
            await call()

    started = time.perf_counter()
    await asyncio.gather(*(repeat() for _ in range(callers)))
    return calls // callers * callers / (time.perf_counter() - started)
