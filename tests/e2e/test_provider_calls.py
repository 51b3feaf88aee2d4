"""What a turn does to the HTTP call of its provider."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from opencode.message.content_pb2 import MESSAGE_STATUS_FAILED, MESSAGE_STATUS_INTERRUPTED
from opencode.message.message_pb2 import DisplayMessage, MessagePart, SendMessageRequest, TextPart
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo
from tests.support.clients.conversation import streamed
from tests.support.servers.provider import ProviderServer, ScriptedReply
from tests.support.servers.running import Client, connect, running_server

TEXT = b'data: {"choices":[{"delta":{"content":"half an ans"}}]}\n\n'
REASON = b'data: {"choices":[{"delta":{},"finish_reason":"length"}]}\n\n'
ERROR = b'data: {"error":{"message":"no more"}}\n\n'


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    """A local provider."""
    async with ProviderServer() as running:
        yield running


@pytest_asyncio.fixture
async def client(provider: ProviderServer, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a server with that provider."""
    table = f'[providers.local]\nkind = "openai_chat"\nbase_url = "{provider.base_url}"\n'
    async with running_server(tmp_path, table) as server, connect(server.address) as connected:
        yield connected


def question() -> SendMessageRequest:
    """Returns a message in a new session."""
    return SendMessageRequest(
        parts=[MessagePart(text=TextPart(text="go"))],
        model=ModelSelection(provider=ProviderInfo(id="local"), model_id="any"),
    )


async def answer(client: Client, session_id: str) -> DisplayMessage:
    """Returns the answer as far as it has come; an empty one before it begins."""
    listed = await client.messages.GetMessages(session_id=session_id)
    return listed.messages[1] if len(listed.messages) > 1 else DisplayMessage()


@pytest.mark.slow
@pytest.mark.parametrize("said", [(), (TEXT,)], ids=["before the first content", "in the middle"])
async def test_abort_ends_the_http_request(said: tuple[bytes, ...], provider: ProviderServer, client: Client) -> None:
    """The provider sees the connection go when the turn is aborted, and is not asked again."""
    provider.enqueue(ScriptedReply((*said, asyncio.Event())))
    turn = streamed(client, question())
    session_id = (await turn.read()).accepted.session_id
    while not provider.requests:
        await asyncio.sleep(0.001)
    while said and not (await answer(client, session_id)).text_parts:
        await asyncio.sleep(0.001)
    await client.messages.AbortSession(session_id=session_id)
    await provider.requests[0].disconnected.wait()
    stored = await answer(client, session_id) if said else None
    assert stored is None or (stored.status, *stored.text_parts) == (MESSAGE_STATUS_INTERRUPTED, "half an ans")
    assert len(provider.requests) == 1


async def test_error_behind_the_reason(provider: ProviderServer, client: Client) -> None:
    """The message keeps its text and the provider's word, and says what went wrong."""
    provider.enqueue(ScriptedReply((TEXT, REASON, ERROR)))
    events = [reply async for reply in streamed(client, question())]
    stored = await answer(client, events[0].accepted.session_id)
    assert (stored.status, stored.provider_finish_reason, *stored.text_parts) == (
        MESSAGE_STATUS_FAILED,
        "length",
        "half an ans",
    )
    assert "no more" in stored.failure.message
