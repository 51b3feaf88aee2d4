"""Prompts for a model server that reads nothing share a bound, and others are answered."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from opencode.message.content_pb2 import FINISH_REASON_STOP
from tests.support.clients.conversation import ask, model, turn_ended
from tests.support.servers.running import connect, running_server
from turnwire.domain.limits import Limits

MIB = 2**20


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """For prompts on their way to models."""
    monkeypatch.setattr(Limits, "max_prompts_bytes", 12 * MIB)


@asynccontextmanager
async def _silent() -> AsyncIterator[tuple[str, asyncio.Queue[asyncio.StreamWriter]]]:
    """Yields the configuration of a model server that reads nothing, and the connections to it."""
    connections = asyncio.Queue[asyncio.StreamWriter]()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # else a stream reads ahead
        await connections.put(writer)

    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the system would take megabytes in
    async with await asyncio.start_server(hold, sock=listening):
        host, port = listening.getsockname()
        yield f'[providers.silent]\nkind = "openai_chat"\nbase_url = "http://{host}:{port}/v1"\n', connections


@pytest.mark.slow
async def test_prompts_that_nobody_reads_wait_for_each_other(tmp_path: Path) -> None:
    """The first one has a place, which the next one gets when its turn ends; a short one of another model goes on."""
    async with (
        _silent() as (provider, connections),
        running_server(tmp_path, provider) as server,
        connect(server.address) as client,
    ):
        large = [await client.messages.SendMessage(ask("a" * 8 * MIB, model=model("x", "silent"))) for _ in range(3)]
        first = await connections.get()
        short = await client.messages.SendMessage(ask("hello"))
        ended = await turn_ended(client, short)
        assert ended.turn_ended.turn.finish_reason == FINISH_REASON_STOP
        small = await client.messages.SendMessage(ask("hello", model=model("x", "silent")))
        second = await connections.get()
        for accepted in (small, large[0]):
            assert connections.empty()
            await client.messages.AbortSession(session_id=accepted.session_id)
        third = await connections.get()
        await client.messages.AbortSession(session_id=large[2].session_id)
        await client.messages.AbortSession(session_id=large[1].session_id)
        for writer in (first, second, third):
            writer.transport.abort()
        assert connections.empty()
