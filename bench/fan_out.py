"""Events per second to many watchers of one session."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import grpc

from bench import report
from bench.bare_server import Method
from bench.child import bare_server, turnwire
from bench.client import Client, connect

WATCHERS = 100
TARGET = 0.7

WORD = " delta"
"""Text of each delta: about the size of a token."""

_DELTA = b'"\x06 delta'
"""Field `text` of a PartDelta with this word; no whole text contains these bytes."""

_IDLE = b"b\x02\x08\x01"
"""The event session_status_changed {status: SESSION_STATUS_IDLE}, the last one of an answer."""


async def measure(folder: Path, quick: bool) -> None:
    """Prints events per second, over all watchers."""
    report.title(
        "fan_out",
        f"one answer without pauses to {WATCHERS} watchers; ceiling: a bare grpc.aio server that writes the same number"
        " of events in batches of the same size",
    )
    rounds, deltas = (2, 5_000) if quick else (5, 10_000)
    ours, ceilings, sizes, events_each = [], [], [], []
    async with (
        turnwire(folder) as server,
        bare_server(folder) as bare,
        connect(server.address) as client,
        connect(bare.address) as bare_client,
    ):
        await _through_turnwire(client, 200)
        for _ in range(rounds):
            one = await _through_turnwire(client, deltas)
            ours.append(one.events / one.seconds)
            sizes.append(one.bytes / one.writes)
            events_each.append(one.events / one.writes)
            if one.events < deltas * WATCHERS:
                report.note(f"{deltas * WATCHERS - one.events} events arrived as snapshots: watchers fell behind")
            bare_run = await _through_bare(bare_client, one)
            ceilings.append(one.events / bare_run.seconds)
    name = f"events/s to {WATCHERS} watchers"
    report.show([report.Figure(name, report.median(ours), report.median(ceilings), "1/s", target=TARGET)])
    report.note(f"  events in a write: {report.median(events_each):.1f}, {report.median(sizes):,.0f} bytes")


class _Run:
    """Counts of one run, over all watchers."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.events = 0
        self.bytes = 0
        self.writes = 0

    async def read(self, stream: Any) -> None:
        """Counts the events of a stream until the session is idle or the stream ends."""
        while (batch := await stream.read()) is not grpc.aio.EOF:
            self.events += batch.count(_DELTA)
            self.bytes += len(batch)
            self.writes += 1
            if _IDLE in batch:
                return


async def _through_turnwire(client: Client, deltas: int) -> _Run:
    session_id = await client.create_session()
    streams = [await client.watch(session_id) for _ in range(WATCHERS)]
    run = _Run()
    readings = [asyncio.create_task(run.read(stream)) for stream in streams]
    started = time.perf_counter()
    await client.send(session_id, "first" + WORD * deltas)
    await asyncio.gather(*readings)
    run.seconds = time.perf_counter() - started
    for stream in streams:
        stream.cancel()
    return run


async def _through_bare(client: Client, like: _Run) -> _Run:
    size = like.bytes // like.writes
    await client.bare(Method.KEEP, bytes(size))
    request = json.dumps({"streams": WATCHERS, "writes": like.writes // WATCHERS}).encode()
    run = _Run()
    streams = [await client.bare_stream(Method.FAN_OUT, request) for _ in range(WATCHERS - 1)]
    readings = [asyncio.create_task(run.read(stream)) for stream in streams]
    started = time.perf_counter()
    streams.append(await client.bare_stream(Method.FAN_OUT, request))
    await asyncio.gather(*readings, run.read(streams[-1]))
    run.seconds = time.perf_counter() - started
    return run
