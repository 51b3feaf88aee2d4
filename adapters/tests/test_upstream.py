"""Connections to the server: one for each token, and only so many that no request uses."""

import asyncio
import contextlib

import pytest

from turnwire_adapters import upstream
from turnwire_adapters.settings import Target
from turnwire_adapters.upstream import Upstream
from turnwire_client import Client


async def test_idle_connections_close_while_requests_end(turnwire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two requests that end at once close them together, and neither fails."""
    close = Client.close

    async def close_after_others(client: Client) -> None:
        await asyncio.sleep(0)
        await close(client)

    monkeypatch.setattr(Client, "close", close_after_others)
    monkeypatch.setattr(upstream, "MAX_CLIENTS", 2)
    server = Upstream(Target(turnwire))
    for token in ("a", "b"):
        async with server.client(token):
            pass
    ending = [contextlib.AsyncExitStack() for _ in range(2)]
    for stack, token in zip(ending, ("c", "d"), strict=True):
        await stack.enter_async_context(server.client(token))
    await asyncio.gather(*(stack.aclose() for stack in ending))
    async with server.client("a") as client:
        assert client.server.version
    await server.close()
