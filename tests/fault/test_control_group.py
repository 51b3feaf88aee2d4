"""The server is in a control group with little memory: it refuses new work, and a kill of the kernel loses nothing."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from tests.support.chaos.control_groups import ControlGroup, control_group
from tests.support.clients.conversation import FOREVER, ask, messages_of, refusal_of, session_of, words_of
from tests.support.oracles.sound import assert_sound, problems
from tests.support.servers.mcp import own_port
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

MEBIBYTE = 2**20
LARGE = f"{FOREVER}\n" + "word " * (MEBIBYTE // 5)
"""A message of a mebibyte, whose turn stays in memory."""
MANY = 1000
"""More of them than fit."""


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    """A control group without a limit."""
    with control_group() as made:
        if made is None:
            pytest.skip("this machine lets nobody make control groups with a limit of memory")
        yield made


@contextlib.asynccontextmanager
async def _server_in(group: ControlGroup, folder: Path) -> AsyncIterator[tuple[subprocess.Popen[bytes], Client]]:
    """Runs a server in the group from its beginning, and a client of it; kills it at the end when it still runs."""
    with own_port() as port:
        address, database = f"127.0.0.1:{port}", str(folder / "turnwire.db")
        program = (sys.executable, "-m", "turnwire", "serve", "--listen", address, "--db", database)
        process = subprocess.Popen(
            group.started_in(*program), cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            async with connect(address) as client:
                async with asyncio.timeout(60):
                    await client.channel.channel_ready()
                yield process, client
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)


async def test_a_kill_for_want_of_memory_loses_nothing(tmp_path: Path, group: ControlGroup) -> None:
    """Every message that was acknowledged is there at the next start, once."""
    told: dict[str, str] = {}
    async with _server_in(group, tmp_path) as (process, client):
        group.limit(group.used_bytes + 32 * MEBIBYTE)  # after the start, which would have made the server careful
        with contextlib.suppress(grpc.aio.AioRpcError):
            for number in range(MANY):
                accepted = await client.messages.SendMessage(ask(f"{LARGE}{number}"))
                told[accepted.message_id] = accepted.session_id
        code = await asyncio.to_thread(process.wait, 60)
    assert (code, group.kills > 0, len(told) > 0) == (-signal.SIGKILL, True, True)
    assert problems(tmp_path / "turnwire.db") == []
    async with server_process(tmp_path) as server, connect(server.address) as client:
        for number, (message_id, session_id) in enumerate(told.items()):
            found = [m for m in await messages_of(client, session_id) if m.message_id == message_id]
            assert [words_of(message) for message in found] == [f"{LARGE}{number}"]
            await client.messages.AbortSession(session_id=session_id)
        await server.terminate()
    assert_sound(tmp_path / "turnwire.db")


async def test_new_work_is_refused_before_the_kernel_kills(tmp_path: Path, group: ControlGroup) -> None:
    """The limit of the group counts when it is less than `limits.max_memory_bytes`; what is there can be read."""
    group.limit(400 * MEBIBYTE)
    sessions: list[str] = []
    async with _server_in(group, tmp_path) as (process, client):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            for number in range(MANY):
                sessions.append((await client.messages.SendMessage(ask(f"{LARGE}{number}"))).session_id)
        refusal = refusal_of(refused.value)
        assert (refusal.reason, refusal.metadata["limit"]) == ("CONCURRENCY_LIMIT", "limits.max_memory_bytes")
        for session_id in sessions:
            await session_of(client, session_id)
            await client.messages.AbortSession(session_id=session_id)
        process.terminate()
        assert await asyncio.to_thread(process.wait, 60) == 0
    assert group.kills == 0
    assert_sound(tmp_path / "turnwire.db")
