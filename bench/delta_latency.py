"""Time from the provider's socket to the watcher, per delta."""

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import grpc

from bench import report
from bench.bare_server import Method
from bench.child import Child, bare_server, model_provider, turnwire
from bench.client import Client, connect
from bench.model_provider import model_name

PER_SECOND = 50
"""Deltas per second: the pace of a fast model, far below what any of the servers can carry."""

_MOMENT = re.compile(rb"@(\d+)@")


async def measure(folder: Path, quick: bool) -> None:
    """Prints p50 and p99 with 1 and with 100 watchers."""
    report.title(
        "latency",
        f"provider's socket to watcher, {PER_SECOND} deltas/s; ceiling: the same bytes through a bare grpc.aio stream",
    )
    rounds, deltas = (1, 100) if quick else (3, 250)
    async with model_provider(folder) as provider:
        toml = f'[providers.local]\nkind = "openai_chat"\nbase_url = "http://{provider.address}/v1"\n'
        async with (
            turnwire(folder, toml) as server,
            bare_server(folder) as bare,
            connect(server.address) as client,
            connect(bare.address) as bare_client,
        ):
            await _through_turnwire(client, 1, 20)  # imports the SDK, opens the connections
            await _through_bare(bare_client, provider, 1, 20)
            for watchers in (1, 100):
                ours, ceilings = [], []
                for _ in range(rounds):
                    ours.append(await _through_turnwire(client, watchers, deltas))
                    ceilings.append(await _through_bare(bare_client, provider, watchers, deltas))
                _show(watchers, ours, ceilings)


def _show(watchers: int, ours: list[list[float]], ceilings: list[list[float]]) -> None:
    for percent in (50, 99):
        value = report.median(report.percentile(one, percent) for one in ours)
        ceiling = report.median(report.percentile(one, percent) for one in ceilings)
        name = f"{watchers} watcher{'s' * (watchers > 1)}, p{percent}"
        report.show([report.Figure(name, value, ceiling, "ms", lower_is_better=True)])
        report.note(f"  added by Turnwire: {value - ceiling:.2f} ms")


async def _through_turnwire(client: Client, watchers: int, deltas: int) -> list[float]:
    session_id = await client.create_session()
    streams = [await client.watch(session_id) for _ in range(watchers)]
    readings = [asyncio.create_task(read_latencies(stream, deltas)) for stream in streams]
    await client.send(session_id, "go", f"local/{model_name(deltas, PER_SECOND)}")
    return await _all(readings, streams)


async def _through_bare(client: Client, provider: Child, watchers: int, deltas: int) -> list[float]:
    url = f"http://{provider.address}/v1/chat/completions"
    request = {"streams": watchers, "url": url, "model": model_name(deltas, PER_SECOND)}
    streams = [await client.bare_stream(Method.RELAY, json.dumps(request).encode()) for _ in range(watchers)]
    return await _all([asyncio.create_task(read_latencies(stream, deltas)) for stream in streams], streams)


async def _all(readings: list["asyncio.Task[list[float]]"], streams: list[Any]) -> list[float]:
    latencies = [one for reading in await asyncio.gather(*readings) for one in reading]
    for stream in streams:
        stream.cancel()
    return latencies


async def read_latencies(stream: Any, deltas: int) -> list[float]:
    """Reads until all deltas have arrived; returns the latency of each in milliseconds."""
    found: list[float] = []
    newest = 0
    while len(found) < deltas:
        batch = await stream.read()
        now = time.monotonic_ns()
        if batch is grpc.aio.EOF:
            raise RuntimeError(f"the stream ended after {len(found)} of {deltas} deltas")
        newest = moments(batch, now, newest, found)
    return found


def moments(batch: bytes, now: int, newest: int, found: list[float]) -> int:
    """Adds the latency of each new delta in some bytes, in milliseconds. Returns the moment of the newest one."""
    for digits in _MOMENT.findall(batch):
        moment = int(digits)
        if moment > newest:  # the end of a part repeats its whole text
            newest = moment
            found.append((now - moment) / 1e6)
    return newest
