"""Programs of other people's libraries, as they are, against a real server. They run where the libraries are installed.

`.ci/run` installs them: TURNWIRE_TEST_AGENTS names a folder with the packages of `.ci/agents.txt`, and
TURNWIRE_TEST_NODE one where `npm ci` was run with `programs/package-lock.json`.
"""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")
PACKAGES = os.environ.get("TURNWIRE_TEST_AGENTS", "")
NODE_FOLDER = os.environ.get("TURNWIRE_TEST_NODE", "")
with_node = pytest.mark.skipif(not NODE_FOLDER, reason="runs where TURNWIRE_TEST_NODE has the libraries for Node")


async def run(*command: str | Path, environ: dict[str, str] | None = None, cwd: Path | None = None) -> list[str]:
    """Runs a program and returns its lines; fails with what it said when it fails."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        env={**os.environ, **(environ or {})},
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    assert process.returncode == 0, (stdout + stderr).decode()
    return stdout.decode().splitlines()


@pytest.fixture
def node_folder(tmp_path: Path) -> Path:
    """A folder with the programs and their packages, as the lock file names them."""
    folder = tmp_path / "programs"
    shutil.copytree(PROGRAMS, folder, ignore=shutil.ignore_patterns("node_modules"))
    (folder / "node_modules").symlink_to(Path(NODE_FOLDER, "node_modules").absolute())
    return folder


@pytest.mark.skipif(not PACKAGES, reason="runs where TURNWIRE_TEST_AGENTS has the agent libraries")
async def test_the_agents_sdk(base: str) -> None:
    """Plain, streamed, tools with a whole history and with previous responses, both conversations, approvals."""
    done = await run(sys.executable, PROGRAMS / "agents_sdk.py", base, environ={"PYTHONPATH": PACKAGES})
    assert done == [
        "plain",
        "streamed",
        "tools",
        "previous responses",
        "conversation",
        "conversation of the server",
        "required",
        "approvals by a function",
        "approvals by a state",
    ]


@with_node
async def test_openai_for_node(base: str, node_folder: Path) -> None:
    """Plain, streamed, tools, a conversation, a cut, a cancellation, an approval."""
    done = await run("node", node_folder / "openai_node.mjs", base)
    assert done == ["plain", "streamed", "tools", "conversation", "resumed", "cancelled", "approved"]


@with_node
async def test_the_ai_sdk(base: str, node_folder: Path) -> None:
    """With both of its providers; it sends the whole history, and references to what it got."""
    done = await run("node", node_folder / "ai_sdk.mjs", base)
    what = ("plain", "streamed", "tools", "streamed tools", "conversation", "object")
    both = [f"{name} {one}" for name in ("@ai-sdk/openai", "@ai-sdk/open-responses") for one in what]
    assert done == [*both, "previous response"]
