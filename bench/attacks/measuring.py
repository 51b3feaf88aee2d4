"""Runs an attack beside a neighbour, and prints its row."""

import asyncio
import contextlib
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from bench import report
from bench.attacks.attack import TOKEN, Attack
from bench.attacks.table import ATTACKS
from bench.child import ROOT, Child, model_provider, turnwire
from bench.neighbour import Felt, Neighbour, neighbour

MAX_MIB, MAX_HOLD_MS = 1024.0, 50.0
"""What the server promises with default limits."""

ALONE_SECONDS = 3.0
QUICK_SECONDS = 4.0

_TOML = '[web]\nlisten = "127.0.0.1:0"\n[log]\nstuck_loop_seconds = 0.02\n'
_BESIDE = '[providers.beside]\nkind = "openai_chat"\nbase_url = "http://{}/v1"\n'
_WEB_PREFIX = "console and calls over HTTP on http://"
_TOLD_SECONDS = 1.1
"""The server writes of held loops once a second; what happened before the attack is told by then."""

_HELD = re.compile(r'event_loop_stuck milliseconds=(\d+) cpu_milliseconds=(\d+) times=\d+ where="([^"]*)"')


class _Row(NamedTuple):
    """What one attack did."""

    alone: Felt
    felt: Felt
    peak_mib: float
    hold_ms: float
    hold_cpu_ms: float
    """Of the loop's thread: others hold it up on a busy machine."""
    held_at: str
    """During that."""
    stop_seconds: float
    remarks: str


async def measure(folder: Path, quick: bool, name: str = "") -> None:
    """Prints a row for each attack, or for one."""
    report.title("attacks", "peak of the server, longest hold of its loop, neighbour's calls alone and beside; ms")
    for attack in [ATTACKS[name]] if name else ATTACKS.values():
        place = folder / attack.name
        place.mkdir()
        try:
            row = await _measured(attack, place, QUICK_SECONDS if quick else attack.seconds)
        except Exception as error:  # the others are still worth measuring
            report.note(f"{attack.name:<24} FAILED: {type(error).__name__}: {str(error)[-2000:]}")
            continue
        _show(attack, row)


async def _measured(attack: Attack, folder: Path, seconds: float) -> _Row:
    slow = folder / "beside"
    slow.mkdir()
    async with model_provider(slow) as beside, _around(attack, folder) as more:
        toml = _TOML + _BESIDE.format(beside.address) + attack.toml + more
        running = turnwire(folder, toml)
        server = await running.__aenter__()
        try:
            token = folder / "around" / TOKEN
            async with neighbour(server, "beside", token.read_text() if token.exists() else "") as other:
                alone = await _alone(other)
                before = len(server.log.read_text(errors="replace"))
                await other.begin()
                remarks = await _attacked(attack, server, folder, seconds)
                felt, peak = await other.felt(), _peak_mib(server)
        finally:
            begun = time.monotonic()
            await running.__aexit__(None, None, None)
    stopped = time.monotonic() - begun
    held = _HELD.findall(server.log.read_text(errors="replace")[before:])
    wall = max((int(wall) for wall, _, _ in held), default=0)
    _, cpu, where = max(held, key=lambda one: int(one[1]), default=("0", "0", ""))
    return _Row(alone, felt, peak, float(wall), float(cpu), where, stopped, remarks)


@contextlib.asynccontextmanager
async def _around(attack: Attack, folder: Path) -> AsyncIterator[str]:
    if attack.around is None:
        yield ""
        return
    place = folder / "around"
    place.mkdir()
    async with attack.around(place) as toml:
        yield toml


async def _alone(other: Neighbour) -> Felt:
    await other.begin()
    await asyncio.sleep(ALONE_SECONDS)
    felt = await other.felt()
    await asyncio.sleep(_TOLD_SECONDS)
    return felt


async def _attacked(attack: Attack, server: Child, folder: Path, seconds: float) -> str:
    """Runs the attack to its end. Returns what it printed."""
    where = (server.address, _web_address(server), str(server.pid), str(folder), str(seconds))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.attacks", attack.name, *where),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(seconds + 20):
            told, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        told, _ = await process.communicate()
    return told.decode(errors="replace")[-2000:]


def _web_address(server: Child) -> str:
    lines = server.log.read_text(errors="replace").splitlines()
    return next(line.removeprefix(_WEB_PREFIX) for line in lines if line.startswith(_WEB_PREFIX)).strip("/ ")


def _peak_mib(server: Child) -> float:
    try:
        status = Path(f"/proc/{server.pid}/status").read_text()
    except FileNotFoundError:
        raise RuntimeError("the server has ended") from None
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    if found is None:
        raise RuntimeError("the server has ended")
    return int(found[1]) / 1024


def _show(attack: Attack, row: _Row) -> None:
    reads = [report.percentile(felt.reads, p) if felt.reads else float("inf") for felt in row[:2] for p in (50, 99)]
    gaps = [felt.longest_gap() for felt in row[:2]]
    figures = [
        report.Figure(f"{attack.name}: peak", row.peak_mib, None, "MiB", True, wanted=MAX_MIB),
        report.Figure(f"{attack.name}: longest hold", row.hold_ms, None, "ms", True, wanted=MAX_HOLD_MS),
        report.Figure(f"{attack.name}: of the processor", row.hold_cpu_ms, None, "ms", True),
        report.Figure(f"{attack.name}: neighbour's GetSession p50", reads[2], reads[0], "ms", True),
        report.Figure(f"{attack.name}: neighbour's GetSession p99", reads[3], reads[1], "ms", True),
        report.Figure(f"{attack.name}: stop", row.stop_seconds, None, "s", True, wanted=10.0),
    ]
    short = "  SHORT" if any(figure.falls_short for figure in figures) else ""
    failed = sum(row.felt.failures.values())
    report.row(
        f"{attack.name:<24} peak {row.peak_mib:6.0f} MiB  hold {row.hold_ms:4.0f} (cpu {row.hold_cpu_ms:3.0f})  "
        f"GetSession p50/p99 {reads[0]:.1f}/{reads[1]:.1f} -> {reads[2]:.1f}/{reads[3]:.1f}  "
        f"gap {gaps[0]:.0f} -> {gaps[1]:.0f}  failed {failed}  stop {row.stop_seconds:.1f} s{short}",
        figures,
    )
    if row.hold_ms > MAX_HOLD_MS:
        report.note(f"    held at {row.held_at}")
    for text, count in row.felt.failures.items():
        report.note(f"    {count} times the neighbour read {text}")
    for line in filter(None, row.remarks.splitlines()):
        report.note(f"    {line}")
