"""Shows that the model of delivery notices faults: each is planted in a copy of the server, which the model then runs.

    python -m tests.support.delivery.planted [NAME…] [--seconds 120]

Prints a line for each fault, and exits 1 when one was not noticed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]


class Fault(NamedTuple):
    """A change of one place, which must be there once."""

    module: str
    right: str
    wrong: str


FAULTS = {
    "an event in twenty is not told": Fault(
        "feed/memory.py",
        "            if ring is not None:\n                self._append(ring, Entry(event, frame, event.sequence))",
        "            if ring is not None and event.sequence % 20:\n"
        "                self._append(ring, Entry(event, frame, event.sequence))",
    ),
    "a request counts twice": Fault(
        "core/intake/requests.py",
        "return await self._first_receipt(principal, new) or await carry_out()",
        "return await carry_out()",
    ),
    "a retry does not wait for the first attempt": Fault(
        "core/intake/requests.py", "while name in self._claimed:", "while False:"
    ),
    "a token leads one event too far": Fault(
        "core/watches/resume_tokens.py",
        "return TokenPlace(order,",
        "return TokenPlace(order + 1 if order > 9 else order,",
    ),
    "a restored backup goes unnoticed": Fault(
        "storage/sql/timelines.py",
        "return Standing.PAST if moment.position <= end else Standing.REPLACED",
        "return Standing.PAST",
    ),
    "waiting messages are lost at a start": Fault(
        "core/turns/registry.py", "if entry.turn_id in waiting", "if entry.turn_id in waiting and False"
    ),
    "a call takes two results": Fault(
        "core/tools/open_calls.py",
        "if call.status.settled or call.name not in self.client_tools:",
        "if call.name not in self.client_tools:",
    ),
}
"""By what goes wrong."""


def plant(fault: Fault, folder: Path) -> Path:
    """Copies the server and plants a fault. Returns the folder to import it from.

    Raises:
        ValueError: the place is not there once.
    """
    copy = folder / "server"
    shutil.copytree(ROOT / "server", copy, ignore=shutil.ignore_patterns("__pycache__"))
    module = copy / "turnwire" / fault.module
    text = module.read_text()
    if text.count(fault.right) != 1:
        raise ValueError(f"{fault.module} does not have {fault.right!r} once")
    module.write_text(text.replace(fault.right, fault.wrong))
    return copy


def main() -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.delivery.planted", description=__doc__)
    parser.add_argument("names", nargs="*", help="faults; all without one")
    parser.add_argument("--seconds", type=int, default=120, help="for each fault, if it is not noticed before")
    options = parser.parse_args()
    overlooked = [name for name in options.names or FAULTS if not _is_noticed(name, options.seconds)]
    return 1 if overlooked else 0


def _is_noticed(name: str, seconds: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        server = plant(FAULTS[name], Path(folder))
        environ = {**os.environ, "PYTHONPATH": str(server), "TURNWIRE_MODEL_SECONDS": str(seconds)}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/fault/test_delivery.py"]
        started = time.monotonic()
        ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        why = [line.removeprefix("E   ") for line in ended.stdout.splitlines() if line.startswith("E   ")]
    found = f"noticed: {why[0] if why else ''}" if ended.returncode else "NOT NOTICED"
    print(f"{name}: {time.monotonic() - started:.0f} s, {found:.200}", flush=True)
    return ended.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
