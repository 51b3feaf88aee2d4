"""What is taken of an MCP server, with a client of the SDK that only says what it is told to."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from mcp.client import session, streamable_http
from mcp_types import ListToolsResult, Tool

from tests.support.fakes.loop import settled
from turnwire.domain.incremental.room import Room
from turnwire.ports.tools import SourceState
from turnwire.tools.mcp import tool_list
from turnwire.tools.mcp.connection import McpConnection
from turnwire.tools.mcp.places import Places
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
        """Takes the number of tools on each page."""
        self._pages = pages
        self.asked: list[str | None] = []

    async def list_tools(self, *, cursor: str | None) -> ListToolsResult:
        """Returns the page of a cursor."""
        self.asked.append(cursor)
        page = int(cursor or 0)
        tools = [Tool(name=f"tool_{page}_{number}", input_schema={}) for number in range(self._pages[page])]
        return ListToolsResult(tools=tools, next_cursor=str(page + 1) if page + 1 < len(self._pages) else None)


@pytest.mark.parametrize(
    ("pages", "taken", "asked"),
    [((2, 2), 4, [None, "1"]), ((4, 4, 4), 5, [None, "1"]), ((9,), 5, [None]), ((5, 1), 5, [None])],
)
async def test_the_limit_of_tools_counts_all_pages(
    pages: tuple[int, ...], taken: int, asked: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ones are taken, and no page is asked for after them."""
    client = PagedClient(*pages)

    @contextlib.asynccontextmanager
    async def connected(_: McpConnection) -> AsyncGenerator[Any]:
        yield client

    monkeypatch.setattr(tool_list, "MAX_TOOLS", 5)
    monkeypatch.setattr(McpConnection, "_connected", connected)
    connection = McpConnection("test", McpSettings(command="unused"), {}, Places("test", Room(1)))
    connection.start()
    await settled()
    assert connection.source.state is SourceState.READY
    await connection.aclose()
    assert (len(connection.tools), client.asked) == (taken, asked)
