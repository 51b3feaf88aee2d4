"""Waiting for the tools of MCP servers that never come."""

import asyncio
from datetime import timedelta

import pytest

from tests.support.fakes.loop import elapse, settled
from turnwire.ports.tools import SourceState
from turnwire.tools.mcp.servers import DISCOVERY_SECONDS, McpServers
from turnwire.tools.settings import McpSettings

HANGS = McpSettings(command="sleep", args=("600",))
MISSING = McpSettings(command="/no/such/program")


async def test_servers_that_failed_are_not_waited_for() -> None:
    """They are tried again, but nobody knows how long that takes."""
    servers = McpServers({"a": MISSING, "b": MISSING}, {})
    servers.start()
    await servers.wait_discovered()
    assert [source.state for source in servers.sources()] == [SourceState.FAILED] * 2
    await servers.aclose()


async def test_a_server_that_hangs_is_waited_for_once() -> None:
    """The time counts from the start, not from who asks; who waits can be cancelled."""
    servers = McpServers({"hangs": HANGS}, {})
    servers.start()
    waiting = asyncio.create_task(servers.wait_discovered())
    cancelled = asyncio.create_task(servers.wait_discovered())
    await settled()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert not waiting.done()
    await elapse(timedelta(seconds=DISCOVERY_SECONDS))
    await waiting
    late = asyncio.create_task(servers.wait_discovered())
    await settled()
    assert late.done()
    assert [source.state for source in servers.sources()] == [SourceState.CONNECTING]
    await servers.aclose()


async def test_without_servers_nobody_waits() -> None:
    """Before the start too."""
    await McpServers({}, {}).wait_discovered()
    await McpServers({"hangs": HANGS}, {}).wait_discovered()
