"""A server that keeps its conversations in PostgreSQL."""

from pathlib import Path

import grpc
import pytest

from tests.support.clients.conversation import ask, displayed, talk
from tests.support.postgres import PostgresServer
from tests.support.servers.running import connect, running_server
from turnwire.domain.errors import StorageBusy

pytestmark = pytest.mark.slow


async def test_conversations_are_there_after_a_restart(tmp_path: Path, postgres_url: str) -> None:
    """As in a file: the answer is stored, and the next server goes on with it. No file of conversations is made."""
    toml = f'[storage]\nurl = "{postgres_url}"\n'
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        session_id = (await talk(client, "/words 3")).session_id
        before = await displayed(client, session_id)
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        assert await displayed(client, session_id) == before
        await talk(client, "/words 2", session_id)
        assert len(await displayed(client, session_id)) == 4
    assert not (tmp_path / "turnwire.db").exists()


async def test_one_server_has_a_database(tmp_path: Path, postgres_url: str) -> None:
    """A second one does not start, and says why."""
    toml = f'[storage]\nurl = "{postgres_url}"\n'
    async with running_server(tmp_path, toml):
        with pytest.raises(StorageBusy, match="in use by another server"):
            async with running_server(tmp_path, toml):
                pass


async def test_a_restart_of_the_database_is_survived(tmp_path: Path) -> None:
    """Answered calls are there; a call meanwhile may fail, and later ones do not."""
    postgres = PostgresServer()
    try:
        toml = f'[storage]\nurl = "{postgres.new_database()}"\n'
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            session_id = (await talk(client, "/words 3")).session_id
            before = await displayed(client, session_id)
            postgres.stop()
            postgres.start()
            while True:
                try:
                    await client.messages.SendMessage(ask("/words 2", session_id))
                    break
                except grpc.aio.AioRpcError as error:
                    assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert server.failure is None
            assert (await displayed(client, session_id))[:2] == before
    finally:
        postgres.close()
