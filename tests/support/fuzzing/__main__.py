"""Runs the targets under atheris, the coverage-guided fuzzer for Python, one after the other.

    python -m tests.support.fuzzing [NAME…] [--seconds 60] [--work .fuzz]

Begins with the examples, with what is kept in tests/fuzz/corpus and with what earlier runs found (--work). An input
that breaks a promise is written to tests/fuzz/corpus, where it fails as a test until it is mended; the exit code is 1
then.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.fuzzing.corpus import FOLDER, keep
from tests.support.fuzzing.targets import NAMES, guides, target

SLOWEST_SECONDS = 25
"""An input that takes longer is a finding."""

MOST_MEGABYTES = 2048


def main() -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.fuzzing", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="targets; all without one")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--work", type=Path, default=Path(".fuzz"), help="what was found so far")
    parser.add_argument("--seed", type=int, default=0, help="of the fuzzer; 0 chooses one")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return _inside(options.names[0], options.work, options.seconds, options.seed)
    broken = [name for name in options.names or NAMES if not _run(name, options)]
    if broken:
        print(f"broken: {' '.join(broken)}; the inputs are in {FOLDER}", file=sys.stderr)
    return 1 if broken else 0


def _run(name: str, options: argparse.Namespace) -> bool:
    """Runs one target in a process of its own. Returns whether nothing was found."""
    work = (options.work / name).resolve()
    work.mkdir(parents=True, exist_ok=True)
    for example in target(name).examples():
        keep(name, example, work.parent)
    found = work.parent / f"found-{name}"
    found.mkdir(exist_ok=True)
    inside = [sys.executable, "-m", "tests.support.fuzzing", name, "--inside", "--work", str(work)]
    inside += ["--seconds", str(options.seconds), "--seed", str(options.seed)]
    with tempfile.TemporaryFile("w+") as said:
        ended = subprocess.run(inside, stderr=said, stdout=said, check=False)
        said.seek(0)
        lines = said.read().splitlines()
    told = next((line for line in reversed(lines) if "exec/s" in line), "nothing ran")
    print(f"{name}: {told}")
    if ended.returncode:
        lines = [line for line in lines if not line.startswith("#")]
    inputs = [path for path in found.iterdir() if path.is_file()]
    for path in inputs:
        print("\n".join(lines[-60:]))
        print(f"{name}: {keep(name, path.read_bytes())}")
        path.unlink()
    if ended.returncode and not inputs:
        print("\n".join(lines[-60:]))
    return not ended.returncode


def _inside(name: str, work: Path, seconds: int, seed: int) -> int:
    """Fuzzes in this process, which ends with it."""
    import atheris  # is installed by `make fuzz` alone

    with atheris.instrument_imports(include=list(guides(name))):
        check = target(name).check
    flags = [f"-artifact_prefix={work.parent}/found-{name}/", f"-timeout={SLOWEST_SECONDS}"]
    flags += [f"-rss_limit_mb={MOST_MEGABYTES}", "-max_len=8192", f"-seed={seed}"]
    arguments = ["fuzzing", f"-max_total_time={seconds}", *flags, str(work)]
    arguments += [str(FOLDER / name)] if (FOLDER / name).is_dir() else []
    atheris.Setup(arguments, check)
    with contextlib.suppress(KeyboardInterrupt):
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
