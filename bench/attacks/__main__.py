"""`python -m bench.attacks NAME ADDRESS WEB PID FOLDER SECONDS`: runs one attack in this process."""

import asyncio
import contextlib
import os
import resource
import sys
from pathlib import Path

from bench.attacks.attack import Attack, Target
from bench.attacks.table import ATTACKS
from bench.loop import run

MEMORY_BYTES = 6 * 2**30
"""Of addresses: an attack that fills memory fills its own first."""


async def _attack(attack: Attack, target: Target, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await attack.run(target)


if __name__ == "__main__":
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    name, address, web, pid, folder, seconds = sys.argv[1:]
    run(_attack(ATTACKS[name], Target(address, web, int(pid), Path(folder)), float(seconds)))
