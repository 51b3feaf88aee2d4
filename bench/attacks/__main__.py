"""`python -m bench.attacks [NAME...]`: runs attacks beside a neighbour. Exits 1 when a promise is broken."""

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench import report
from bench.attacks import flooding
from bench.attacks.attack import Attack, Target
from bench.attacks.attacker import FAILED, attacker
from bench.attacks.table import ATTACKS
from bench.child import Child, model_provider, running, turnwire
from bench.loop import run
from bench.neighbour import Felt, neighbour

MAX_MIB = 1024.0
"""`limits.max_memory_bytes` by default."""

_TOML = '[web]\nlisten = "127.0.0.1:0"\n[providers.beside]\nkind = "openai_chat"\nbase_url = "http://{}/v1"\n'
_WEB_PREFIX = "console and calls over HTTP on http://"
_PEAK = re.compile(r"VmHWM:\s+(\d+) kB")


class _Row(NamedTuple):
    """What one attack did."""

    attack: Attack
    felt: Felt
    peak_mib: float
    limits: set[str]

    def broken(self) -> list[str]:
        """Returns the promises that were broken, for people.

        Calls that gRPC ended itself are not among them: see "Left to gRPC and to a proxy" in docs/overload.md.
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


async def _measured(attack: Attack, folder: Path, beside: Child, wild: Child) -> _Row:
    """Runs one attack on a server of its own."""
    prepared_folder = folder / "prepared"
    prepared_folder.mkdir()
    prepared = attack.prepare(prepared_folder)
    toml = _TOML.format(beside.address) + flooding.configuration(wild.address) + prepared.toml
    async with turnwire(folder, toml) as server:
        target = Target(server.address, _web_address(server), prepared_folder)
        async with attacker(target) as hostile, neighbour(server, "beside", prepared.token) as other:
            await other.begin()
            limits = await hostile.attack(attack)
            return _Row(attack, await other.felt(), _peak_mib(server), limits)


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
    rows = list[_Row]()
    with tempfile.TemporaryDirectory(prefix="turnwire-attacks-") as folder:
        others = running(Path(folder), "flooding", ["-m", "bench.attacks.flooding"])
        async with model_provider(Path(folder)) as beside, others as wild:
            for name in names:
                place = Path(folder) / name
                place.mkdir()
                row = await _measured(ATTACKS[name], place, beside, wild)
                _show(row)
                rows.append(row)
                shutil.rmtree(place)
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
