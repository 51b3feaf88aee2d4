"""One server for the tests of a module, which look at their own sessions; and one for a test that looks at all."""

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
def client(request: pytest.FixtureRequest) -> Client:
    """The client of most tests: of the server of the module, or of an own one where the test is marked `own_server`."""
    is_own = request.node.get_closest_marker("own_server") is not None or "server" in request.fixturenames
    found: Client = request.getfixturevalue("own_client" if is_own else "shared_client")
    return found


@pytest.fixture(scope="module")
async def shared_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server with the default configuration, whose sessions are those of all tests of a module."""
    async with running_server(tmp_path_factory.mktemp("shared")) as running, connect(running.address) as connected:
        yield connected
