"""What is taken of an MCP server, with a client of the SDK that only says what it is told to."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest
from mcp.client import session, streamable_http
from mcp_types import CallToolResult, ListToolsResult, Tool

from tests.support.fakes.loop import elapse, settled
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.ports.tools import SourceState, ToolOutcome
from turnwire.tools.mcp import connection as mcp_connection
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
    connection = McpConnection("test", McpSettings(command="unused"), {}, Places("test", FairSemaphore(1)))
    connection.start()
    await settled()
    assert connection.source.state is SourceState.READY
    await connection.aclose()
    assert (len(connection.tools), client.asked) == (taken, asked)


async def test_a_connection_with_many_calls_that_did_not_end_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK keeps something of each. They need not come in a row, and those of the one before do not count."""
    connections = 0
    answers = [False, True, False, False, False, False]
    """Whether each of the calls is answered."""

    class Session:
        async def call_tool(self, *_: object, **__: object) -> CallToolResult:
            if not answers.pop(0):
                await asyncio.Event().wait()
            return CallToolResult(content=[])

        async def send_ping(self) -> None:
            return

    class Hanging(PagedClient):
        session = Session()
        protocol_version = "2025-06-18"

    @contextlib.asynccontextmanager
    async def connected(_: McpConnection) -> AsyncGenerator[Any]:
        nonlocal connections
        connections += 1
        yield Hanging(1)

    async def ask(_: object) -> Any:
        raise AssertionError

    async def call() -> str:
        is_answered = answers[0]
        calling = asyncio.create_task(connection.call("tool_0_0", "{}", print, ask))
        if not is_answered:  # a result is read in a thread, and the clock does not wait for it
            await elapse(timedelta(seconds=61))
        outcome = await calling
        assert isinstance(outcome, ToolOutcome)
        return outcome.output

    monkeypatch.setattr(mcp_connection, "_MAX_TIMEOUTS", 3)
    monkeypatch.setattr(McpConnection, "_connected", connected)
    connection = McpConnection("test", McpSettings(command="unused"), {}, Places("test", FairSemaphore(1)))
    connection.start()
    await settled()
    late = "the tool did not answer within 60 seconds"
    assert [await call() for _ in range(3)] == [late, "", late]
    assert connections == 1
    assert await call() == late
    await elapse(timedelta(seconds=61))
    assert connections == 2
    assert [await call() for _ in range(2)] == [late, late]
    await elapse(timedelta(seconds=61))
    assert (connections, connection.source.state) == (2, SourceState.READY)
    await connection.aclose()
