"""The processes that the other tests kill are real ones, forked or not."""

import signal
from pathlib import Path

import pytest

from tests.support.clients.conversation import session_of, talk
from tests.support.servers.process import ServerProcess, server_process
from tests.support.servers.running import connect


@pytest.mark.parametrize("forked", [True, False])
async def test_exit_codes_are_those_of_the_process(tmp_path: Path, forked: bool) -> None:
    """0 after SIGTERM, the negative signal after a kill; signals after the end do nothing."""
    async with server_process(tmp_path, forked=forked) as server, connect(server.address) as client:
        accepted = await talk(client, "hello")
        assert await server.terminate() == 0
        await server.kill()
        assert await server.ended() == 0
    async with server_process(tmp_path, forked=forked) as server, connect(server.address) as client:
        assert (await session_of(client, accepted.session_id)).id == accepted.session_id
        await server.kill()
        assert await server.ended() == -signal.SIGKILL


async def test_forked_processes_share_nothing(tmp_path: Path) -> None:
    """Each has its own environment, folder and stderr; one that cannot start says why and has ended."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    async with (
        server_process(folders[0]) as first,
        server_process(folders[1], environ={"TURNWIRE_LOG_FORMAT": "json"}) as second,
    ):
        assert (first.stderr[0][:9], second.stderr[0][:1]) == ("listening", "{")
        with pytest.raises(RuntimeError, match=r"^turnwire: cannot start: "):
            await ServerProcess.start(folders[0])
    with pytest.raises(RuntimeError, match=r"^turnwire: .*nonsense"):
        await ServerProcess.start(tmp_path, "nonsense = 1")
