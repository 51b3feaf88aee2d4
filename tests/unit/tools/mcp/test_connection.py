"""Facts that are taken of an MCP server, with a client of the SDK that only says what it is told to."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from mcp.client import session, streamable_http
from mcp_types import ListToolsResult, Tool

from tests.support.fakes.loop import settled
from turnwire.ports.tools import SourceState
from turnwire.tools.mcp.connection import McpConnection
from turnwire.tools.mcp.servers import McpServers
from turnwire.tools.settings import McpSettings


async def test_words_of_the_sdk_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Both loggers that it has quote what they cannot read, which may be a tool's output."""
    McpServers({}, {}).start()
    session.logger.error("a secret")
    streamable_http.logger.error("a secret")
    assert "a secret" not in caplog.text


class PagedClient:
    """Lists its tools in pages."""

    def __init__(self, *pages: int) -> None:
        self._pages = pages
        self.asked: list[str | None] = []

    async def list_tools(self, *, cursor: str | None) -> ListToolsResult:
        """Returns the page of a cursor."""
        self.asked.append(cursor)
        page = int(cursor or 0)
        tools = [Tool(name=f"tool_{page}_{number}", input_schema={}) for number in range(self._pages[page])]
        return ListToolsResult(tools=tools, next_cursor=str(page + 1) if page + 1 < len(self._pages) else None)


async def test_tools_are_taken_from_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order."""
    client = PagedClient(2, 0, 1)

    @contextlib.asynccontextmanager
    async def connected(_: McpConnection) -> AsyncGenerator[Any]:
        yield client

    monkeypatch.setattr(McpConnection, "_connected", connected)
    connection = McpConnection("test", McpSettings(command="unused"), {})
    connection.start()
    await settled()
    assert connection.source.state is SourceState.READY
    await connection.aclose()
    assert ([*connection.tools], client.asked) == (["tool_0_0", "tool_0_1", "tool_2_0"], [None, "1", "2"])
