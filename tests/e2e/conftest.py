"""A server and a client for each test, and one of both for modules whose tests look at their own sessions only."""

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
async def own_client(server: Server) -> AsyncIterator[Client]:
    """A client of that server, which knows nobody else."""
    async with connect(server.address) as connected:
        yield connected


@pytest.fixture
def client(own_client: Client) -> Client:
    """The client of most tests. A module may choose `shared_client` for it."""
    return own_client


@pytest.fixture(scope="module")
async def shared_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server with the default configuration, whose sessions are those of all tests of a module."""
    async with running_server(tmp_path_factory.mktemp("shared")) as running, connect(running.address) as connected:
        yield connected
