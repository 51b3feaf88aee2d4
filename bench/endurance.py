"""Many turns at once for a long time: what each delta waits, and whether memory and file grow with more than the text.

Not part of the run without names, because it takes minutes: `python -m bench endurance`.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from bench import report
from bench.bare_server import Method
from bench.child import Child, bare_server, can_read_usage, many_streams, turnwire
from bench.client import Client, connect
from bench.model_provider import model_name

TURNS, PER_SECOND = 500, 50
SECONDS, QUICK_SECONDS, BARE_SECONDS = 600, 20, 20
PERIODS = 10
SENDS_AT_ONCE = 50
START_SECONDS = 60.0
"""For the start of all turns and the first deltas of each: their answers are longer by this."""
WARM_SECONDS = 5.0
"""Left out at the beginning: all sessions start at once."""
WANTED_P99_MS = 1_000.0
"""A person does not notice less. Deltas come together when the machine is full, so waiting has to stay short."""
TEXT_OF_A_DELTA = 21
"""Bytes: the moment that a delta carries."""

_MOMENT = re.compile(rb"@(\d+)@")


@dataclass
class Seen:
    """Observations of the watchers in one period."""

    milliseconds: list[float] = field(default_factory=list)
    """From the provider's socket to the watcher, one for each delta."""
    batches: int = 0


class Watchers:
    """Reads streams for as long as it is open, and counts the deltas while it looks."""

    def __init__(self, streams: list[Any]) -> None:
        """Takes open calls, which it cancels at its end."""
        self._streams = streams
        self._seen: Seen | None = None

    async def __aenter__(self) -> "Watchers":
        self._tasks = [asyncio.create_task(self._read(stream)) for stream in self._streams]
        return self

    async def __aexit__(self, *_: object) -> None:
        for stream in self._streams:
            stream.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def look(self, seconds: float) -> list[Seen]:
        """Returns what came in each of the periods that the time consists of."""
        periods = []
        for _ in range(PERIODS):
            self._seen = Seen()
            periods.append(self._seen)
            await asyncio.sleep(seconds / PERIODS)
        self._seen = None
        return periods

    async def _read(self, stream: Any) -> None:
        newest = 0
        while (batch := await stream.read()) is not grpc.aio.EOF:
            now, seen = time.monotonic_ns(), self._seen
            moments = [moment for digits in _MOMENT.findall(batch) if (moment := int(digits)) > newest]
            newest = max(moments, default=newest)  # a snapshot repeats the text
            if seen is not None and moments:
                seen.batches += 1
                seen.milliseconds.extend((now - moment) / 1e6 for moment in moments)


async def measure(folder: Path, quick: bool) -> None:
    """Prints waiting times by period, processor time, memory and file."""
    seconds = QUICK_SECONDS if quick else SECONDS
    report.title(
        "endurance",
        f"{TURNS} turns of {PER_SECOND} deltas/s for {seconds} s, one watcher each; ceiling: as many streams through a"
        " bare relay",
    )
    async with many_streams(folder) as provider:
        bare = await _bare(folder, provider)
        toml = (
            f"[limits]\nmax_running_turns = {TURNS + 10}\nmax_streams_per_connection = 1000\n"
            f'[providers.local]\nkind = "openai_chat"\n'
            f'base_url = "http://{provider.address}/v1"\n'
        )
        async with turnwire(folder, toml) as server, connect(server.address) as client:
            async with _streams(client, seconds + START_SECONDS) as watchers:
                await asyncio.sleep(WARM_SECONDS)
                before = server.cpu_seconds(), server.resident_bytes()
                periods = await watchers.look(seconds)
                used = server.cpu_seconds() - before[0]
                grown = server.resident_bytes() - before[1]
            _show(periods, bare, used, grown, seconds)
            size = sum(path.stat().st_size for path in folder.glob("turnwire.db*"))
            report.show([report.Figure("database and log", size / 1e6, None, "MB")])


def _show(periods: list[Seen], bare: Seen, used: float, grown: int, seconds: float) -> None:
    everything = [one for period in periods for one in period.milliseconds]
    wanted = TURNS * PER_SECOND
    report.show([report.Figure("deltas delivered", len(everything) / seconds, wanted, "1/s", target=0.98)])
    for percent in (50, 99):
        ceiling = report.percentile(bare.milliseconds, percent)
        value = report.percentile(everything, percent)
        limit = WANTED_P99_MS if percent == 99 else None
        report.show([report.Figure(f"delta p{percent}", value, ceiling, "ms", True, wanted=limit)])
    report.show([report.Figure("longest", max(everything), max(bare.milliseconds), "ms", True)])
    for number, period in enumerate(periods, 1):
        if period.milliseconds:
            p99 = report.percentile(period.milliseconds, 99)
            report.show([report.Figure(f"  p99 in period {number} of {PERIODS}", p99, None, "ms", True)])
    together = len(everything) / max(1, sum(period.batches for period in periods))
    report.note(f"{together:.1f} deltas in a batch; {len(bare.milliseconds) / max(1, bare.batches):.1f} of the relay")
    if can_read_usage():
        report.show([report.Figure("CPU of the server a delta", used / len(everything) * 1e6, None, "us", True)])
        text = len(everything) * TEXT_OF_A_DELTA
        report.note(f"memory grew by {grown / 1e6:.1f} MB, for {text / 1e6:.1f} MB of text that is still being written")


async def _bare(folder: Path, provider: Child) -> Seen:
    request = {
        "streams": 1,
        "url": f"http://{provider.address}/v1/chat/completions",
        "model": model_name(10_000_000, PER_SECOND),
    }
    async with bare_server(folder) as server, connect(server.address) as client:
        streams = [await client.bare_stream(Method.RELAY, json.dumps(request).encode()) for _ in range(TURNS)]
        async with Watchers(streams) as watchers:
            await asyncio.sleep(WARM_SECONDS)
            periods = await watchers.look(BARE_SECONDS)
    return Seen([one for period in periods for one in period.milliseconds], sum(period.batches for period in periods))


@contextlib.asynccontextmanager
async def _streams(client: Client, seconds: float) -> AsyncIterator[Watchers]:
    model = f"local/{model_name(int(seconds * PER_SECOND), PER_SECOND)}"
    sessions = [await client.create_session() for _ in range(TURNS)]
    streams = [await client.watch(session_id) for session_id in sessions]
    async with Watchers(streams) as watchers:
        started = time.monotonic()
        slots = asyncio.Semaphore(SENDS_AT_ONCE)

        async def send(session_id: str) -> None:
            async with slots:
                await client.send(session_id, "go", model)

        await asyncio.gather(*(send(session_id) for session_id in sessions))
        report.note(f"all {TURNS} turns were accepted within {time.monotonic() - started:.1f} s")
        yield watchers
