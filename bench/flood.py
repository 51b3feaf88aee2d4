"""The wait of others while one provider sends as fast as it can."""

import asyncio
import time
from pathlib import Path

import grpc

from bench import report
from bench.child import Child, can_read_usage, model_provider, turnwire
from bench.client import Client, connect
from bench.model_provider import model_name
from bench.neighbour import figures, neighbour

WATCHERS = 2
"""One that reads everything, one that reads nothing: it falls behind and is told so."""


async def measure(folder: Path, quick: bool) -> None:
    """Prints what a neighbour feels beside a flood, and how quick the flood is."""
    deltas = 60_000 if quick else 200_000
    report.title(
        "flood", f"{deltas:,} deltas of one provider at once; ceiling: the same neighbour with nothing beside it"
    )
    slow, fast = folder / "slow", folder / "fast"
    slow.mkdir()
    fast.mkdir()
    async with model_provider(slow) as beside, model_provider(fast) as flooding:
        toml = "".join(
            f'[providers.{name}]\nkind = "openai_chat"\nbase_url = "http://{one.address}/v1"\n'
            for name, one in (("beside", beside), ("fast", flooding))
        )
        async with (
            turnwire(folder, toml) as server,
            connect(server.address) as client,
            neighbour(server, "beside") as other,
        ):
            await _flood(server, client, 1_000)
            await other.begin()
            await asyncio.sleep(3)
            alone = await other.felt()
            await other.begin()
            per_second, cpu = await _flood(server, client, deltas)
            felt = await other.felt()
            report.show(figures("flood", felt, alone, delta_p50=5, delta_p99=20, read_p99=30))
            report.show([report.Figure("the flood itself", per_second, None, "deltas/s")])
            if can_read_usage():
                report.show([report.Figure("CPU of the server a delta", cpu, None, "us", lower_is_better=True)])


async def _flood(server: Child, client: Client, deltas: int) -> tuple[float, float]:
    """Returns deltas a second, and microseconds of the server a delta."""
    session_id = await client.create_session()
    streams = [await client.watch(session_id) for _ in range(WATCHERS)]
    reading = asyncio.create_task(_read_all(streams[0]))
    cpu, begun = server.cpu_seconds(), time.perf_counter()
    await client.send(session_id, "go", f"fast/{model_name(deltas)}")
    while await client.is_running(session_id):
        await asyncio.sleep(0.02)
    seconds, cpu = time.perf_counter() - begun, server.cpu_seconds() - cpu
    for stream in streams:
        stream.cancel()
    await asyncio.wait([reading])
    return deltas / seconds, cpu / deltas * 1e6


async def _read_all(stream: "grpc.aio.UnaryStreamCall[bytes, bytes]") -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass
