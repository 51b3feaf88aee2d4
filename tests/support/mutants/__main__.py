"""Draws mutants, tries them and tells which ones no test notices.

    python -m tests.support.mutants --seed 7 --count 200 [--suites unit,contract] [--seconds 40] [--rooms core/turns]

Results are kept in `build/mutants/SEED/session.sqlite`, a session of cosmic-ray: the same command goes on with it. Who
survived meets more tests with more suites, or with more seconds.
Exits 1 when a mutant survived.
"""

import argparse
import collections
import difflib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult

from tests.support.mutants.covering import SUITES, Covering
from tests.support.mutants.kinds import KINDS, mutated
from tests.support.mutants.sample import ROOMS, drawn
from tests.support.mutants.trial import Outcome, import_foreign, python_path, tried

ROOT = Path(__file__).parents[3]

KILLED = (Outcome.KILLED, Outcome.TIMEOUT)


class Session:
    """One sample in a copy of the checkout."""

    def __init__(self, folder: Path, results: WorkDB, max_seconds: int) -> None:
        """Takes the folder of the sample, where results are kept, and most seconds of tests against one mutant."""
        self._max_seconds = max_seconds
        self._checkout = folder / "checkout"
        self._covered = folder / "covered"
        self._output = folder / "output.txt"
        self._results = results
        self.counts: collections.Counter[tuple[str, Outcome]] = collections.Counter()
        self.survivors: list[str] = []

    def prepare(self, seed: int, count: int, suites: list[str], rooms: list[str]) -> list[WorkItem]:
        """Copies the checkout, runs the tests once, and returns the mutants. What is there already stays."""
        if not self._checkout.exists():
            _copy(self._checkout)
        self._covered.mkdir(exist_ok=True)
        for suite in suites:
            if suite not in self._covering().suites:
                print(f"running the {suite} tests once, to see which test carries out which line", flush=True)
                _cover(self._checkout, self._covered, suite)
        items = drawn(self._checkout, seed, count, rooms)
        known = {item.job_id for item in self._results.work_items}
        self._results.add_work_items(item for item in items if item.job_id not in known)
        return items

    def run(self, items: list[WorkItem]) -> None:
        """Tries the mutants that were not tried yet; those that survived with fewer suites are tried again."""
        covering = self._covering()
        import_foreign(self._checkout)
        done = {item.job_id: result for item, result in self._results.completed_work_items}
        for number, item in enumerate(items, 1):
            result = done.get(item.job_id)
            if result is None or _is_to_repeat(result, covering):
                result = self._try(item.mutations[0], covering, _suites(result, covering))
                self._results.set_result(item.job_id, result)
            self._tell(number, len(items), item.mutations[0], result)

    def _covering(self) -> Covering:
        return Covering(self._covered, self._checkout, self._max_seconds)

    def _try(self, spec: MutationSpec, covering: Covering, tried_suites: list[str]) -> WorkResult:
        module = self._checkout / spec.module_path
        source, times = module.read_text(), module.stat()
        changed = mutated(source, spec.operator_name, spec.occurrence)
        assert changed is not None, "it was drawn from this very source"
        diff = _diff(source, changed)
        tests = covering.tests_of(str(spec.module_path), range(spec.start_pos[0], spec.end_pos[0] + 1), tried_suites)
        began = time.monotonic()
        try:
            module.write_text(changed)
            outcome = tried(self._checkout, tests, covering.seconds(tests), self._output)
        finally:
            module.write_text(source)
            os.utime(module, ns=(times.st_atime_ns, times.st_mtime_ns))
        told = self._output.read_text(errors="replace")[-4000:] if tests else ""
        summary = f"{outcome} {_extent(covering)} tests={len(tests)} seconds={time.monotonic() - began:.0f}"
        survived = outcome not in KILLED
        return WorkResult(
            WorkerOutcome.NORMAL, f"{summary}\n{told}", TestOutcome.SURVIVED if survived else TestOutcome.KILLED, diff
        )

    def _tell(self, number: int, count: int, spec: MutationSpec, result: WorkResult) -> None:
        summary = (result.output or "").partition("\n")[0]
        outcome = Outcome(summary.partition(" ")[0])
        kind = next(kind for kind, names in KINDS.items() if spec.operator_name in names)
        self.counts[kind, outcome] += 1
        was, became = _change(result.diff or "")
        place = f"{spec.module_path}:{spec.start_pos[0]}"
        print(f"{number}/{count} {summary} {kind}: {place}: {was}  ->  {became}", flush=True)
        if outcome not in KILLED:
            self.survivors.append(f"{place}\n    was    {was}\n    became {became}")


def main() -> int:
    """Runs a sample."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--suites", default=",".join(SUITES))
    parser.add_argument("--seconds", type=int, default=40, help="most seconds of tests against one mutant")
    parser.add_argument("--rooms", default=",".join(ROOMS), help="folders and modules below server/turnwire")
    options = parser.parse_args()
    folder = ROOT / "build/mutants" / str(options.seed)
    folder.mkdir(parents=True, exist_ok=True)
    suites = options.suites.split(",")
    with use_db(str(folder / "session.sqlite"), WorkDB.Mode.create) as results:
        session = Session(folder, results, options.seconds)
        session.run(session.prepare(options.seed, options.count, suites, options.rooms.split(",")))
    _summarize(session, options.seed)
    return 1 if session.survivors else 0


def _summarize(session: Session, seed: int) -> None:
    outcomes = list(Outcome)
    print(f"\n{'seed ' + str(seed):<15}" + "".join(f"{outcome:>10}" for outcome in outcomes))
    for kind in KINDS:
        print(f"{kind:<15}" + "".join(f"{session.counts[kind, outcome]:>10}" for outcome in outcomes))
    killed = sum(count for (_, outcome), count in session.counts.items() if outcome in KILLED)
    total = session.counts.total()
    print(f"killed {killed} of {total} ({killed / max(total, 1):.0%})")
    for survivor in session.survivors:
        print(f"survived: {survivor}")


def _extent(covering: Covering) -> str:
    """Returns which tests mutants meet, as it stands in a result."""
    return f"most={covering.max_seconds} suites={','.join(covering.suites)}"


def _suites(result: WorkResult | None, covering: Covering) -> list[str]:
    """Returns the suites that a mutant has survived, with as many tests as it would meet now."""
    summary = "" if result is None else (result.output or "").partition("\n")[0]
    if f" most={covering.max_seconds} " not in summary:
        return []
    return summary.partition("suites=")[2].partition(" ")[0].split(",")


def _is_to_repeat(result: WorkResult, covering: Covering) -> bool:
    """Returns whether a mutant survived when fewer tests were known."""
    summary = (result.output or "").partition("\n")[0]
    outcome = Outcome(summary.partition(" ")[0])
    return outcome not in KILLED and f"{_extent(covering)} " not in summary


def _copy(checkout: Path) -> None:
    """Copies the files that git knows or would take, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (source := ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, checkout / name)


def _cover(checkout: Path, covered: Path, suite: str) -> None:
    env = {**os.environ, "PYTHONPATH": python_path(checkout), "COVERAGE_FILE": str(covered / f"{suite}.coverage")}
    command = [sys.executable, "-m", "tests.support.mutants.covering", str(covered), suite]
    subprocess.run(command, cwd=checkout, env=env, check=True)


def _change(diff: str) -> tuple[str, str]:
    """Returns what the changed lines of a unified diff were, and what they became."""
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
    was, became = ([line[1:].strip() for line in lines if line.startswith(sign)] for sign in "-+")
    return " / ".join(was), " / ".join(became)


def _diff(before: str, after: str) -> str:
    return "\n".join(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))


if __name__ == "__main__":
    sys.exit(main())
