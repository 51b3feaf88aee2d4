"""`python -m bench [NAME...] [--quick] [--save FILE]`."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from bench import (
    client_fold,
    crowd,
    delta_cpu,
    delta_latency,
    endurance,
    fan_out,
    file_size,
    first_token,
    first_use,
    flood,
    gate,
    get_messages,
    growth,
    long_reads,
    long_session,
    nodes,
    postgres,
    report,
    search,
    send_message,
    sign_in,
    start,
    transfer,
    watcher_memory,
    web,
)
from bench.loop import run

MEASUREMENTS: Mapping[str, Callable[[Path, bool], Awaitable[None]]] = {
    "client_fold": client_fold.measure,
    "latency": delta_latency.measure,
    "first_token": first_token.measure,
    "first_use": first_use.measure,
    "flood": flood.measure,
    "crowd": crowd.measure,
    "long_reads": long_reads.measure,
    "fan_out": fan_out.measure,
    "file_size": file_size.measure,
    "gate": gate.measure,
    "get_messages": get_messages.measure,
    "growth": growth.measure,
    "send_message": send_message.measure,
    "delta_cpu": delta_cpu.measure,
    "sign_in": sign_in.measure,
    "long_session": long_session.measure,
    "postgres": postgres.measure,
    "search": search.measure,
    "start": start.measure,
    "transfer": transfer.measure,
    "watcher_memory": watcher_memory.measure,
    "web": web.measure,
}
"""By name: each takes an empty folder and whether to be quick, and prints its figures."""

LONG: Mapping[str, Callable[[Path, bool], Awaitable[None]]] = {
    "endurance": endurance.measure,
    "nodes": nodes.measure,
}
"""Measured only when they are named."""

TIMEOUT_SECONDS = 300.0
"""For one measurement, so that a stuck one does not block the others."""
LONG_TIMEOUT_SECONDS = 7_200.0


def main() -> int:
    """Runs the measurements. Returns the exit code: 1 when one of them failed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(MEASUREMENTS)}; all by default. Only when named: {', '.join(LONG)}",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: shorter and noisier")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the figures as JSON")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in {**MEASUREMENTS, **LONG}]
    if unknown:
        parser.error(f"unknown measurement {', '.join(unknown)}; must be one of {', '.join((*MEASUREMENTS, *LONG))}")
    print("Ratios compare with the ceiling: 1.00 is as good, whichever way the unit counts. Medians of all rounds.")
    failed = run(_run(arguments.names or list(MEASUREMENTS), arguments.quick))
    report.summarize()
    if arguments.save:
        report.save(arguments.save)
    return failed


async def _run(names: list[str], quick: bool) -> int:
    failed = 0
    for name in names:
        with tempfile.TemporaryDirectory(prefix="turnwire-bench-") as folder:
            try:
                async with asyncio.timeout(LONG_TIMEOUT_SECONDS if name in LONG else TIMEOUT_SECONDS):
                    await {**MEASUREMENTS, **LONG}[name](Path(folder), quick)
            except Exception as error:  # the others are still worth measuring
                failed = 1
                report.note(f"{name} could not be measured: {type(error).__name__}: {error}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
