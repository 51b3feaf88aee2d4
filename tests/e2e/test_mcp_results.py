"""What real MCP servers answer besides short text: files, and very long text."""

import contextlib
import os
import sys
from collections.abc import AsyncIterator

import pytest

from tests.support.servers.mcp import PROGRAM, ROOT, http_server, own_port, until
from tests.support.servers.mcp_program import PICTURE
from turnwire.domain.conversation.questions import QuestionReply
from turnwire.ports.tools import NewQuestion, QuestionRefused, SourceState, ToolFile, ToolOutcome
from turnwire.tools.mcp.servers import McpServers
from turnwire.tools.settings import McpSettings

pytestmark = pytest.mark.slow


@contextlib.asynccontextmanager
async def stdio_settings() -> AsyncIterator[McpSettings]:
    """Settings of the program as a child."""
    yield McpSettings(command=sys.executable, args=(*PROGRAM, "stdio"), env=("PYTHONPATH",), cwd=ROOT)


@contextlib.asynccontextmanager
async def http_settings() -> AsyncIterator[McpSettings]:
    """Settings of the program over HTTP, which runs meanwhile."""
    with own_port() as port:
        async with http_server(port):
            yield McpSettings(url=f"http://127.0.0.1:{port}/mcp")


@pytest.fixture(scope="module", params=[stdio_settings, http_settings], ids=["stdio", "http"])
async def servers(request: pytest.FixtureRequest) -> AsyncIterator[McpServers]:
    """The MCP server "test", ready."""
    async with request.param() as settings:
        connected = McpServers({"test": settings}, os.environ)
        connected.start()
        try:
            await until(lambda: connected.sources()[0].state is SourceState.READY)
            yield connected
        finally:
            await connected.aclose()


async def refuse(question: NewQuestion) -> QuestionReply:
    """Asks nobody."""
    raise QuestionRefused(question.prompt)


async def test_a_picture_is_a_file_and_a_line(servers: McpServers) -> None:
    """Byte for byte as the server made it."""
    outcome = await servers.call("test.picture", "{}", print, refuse)
    assert outcome == ToolOutcome(
        output=f"a red square\n[file 1: image/png, {len(PICTURE)} bytes]",
        files=(ToolFile(content=PICTURE, mime="image/png"),),
    )


async def test_very_long_text_comes_whole(servers: McpServers) -> None:
    """It is for the core to say how much of it a model gets."""
    outcome = await servers.call("test.story", '{"lines": 100000}', print, refuse)
    lines = outcome.output.splitlines()
    assert (len(lines), lines[0], lines[-1]) == (100_000, "line 1 of 100000", "line 100000 of 100000")
    assert (outcome.is_error, outcome.metadata_json, outcome.files) == (False, "", ())
