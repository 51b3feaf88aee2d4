"""A server is killed while it copies a session or hides messages: each has happened as a whole, or not at all."""

import asyncio
from pathlib import Path

import pytest

from opencode.session.session_pb2 import ForkSessionRequest
from tests.support.clients.archives import long_session
from tests.support.clients.conversation import messages_of, words_of
from tests.support.oracles.sound import assert_sound
from tests.support.servers.process import server_process
from tests.support.servers.running import connect

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.06, 0.12, 0.2])
async def test_a_long_fork_is_whole_or_not_there(tmp_path: Path, delay: float) -> None:
    """Though it is stored in several commits; a retry makes the copy once, and nothing else is left."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = await long_session(client, 1_000)
        request = ForkSessionRequest(session_id=session_id, request_id="killed")
        call = asyncio.ensure_future(client.sessions.ForkSession(request))
        await asyncio.sleep(delay)
        await server.kill()
        await asyncio.gather(call, return_exceptions=True)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        made = await client.sessions.ForkSession(request)
        sessions = (await client.sessions.ListSessions()).sessions
        assert {session.id for session in sessions} == {session_id, made.session.id}
        copied = await messages_of(client, made.session.id)
        assert [words_of(message) for message in copied] == [str(number) for number in range(1_000)]
    assert_sound(tmp_path / "turnwire.db")
