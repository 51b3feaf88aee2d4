"""Runs tests against one mutant, in a process that is forked from one with all foreign packages imported."""

import contextlib
import gc
import importlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from tests.support.mutants.covering import OPTIONS, SELECTED

LONGER = 10
"""A mutant may take this many times as long as the tests took without it, and as many seconds of the processor."""

LEAST_SECONDS = 60.0
"""Time that every mutant has: imports take long on a busy machine."""

MAX_BYTES = 6 << 30
"""Address space of the process: an endless list must not take the machine's memory."""

_ALL = "import sys, pytest, hypothesis, aiohttp.web, openai, anthropic, turnwire.app; print(*sys.modules)"


class Outcome(StrEnum):
    """Result of the trial of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    TIMEOUT = "timeout"
    """The tests took far longer than without it: something waits for ever, so it was noticed."""
    UNTESTED = "untested"
    """No test carries the line out: it survived."""


def import_foreign(checkout: Path) -> None:
    """Imports the packages that the server and its tests use, so that each trial begins with them."""
    env = {**os.environ, "PYTHONPATH": python_path(checkout)}
    listed = subprocess.run([sys.executable, "-c", _ALL], env=env, cwd=checkout, check=True, capture_output=True)
    for name in listed.stdout.decode().split():
        if name.partition(".")[0] not in ("turnwire", "turnwire_client", "tests", "__main__"):
            with contextlib.suppress(Exception):  # a module that another one replaces is no module to import
                importlib.import_module(name)


def python_path(checkout: Path) -> str:
    """Returns the folders whose packages come before those that are installed."""
    own = [checkout / "server", checkout / "clients/python/src", checkout]
    return os.pathsep.join([*map(str, own), *filter(None, [os.environ.get("PYTHONPATH", "")])])


def tried(checkout: Path, tests: Sequence[str], seconds: float, output: Path) -> Outcome:
    """Runs tests in order until one fails.

    Args:
        checkout: The folder with the mutant.
        tests: Their names.
        seconds: How long they take without it.
        output: The file that gets what pytest prints.
    """
    if not tests:
        return Outcome.UNTESTED
    limit = LEAST_SECONDS + LONGER * seconds
    gc.freeze()
    pid = os.fork()
    if pid == 0:
        _run(checkout, tests, int(limit), output)
    deadline = time.monotonic() + limit
    status = None
    while status is None and time.monotonic() < deadline:
        done, found = os.waitpid(pid, os.WNOHANG)
        status = found if done else None
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what tests have started, too
    if status is None:
        os.waitpid(pid, 0)
        return Outcome.TIMEOUT
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return Outcome.TIMEOUT
    return Outcome.SURVIVED if status == 0 else Outcome.KILLED


def _run(checkout: Path, tests: Sequence[str], cpu_seconds: int, output: Path) -> None:
    """Runs in the forked process, and ends it."""
    code = 70
    try:
        os.setsid()
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        null = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, null), (1, descriptor), (2, descriptor)):
            os.dup2(source, target)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
        os.chdir(checkout)
        os.environ["PYTHONPATH"] = python_path(checkout)
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # the sources change within a second
        sys.dont_write_bytecode = True
        sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]  # those of the copy count
        import pytest  # before the fork

        code = int(pytest.main(["-x", *OPTIONS, *SELECTED, *tests]))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
