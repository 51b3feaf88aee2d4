"""A server and a client for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.servers.running import Client, connect, running_server
from turnwire.app import Server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A server with the default configuration, on a free port."""
    async with running_server(tmp_path) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    """A client of that server."""
    async with connect(server.address) as connected:
        yield connected
