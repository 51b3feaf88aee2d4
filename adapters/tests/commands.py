"""Runs `turnwire-adapters`, in this process or in one of its own, as a shell would."""

import asyncio
import contextlib
import io
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwire_adapters.cli import main

ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str


def run(*arguments: str | Path) -> Done:
    """Runs a command to its end. Not within an event loop: it has one of its own."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Done(code, stdout.getvalue(), stderr.getvalue())


def report(*arguments: str | Path, code: int = 0) -> Any:
    """Runs a command, which has to end with an exit code and without a complaint, and returns its JSON."""
    done = run(*arguments, "--json")
    assert (done.code, done.stderr) == (code, "")
    return json.loads(done.stdout)


async def started(*arguments: str | Path, target: str = "") -> asyncio.subprocess.Process:
    """Starts a command in a process of its own."""
    server = ("--target", target) if target else ()
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnwire_adapters.cli", *map(str, arguments), *server),
        env=ENVIRON,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def finished(*arguments: str | Path, target: str = "", code: int = 0) -> bytes:
    """Runs a command, which has to end with an exit code and without a complaint, and returns what it prints."""
    process = await started(*arguments, target=target)
    output, error = await process.communicate()
    assert (process.returncode, error.decode()) == (code, "")
    return output


async def told(*arguments: str | Path, target: str = "", code: int = 0) -> Any:
    """Runs a command and returns its JSON."""
    return json.loads(await finished(*arguments, "--json", target=target, code=code))
