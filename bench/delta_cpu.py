"""Processor time per delta of a provider."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc

from bench import report
from bench.child import ROOT, Child, can_read_usage, model_provider, turnwire
from bench.client import Client, connect
from bench.model_provider import model_name

PACED_PER_SECOND = 1_000
"""Slow enough that each delta is a network read of its own."""


async def measure(folder: Path, quick: bool) -> None:
    """Prints microseconds a delta: the adapter alone, then the whole server."""
    report.title(
        "delta_cpu",
        "processor time a delta; ceiling of the adapter: aiohttp reading the same body; ceiling of the server: the"
        " adapter alone",
    )
    rounds, flood, paced = (1, 20_000, 1_000) if quick else (3, 40_000, 5_000)
    async with model_provider(folder) as provider:
        toml = f'[providers.local]\nkind = "openai_chat"\nbase_url = "http://{provider.address}/v1"\n'
        async with turnwire(folder, toml) as server, connect(server.address) as client:
            await _deltas(client, 10, 0)
            for name, deltas, per_second in (
                ("50 deltas a read", flood, 0),
                ("one delta a read", paced, PACED_PER_SECOND),
            ):
                alone = [await _adapter(provider, deltas, per_second) for _ in range(rounds)]
                adapter = report.median(one for one, _ in alone)
                bare = report.median(one for _, one in alone)
                report.show([report.Figure(f"adapter alone, {name}", adapter, bare, "us", lower_is_better=True)])
                if not can_read_usage():
                    report.note("this system does not report what the server used")
                    continue
                for watchers in (0, 1):
                    figures = [await _server(server, client, deltas, per_second, watchers) for _ in range(rounds)]
                    label = f"server, {name}, {watchers} watcher{'s' * (watchers != 1)}"
                    value = report.median(figures)
                    report.show([report.Figure(label, value, adapter, "us", lower_is_better=True)])


async def _adapter(provider: Child, deltas: int, per_second: int) -> tuple[float, float]:
    arguments = (provider.address, model_name(deltas, per_second), str(deltas))
    command = [sys.executable, "-m", "bench.adapter_cpu", *arguments]
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    adapter, bare = map(float, done.stdout.split())
    return adapter, bare


async def _server(server: Child, client: Client, deltas: int, per_second: int, watchers: int) -> float:
    before = server.cpu_seconds()
    await _deltas(client, deltas, per_second, watchers)
    return (server.cpu_seconds() - before) / deltas * 1e6


async def _deltas(client: Client, deltas: int, per_second: int, watchers: int = 0) -> None:
    """Makes a provider stream this many deltas and returns when the turn has ended."""
    session_id = await client.create_session()
    streams = [await client.watch(session_id) for _ in range(watchers)]
    readings = [asyncio.create_task(_read_all(stream)) for stream in streams]
    await client.send(session_id, "go", f"local/{model_name(deltas, per_second)}")
    while await client.is_running(session_id):
        await asyncio.sleep(0.05)
    for stream, reading in zip(streams, readings, strict=True):
        stream.cancel()
        await asyncio.wait([reading])


async def _read_all(stream: Any) -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass
