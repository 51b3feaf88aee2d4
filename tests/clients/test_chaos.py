"""Each client's program follows a session through a network that breaks all the time, and then holds what is stored.

The clients in other languages download packages, so they run only with TURNWIRE_TEST_GO=1, TURNWIRE_TEST_TYPESCRIPT=1
and TURNWIRE_TEST_SWIFT=1. TURNWIRE_CHAOS_SECONDS=60 lets the traffic last longer, TURNWIRE_CHAOS_SEED=N draws another.
"""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tests.support.chaos.harness import build, run
from tests.support.chaos.programs import PROGRAMS, ROOT, Program

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("TURNWIRE_CHAOS_SECONDS", "2"))
SEED = int(os.environ.get("TURNWIRE_CHAOS_SEED", "1"))


def missing(program: Program) -> str:
    """Returns why a program cannot run here; "" when it can."""
    if not program.exists():
        return f"not there: {program.folder}/{program.source}"
    if program.web and not (ROOT / "server/turnwire/api/web").is_dir():
        return "there is no web listener yet"
    if program.variable and os.environ.get(program.variable) != "1":
        return f"runs with {program.variable}=1"
    tools = [tool for tool in program.tools if shutil.which(tool) is None]
    return f"not installed: {', '.join(tools)}" if tools else ""


@pytest.mark.timeout(600 + 3 * SECONDS)
@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_client_holds_what_is_stored(name: str, tmp_path: Path) -> None:
    """After connections that were cut, reset, half open and late, kills of the server, and every kind of change."""
    program = PROGRAMS[name]
    if reason := missing(program):
        pytest.skip(reason)
    work, folder = tmp_path / "work", tmp_path / "server"
    work.mkdir()
    folder.mkdir()
    await asyncio.to_thread(build, program, work)
    outcome = await run(program, folder, work, SECONDS, SEED)
    assert outcome.differences() == ""
    assert sum(outcome.connections.values()) > 2, "the network was too good"
    assert {"kill", "select another answer", "restore", "allow once", "edit what waits"} <= {*outcome.happened}
