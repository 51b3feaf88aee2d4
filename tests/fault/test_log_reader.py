"""Who reads the log can neither hold up the server nor make calls fail."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.clients.conversation import answer_to, talk, words_of
from tests.support.oracles.sound import assert_sound
from tests.support.servers.mcp import own_port
from tests.support.servers.running import Client, connect

pytestmark = pytest.mark.slow

TALKS = 150
"""With the lines of each: several times what a pipe holds."""


@contextlib.asynccontextmanager
async def served(folder: Path, shell: str = "", stderr: int | None = None) -> AsyncIterator[tuple[int, Client]]:
    """Runs a server in a process of its own; gives its process id and a client. Its file is sound afterwards.

    Args:
        folder: Where its database is.
        shell: Redirections in the form of the shell.
        stderr: Where its lines go; None is nowhere.
    """
    with own_port() as port:
        database = folder / "turnwire.db"
        program = f"exec {sys.executable} -m turnwire serve --listen 127.0.0.1:{port} --db {database} {shell}"
        process = subprocess.Popen(
            ["sh", "-c", program], cwd=folder, stdin=subprocess.DEVNULL, stderr=stderr or subprocess.DEVNULL
        )
        try:
            async with connect(f"127.0.0.1:{port}") as client:
                await client.channel.channel_ready()
                yield process.pid, client
            process.terminate()
            assert await asyncio.to_thread(process.wait, 200) == 0
        finally:
            process.kill()
            process.wait()
    assert_sound(database)


def _info(folder: Path) -> str:
    """Returns the option of a configuration that logs all calls."""
    file = folder / "turnwire.toml"
    file.write_text('[log]\nlevel = "info"\nformat = "json"\n')
    return f"--config {file}"


async def _talks(client: Client, count: int = 5) -> None:
    for number in range(count):
        accepted = await talk(client, f"number {number}")
    assert words_of(await answer_to(client, accepted)) == f"number {count - 1}"


async def test_a_pipe_that_nobody_reads_holds_nothing(tmp_path: Path) -> None:
    """Calls go on; who reads later finds every line, in order."""
    ours, theirs = os.pipe()
    async with served(tmp_path, _info(tmp_path), theirs) as (_, client):
        os.close(theirs)
        await _talks(client, TALKS)
        reading = asyncio.create_task(asyncio.to_thread(_read, ours))
    lines = (await reading).splitlines()
    assert sum('"event":"turn"' in line for line in lines) == TALKS
    assert all(line.startswith("{") and line.endswith("}") for line in lines)
    assert not any("log_lines_lost" in line for line in lines)


def _read(descriptor: int) -> str:
    with os.fdopen(descriptor) as pipe:
        return pipe.read()


async def test_a_reader_that_is_gone_fails_no_call(tmp_path: Path) -> None:
    """As `turnwire serve 2>&1 | head -1` leaves it."""
    ours, theirs = os.pipe()
    async with served(tmp_path, _info(tmp_path), theirs) as (_, client):
        os.close(theirs)
        os.close(ours)
        await _talks(client)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
async def test_a_full_disk_under_the_log_fails_no_call(tmp_path: Path) -> None:
    """Its lines are lost."""
    async with served(tmp_path, f"{_info(tmp_path)} 2>/dev/full") as (_, client):
        await _talks(client)


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
async def test_closed_standard_streams_become_nothing(tmp_path: Path) -> None:
    """Else the database or a socket would get the number of standard error, and what libraries write there."""
    async with served(tmp_path, f"{_info(tmp_path)} 0<&- 1>&- 2>&-") as (pid, client):
        await _talks(client)
        opened = [Path(f"/proc/{pid}/fd/{number}").readlink() for number in range(3)]
        assert opened == [Path("/dev/null")] * 3
