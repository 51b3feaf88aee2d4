"""`python -m bench.attacks [NAME...]`: runs attacks beside a neighbour. Exits 1 when a promise is broken."""

import argparse
import asyncio
import re
import shutil
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from bench import report
from bench.attacks.attack import Attack, Target
from bench.attacks.attacker import FAILED, Attacker, attacker
from bench.attacks.table import ATTACKS
from bench.child import Child, model_provider, turnwire
from bench.loop import run
from bench.neighbour import Felt, Neighbour, neighbour

MAX_MIB = 1024.0
"""`limits.max_memory_bytes` by default."""

_TOML = '[web]\nlisten = "127.0.0.1:0"\n[providers.beside]\nkind = "openai_chat"\nbase_url = "http://{}/v1"\n'
_WEB_PREFIX = "console and calls over HTTP on http://"
_PEAK = re.compile(r"VmHWM:\s+(\d+) kB")


class _Row(NamedTuple):
    """Outcome of one attack."""

    attack: Attack
    felt: Felt
    peak_mib: float
    limits: set[str]

    def broken(self) -> list[str]:
        """Returns the promises that were broken, for people.

        Calls that gRPC ended itself are not among them: see "Left to gRPC and to a proxy" in docs/operate/overload.md.
        """
        failed = {text: count for text, count in self.felt.failures.items() if not text.startswith("CANCELLED")}
        told = [f"{count} times the neighbour read {text}" for text, count in failed.items()]
        if not self.felt.reads:
            told.append("the neighbour got no answer")
        if FAILED in self.limits:
            told.append("the attack could not be carried out")
        if self.peak_mib > MAX_MIB:
            told.append(f"more memory than {MAX_MIB:.0f} MiB")
        if self.attack.limits and self.limits.isdisjoint(self.attack.limits):
            wanted, named = (", ".join(sorted(names)) or "nothing" for names in (self.attack.limits, self.limits))
            told.append(f"no refusal named {wanted}, but {named}")
        return told


class _Scene(NamedTuple):
    """A server of its own for one attack, with its neighbour."""

    attack: Attack
    server: Child
    attacker: Attacker
    neighbour: Neighbour
    stack: AsyncExitStack
    """Ends all of it."""


async def _scene(attack: Attack, folder: Path, beside: Child, scenes: AsyncExitStack) -> _Scene:
    """Starts what an attack needs, in a new folder. What is still open then ends with `scenes`."""
    folder.mkdir()
    prepared_folder = folder / "prepared"
    prepared_folder.mkdir()
    prepared = attack.prepare(prepared_folder)
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        server = await stack.enter_async_context(turnwire(folder, _TOML.format(beside.address) + prepared.toml))
        target = Target(server.address, _web_address(server), prepared_folder)
        hostile = await stack.enter_async_context(attacker(target))
        other = await stack.enter_async_context(neighbour(server, "beside", prepared.token))
        started = _Scene(attack, server, hostile, other, stack.pop_all())
        scenes.push_async_callback(started.stack.aclose)
        return started


def _show(row: _Row) -> None:
    reads = row.felt.reads or [float("inf")]
    limits = f"  refused by {', '.join(sorted(row.limits))}" if row.limits else ""
    print(
        f"  {row.attack.name:<20} peak {row.peak_mib:5.0f} MiB  neighbour p50 {report.percentile(reads, 50):7.1f} ms"
        f"  p99 {report.percentile(reads, 99):7.1f} ms  failed {sum(row.felt.failures.values())}{limits}",
        flush=True,
    )
    for told in row.broken():
        print(f"    BROKEN: {told}", flush=True)


def _web_address(server: Child) -> str:
    lines = server.log.read_text(errors="replace").splitlines()
    return next(line.removeprefix(_WEB_PREFIX) for line in lines if line.startswith(_WEB_PREFIX)).strip("/ ")


def _peak_mib(server: Child) -> float:
    found = _PEAK.search(Path(f"/proc/{server.pid}/status").read_text())
    if found is None:
        raise RuntimeError("the server has ended")
    return int(found[1]) / 1024


async def _run(names: list[str]) -> list[_Row]:
    """Runs attacks one after the other. What the next one needs starts while the one before it ends."""
    rows = list[_Row]()
    with tempfile.TemporaryDirectory(prefix="turnwire-attacks-") as folder:
        async with model_provider(Path(folder)) as beside, AsyncExitStack() as scenes, asyncio.TaskGroup() as group:
            coming = list(enumerate(names))

            def start() -> asyncio.Task[_Scene]:
                number, name = coming.pop(0)
                return group.create_task(_scene(ATTACKS[name], Path(folder) / f"{number}", beside, scenes))

            starting = start()
            while len(rows) < len(names):
                scene = await starting
                async with scene.stack:
                    await scene.neighbour.begin()
                    limits = await scene.attacker.attack(scene.attack)
                    if coming:
                        starting = start()
                    felt = await scene.neighbour.felt()
                    rows.append(_Row(scene.attack, felt, _peak_mib(scene.server), limits))
                _show(rows[-1])
    return rows


def main() -> int:
    """Runs the attacks. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.attacks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ATTACKS)}; all by default")
    names = parser.parse_args().names or list(ATTACKS)
    if unknown := set(names) - set(ATTACKS):
        parser.error(f"unknown attack {', '.join(sorted(unknown))}")
    rows = run(_run(names))
    broken = [row for row in rows if row.broken()]
    print(f"{len(rows) - len(broken)} of {len(rows)} attacks broke no promise.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
