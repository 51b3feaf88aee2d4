"""A real server for all tests of the client, and a client for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.support.servers.running import running_server
from turnwire_client import Client


@pytest.fixture(scope="module")
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a server with the default configuration; tests look at their own sessions only."""
    async with running_server(tmp_path_factory.mktemp("client")) as server:
        yield server.address


@pytest.fixture
async def client(address: str) -> AsyncIterator[Client]:
    """A client of that server."""
    async with Client.connect(address) as connected:
        yield connected
