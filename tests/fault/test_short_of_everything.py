"""The machine stops the server, or has no descriptors for it: it goes on as soon as it can."""

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.clients.conversation import answer_to, ask, new_session, talk, watching, words_of
from tests.support.oracles.sound import assert_sound
from tests.support.servers.mcp import own_port, until
from tests.support.servers.process import server_process
from tests.support.servers.running import connect

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs limits of other processes")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [2.0, pytest.param(35.0, marks=pytest.mark.slow)])
async def test_a_server_that_stood_goes_on(tmp_path: Path, seconds: float) -> None:
    """SIGSTOP and SIGCONT in the middle of an answer: nothing is lost, doubled or ended by it."""
    # not forked: a signal to a forked process comes a moment later
    async with server_process(tmp_path, forked=False) as server, connect(server.address) as client:
        accepted = await client.messages.SendMessage(ask("/rate 100\n" + "word " * 200))
        async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
            await watch.until_text()
            server.send_signal(signal.SIGSTOP)
            sending = asyncio.create_task(talk(client, "sent meanwhile"))
            await asyncio.sleep(seconds)
            assert not sending.done()
            server.send_signal(signal.SIGCONT)
            await watch.until_turn_ended(accepted.turn_id)
        assert words_of(await answer_to(client, accepted)).split() == ["word"] * 200
        assert words_of(await answer_to(client, await sending)) == "sent meanwhile"
        assert await server.terminate() == 0
    assert_sound(tmp_path / "turnwire.db")


@pytest.mark.slow
async def test_few_descriptors(tmp_path: Path) -> None:
    """Connections beyond them are not served; those that are there go on, and later ones come in again."""
    with own_port() as port:
        database, address = tmp_path / "turnwire.db", f"127.0.0.1:{port}"
        program = [sys.executable, "-m", "turnwire", "serve", "--listen", address, "--db", str(database)]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(program, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=log)
        try:
            async with connect(address) as client:
                await client.channel.channel_ready()
                session_id = await new_session(client)
                await talk(client, "hello", session_id)  # what speaks to the provider is loaded then
                resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (64, 64))
                held = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
                await until(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) >= 64)  # noqa: PTH208
                for number in range(5):
                    accepted = await talk(client, f"number {number}", session_id)
                    assert words_of(await answer_to(client, accepted)) == f"number {number}"
                for one in held:
                    one.close()
                async with connect(address) as other:
                    await other.channel.channel_ready()
                    assert words_of(await answer_to(other, await talk(other, "again", session_id))) == "again"
            process.terminate()
            assert await asyncio.to_thread(process.wait, 200) == 0
        finally:
            process.kill()
            process.wait()
    assert_sound(database)
