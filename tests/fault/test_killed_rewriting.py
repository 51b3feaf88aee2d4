"""A server is killed while it copies a session or hides messages: each has happened as a whole, or not at all."""

import asyncio
from pathlib import Path

import pytest

from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest
from opencode.session.session_pb2 import (
    ClearSessionRequest,
    ForkSessionRequest,
    ListSessionsRequest,
    RestoreSessionRequest,
)
from tests.support.clients.archives import long_session
from tests.support.clients.conversation import messages_of, new_session, text, words_of
from tests.support.oracles.sound import assert_sound
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

MESSAGES = 50


async def filled(client: Client) -> str:
    """Returns a session with messages."""
    session_id = await new_session(client, title="Plans")
    for number in range(MESSAGES):
        parts = [text(str(number))]
        await client.messages.AppendMessage(
            AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=parts)
        )
    return session_id


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.003, 0.01, 0.03])
async def test_a_clear_hides_all_or_nothing(tmp_path: Path, delay: float) -> None:
    """What was answered has happened; what is hidden can be restored by the next server."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = await filled(client)
        everything = await messages_of(client, session_id)
        call = asyncio.ensure_future(client.sessions.ClearSession(ClearSessionRequest(session_id=session_id)))
        await asyncio.sleep(delay)
        await server.kill()
        [answer] = await asyncio.gather(call, return_exceptions=True)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        listed = await messages_of(client, session_id)
        if listed:
            assert listed == everything
            assert isinstance(answer, Exception)
        else:
            restored = await client.sessions.RestoreSession(RestoreSessionRequest(session_id=session_id))
            assert restored.restored_messages == MESSAGES
        assert await messages_of(client, session_id) == everything


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.02, 0.05])
async def test_a_fork_is_whole_or_not_there(tmp_path: Path, delay: float) -> None:
    """A retry by the name of the request makes the copy once."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = await filled(client)
        request = ForkSessionRequest(session_id=session_id, request_id="killed")
        call = asyncio.ensure_future(client.sessions.ForkSession(request))
        await asyncio.sleep(delay)
        await server.kill()
        await asyncio.gather(call, return_exceptions=True)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        made = await client.sessions.ForkSession(request)
        sessions = (await client.sessions.ListSessions(ListSessionsRequest())).sessions
        assert {session.id for session in sessions} == {session_id, made.session.id}
        copied = await messages_of(client, made.session.id)
        assert [words_of(message) for message in copied] == [str(number) for number in range(MESSAGES)]


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
        sessions = (await client.sessions.ListSessions(ListSessionsRequest())).sessions
        assert {session.id for session in sessions} == {session_id, made.session.id}
        copied = await messages_of(client, made.session.id)
        assert [words_of(message) for message in copied] == [str(number) for number in range(1_000)]
    assert_sound(tmp_path / "turnwire.db")
