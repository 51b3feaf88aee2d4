"""The configured MCP servers, as the tools that the server runs."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from turnwire.ports.tools import Ask, ServerTool, ToolOutcome, ToolPause, ToolResumption, ToolSource, no_such_tool
from turnwire.tools.mcp.connection import McpConnection
from turnwire.tools.mcp.results import failed
from turnwire.tools.settings import Backoff, McpSettings


class McpServers:
    """Implements `turnwire.ports.tools.ServerTools`."""

    def __init__(
        self,
        servers: Mapping[str, McpSettings],
        environ: Mapping[str, str],
        backoff: Backoff | None = None,
    ) -> None:
        """Args:
        servers: Settings by name.
        environ: The environment for the variables of child processes and headers.
        backoff: The delays between attempts.
        """
        self._connections = {
            name: McpConnection(name, settings, environ, backoff) for name, settings in sorted(servers.items())
        }

    def start(self) -> None:
        """Starts connecting to all servers; returns at once."""
        # those of the SDK; its errors quote messages, and tool output must not be logged
        for name in ("mcp", "client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        for connection in self._connections.values():
            connection.start()

    async def aclose(self) -> None:
        """Ends all connections and child processes concurrently. Idempotent."""
        await asyncio.gather(*(connection.aclose() for connection in self._connections.values()))

    def sources(self) -> tuple[ToolSource, ...]:
        """Returns the servers by name."""
        return tuple(connection.source for connection in self._connections.values())

    def tools(self) -> tuple[ServerTool, ...]:
        """Returns the tools of all servers by name."""
        found = [tool for connection in self._connections.values() for tool in connection.tools.values()]
        return tuple(sorted(found, key=lambda tool: tool.name))

    async def wait_discovered(self) -> None:
        """Returns when each server has been ready or failed once, or its `start_timeout_seconds` have passed."""
        for connection in self._connections.values():
            await connection.wait_tried()

    async def call(
        self,
        name: str,
        arguments_json: str,
        log: Callable[[str], None],
        ask: Ask,
        resumption: ToolResumption | None = None,
    ) -> ToolOutcome | ToolPause:
        """Runs a tool once."""
        if resumption is not None and (source := self._connections.get(name.partition(".")[0])) is not None:
            await source.wait_ready()  # after a restart its tools may not be listed yet
        for connection in self._connections.values():
            for own_name, tool in connection.tools.items():
                if tool.name == name:
                    return await connection.call(own_name, arguments_json, log, ask, resumption)
        return failed(no_such_tool(name, self.sources()))
