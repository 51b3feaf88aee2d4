"""The MCP servers of the configuration, as the tools that the server runs."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from turnwire.ports.tools import ServerTool, ToolOutcome, ToolSource
from turnwire.tools.mcp.connection import McpConnection
from turnwire.tools.settings import Backoff, McpSettings

DISCOVERY_SECONDS = 5.0
"""How long after the start turns wait for tools: most programs list theirs within three, and a person who asked
something thinks after five that nothing works."""


class McpServers:
    """Implements `turnwire.ports.tools.ServerTools`."""

    def __init__(
        self, servers: Mapping[str, McpSettings], environ: Mapping[str, str], backoff: Backoff | None = None
    ) -> None:
        """Args:
        servers: Settings by name.
        environ: The environment that children and headers take their variables from.
        backoff: How long to wait between tries.
        """
        self._connections = {
            name: McpConnection(name, settings, environ, backoff) for name, settings in sorted(servers.items())
        }
        self._discovery_ends = 0.0
        """By the event loop's clock."""

    def start(self) -> None:
        """Begins to connect to all of them; returns at once and waits for none."""
        for name in ("mcp", "client"):  # both are the SDK's; its errors quote messages, and tool output is not logged
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._discovery_ends = asyncio.get_running_loop().time() + DISCOVERY_SECONDS
        for connection in self._connections.values():
            connection.start()

    async def aclose(self) -> None:
        """Ends all connections and child processes, at the same time."""
        await asyncio.gather(*(connection.aclose() for connection in self._connections.values()))

    def sources(self) -> tuple[ToolSource, ...]:
        """Returns the servers by name."""
        return tuple(connection.source for connection in self._connections.values())

    def tools(self) -> tuple[ServerTool, ...]:
        """Returns the tools of all servers by name."""
        found = [tool for connection in self._connections.values() for tool in connection.tools.values()]
        return tuple(sorted(found, key=lambda tool: tool.name))

    async def discovered(self) -> None:
        """Returns when each server was ready once or failed once, at most `DISCOVERY_SECONDS` after the start."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._discovery_ends):
                for connection in self._connections.values():
                    await connection.tried.wait()

    async def call(self, name: str, arguments_json: str, log: Callable[[str], None]) -> ToolOutcome:
        """Runs a tool once."""
        for connection in self._connections.values():
            for own_name, tool in connection.tools.items():
                if tool.name == name:
                    return await connection.call(own_name, arguments_json, log)
        return ToolOutcome(output=f"there is no tool named {name!r} any more", is_error=True)
