"""`python -m bench.attacks.attacker ADDRESS WEB FOLDER`: the process that attacks.

It reads lines from stdin, the name of an attack each, runs the attack, and prints one line of JSON: the names of the
limits that refusals had.
"""

import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator
from pathlib import Path

from bench.attacks.attack import Attack, Seen, Target
from bench.attacks.table import ATTACKS
from bench.child import ROOT
from bench.loop import run

MEMORY_BYTES = 6 * 2**30
"""Limit of the attacker's address space: an attack that fills memory fills its own first."""

FAILED = "an attack that has failed"
"""Stands among the limits of an attack that could not be carried out."""

LONGEST_SECONDS = 30.0
"""Longest duration of an attack that has not been refused yet: a busy machine takes longer to reach a limit."""

GRACE_SECONDS = 30.0
"""Time that an attack may take to end."""


class Attacker:
    """The running process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Takes a process that has begun to read."""
        self._process = process

    async def attack(self, attack: Attack) -> set[str]:
        """Runs an attack. Returns the names of the limits that refusals had. Raises RuntimeError: it has failed."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the attacker has no pipes")
        self._process.stdin.write(attack.name.encode() + b"\n")
        async with asyncio.timeout(LONGEST_SECONDS + GRACE_SECONDS):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the attacker has ended")
        return set(json.loads(line))


@contextlib.asynccontextmanager
async def attacker(target: Target) -> AsyncIterator[Attacker]:
    """Runs an attacker and ends it afterwards."""
    arguments = ("-m", "bench.attacks.attacker", target.address, target.web, str(target.folder))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield Attacker(process)
    finally:
        process.kill()
        await process.wait()


async def _attack(target: Target) -> None:
    lines, loop = asyncio.StreamReader(), asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while name := (await lines.readline()).decode().strip():
        seen, attack = Seen(), ATTACKS[name]
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_SECONDS), asyncio.TaskGroup() as group:
                    running = group.create_task(attack.run(target, seen))
                    await asyncio.sleep(attack.seconds)
                    while attack.limits and seen.limits.isdisjoint(attack.limits):
                        await asyncio.sleep(0.1)
                    running.cancel()
        except Exception:  # the others are still worth running
            traceback.print_exc()
            seen.limits.add(FAILED)
        print(json.dumps(sorted(seen.limits)), flush=True)


if __name__ == "__main__":
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    run(_attack(Target(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
