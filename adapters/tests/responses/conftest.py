"""The client of OpenAI, connected to the adapter in front of a real server with a tool of its own."""

from collections.abc import AsyncIterator

import openai
import pytest

from adapters.tests.conftest import serving
from adapters.tests.responses.checked import checked_client
from tests.support.servers.mcp import ENVIRON, ready, stdio
from tests.support.servers.running import connect, running_server

RULES = """
[permissions]
"test.*" = "ask"
"test.count" = "allow"
"""


@pytest.fixture(scope="module")
async def with_tools(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a server with the tools of an MCP server; a person is asked about all of them but `test.count`."""
    folder = tmp_path_factory.mktemp("turnwire")
    async with running_server(folder, stdio(folder) + RULES, ENVIRON) as server:
        async with connect(server.address) as raw:
            await ready(raw)
        yield server.address


@pytest.fixture(scope="module")
async def base(with_tools: str) -> AsyncIterator[str]:
    """The base URL of the adapter."""
    async with serving(with_tools, ["responses"]) as address:
        yield f"{address}/v1"


@pytest.fixture
async def client(base: str) -> AsyncIterator[openai.AsyncOpenAI]:
    """OpenAI's own client; every answer is checked against the schema."""
    async with checked_client(base.removesuffix("/v1")) as connected:
        yield connected
