"""Time that a start takes."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from bench import report
from bench.bare_server import Method
from bench.child import bare_server, turnwire
from bench.client import connect

WANTED_MS = 300.0


async def measure(folder: Path, quick: bool) -> None:
    """Prints the time from spawning the process to its address and to its first answer."""
    report.title(
        "start",
        "process spawned to address printed and to the first answered call, empty database; ceiling: a bare grpc.aio"
        " server",
    )
    rounds = 3 if quick else 7
    imports, ours, ceilings = [], [], []
    for number in range(rounds):
        imports.append(await _import_grpc())
        fresh = folder / str(number)
        fresh.mkdir()
        ours.append(await _start_turnwire(fresh))
        ceilings.append(await _start_bare(fresh))
    for index, (name, wanted) in enumerate((("to the address", None), ("to the first answer", WANTED_MS))):
        value = report.median(one[index] for one in ours)
        ceiling = report.median(one[index] for one in ceilings)
        report.show([report.Figure(name, value, ceiling, "ms", lower_is_better=True, wanted=wanted)])
    report.show([report.Figure("python -c 'import grpc'", report.median(imports), None, "ms")])


async def _import_grpc() -> float:
    started = time.perf_counter()
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", "import grpc"], check=True)
    return (time.perf_counter() - started) * 1000


async def _start_turnwire(folder: Path) -> tuple[float, float]:
    started = time.perf_counter()
    async with turnwire(folder) as server:
        listening = time.perf_counter()
        async with connect(server.address) as client:
            await client.create_session()
            answered = time.perf_counter()
    return (listening - started) * 1000, (answered - started) * 1000


async def _start_bare(folder: Path) -> tuple[float, float]:
    started = time.perf_counter()
    async with bare_server(folder) as server:
        listening = time.perf_counter()
        async with connect(server.address) as client:
            await client.bare(Method.PAGE)
            answered = time.perf_counter()
    return (listening - started) * 1000, (answered - started) * 1000
