"""The first message of a process, which needs the SDK of its provider."""

import asyncio
import contextlib
import time
from pathlib import Path

import grpc

from bench import report
from bench.child import model_provider, turnwire
from bench.client import Client, connect
from bench.model_provider import model_name

PING_SECONDS = 0.01
LATER_SECONDS = 4.0
"""By then all SDKs are imported, on an idle machine long before."""


async def measure(folder: Path, quick: bool) -> None:
    """Prints the first message right after the start and later, and what others wait while SDKs are imported."""
    report.title("first_use", "first message of a process with two providers of different SDKs, until its first word")
    rounds = 1 if quick else 3
    at_once, later, waits = [], [], []
    async with model_provider(folder) as model:
        toml = "".join(
            f'[providers.{kind}]\nkind = "{kind}"\nbase_url = "http://{model.address}/v1"\n'
            for kind in ("openai_chat", "anthropic")
        )
        for number in range(rounds):
            for seconds, found in ((0.0, at_once), (LATER_SECONDS, later)):
                fresh = folder / f"{number}-{seconds}"
                fresh.mkdir()
                async with turnwire(fresh, toml) as server, connect(server.address) as client:
                    pinging = asyncio.create_task(_ping(client, waits))
                    await asyncio.sleep(seconds)
                    found.append(await _first_word(client))
                    pinging.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await pinging
    report.show(
        [
            report.Figure("first message at once", report.median(at_once), None, "ms", lower_is_better=True),
            report.Figure("first message later", report.median(later), None, "ms", lower_is_better=True, wanted=150),
            report.Figure("GetSession meanwhile, p99", report.percentile(waits, 99), None, "ms", True, wanted=30),
            report.Figure("GetSession meanwhile, longest", max(waits), None, "ms", lower_is_better=True),
        ]
    )


async def _ping(client: Client, waits: list[float]) -> None:
    session_id = await client.create_session()
    while True:
        begun = time.perf_counter()
        await client.is_running(session_id)
        waits.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(PING_SECONDS)


async def _first_word(client: Client) -> float:
    session_id = await client.create_session()
    message_id = (await client.append(session_id, "go")).message_id
    begun = time.perf_counter()
    stream = await client.answer(session_id, message_id, f"openai_chat/{model_name(3)}")
    while b"@" not in (batch := await stream.read()):
        if batch is grpc.aio.EOF:
            raise RuntimeError("the stream ended before the first word")
    found = (time.perf_counter() - begun) * 1000
    stream.cancel()
    return found
