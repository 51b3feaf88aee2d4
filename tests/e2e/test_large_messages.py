"""Large messages of many connections at once, at a server as it is run."""

import asyncio
from pathlib import Path

import grpc
import pytest

from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest, MessagePart, TextPart
from tests.support.clients.conversation import messages_of, new_session, words_of
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

TEXTS = [letter * 1_200_000 for letter in "abcd"]

CONNECTIONS = 9


@pytest.mark.slow
async def test_large_messages_of_many_connections_hold_up_nobody(tmp_path: Path) -> None:
    """They are stored whole, those that were refused too when they come again; and small calls go on beside them."""
    async with server_process(tmp_path) as server, connect(server.address) as neighbour:
        own = await new_session(neighbour)

        async def store(client: Client, session_id: str, text: str) -> None:
            part = MessagePart(text=TextPart(text=text))
            request = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[part])
            while True:
                try:
                    await client.messages.AppendMessage(request, timeout=200)
                    return
                except grpc.aio.AioRpcError as error:
                    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

        async def store_all(session_id: str) -> None:
            async with connect(server.address) as client:
                await asyncio.gather(*(store(client, session_id, text) for text in TEXTS))

        sessions = [await new_session(neighbour) for _ in range(CONNECTIONS)]
        stored = asyncio.gather(*map(store_all, sessions))
        while not stored.done():
            await neighbour.sessions.GetSession(session_id=own, timeout=200)
        await stored
        for one in sessions:
            assert sorted(map(words_of, await messages_of(neighbour, one))) == TEXTS
