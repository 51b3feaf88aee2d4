"""The accepted tools of an MCP server."""

from collections.abc import Iterable
from typing import Any

import msgspec

from turnwire.domain.text import one_line
from turnwire.ports.tools import ServerTool

MAX_NAME_CHARS = 128
"""Maximum length of a tool's name, as MCP allows it."""

MAX_LISTED_TOOLS = 2000
"""Maximum number of tools of one server: every step looks at each. A model gets far fewer, which an agent chooses."""

MAX_LIST_BYTES = 2 * 2**20
"""Maximum size of all tools of one server: more than fits the context of a model."""


class ToolList:
    """The tools of one server, page by page."""

    def __init__(self, server: str) -> None:
        """Takes the name of the server."""
        self._server = server
        self._bytes = 0
        self._left_out = 0
        self._why = ""
        self.tools: dict[str, ServerTool] = {}
        """By the server's own names; of two tools with the same name, the first."""

    @property
    def problem(self) -> str:
        """The minimum number of tools that were left out, and the reason for one of them; "" when all were accepted."""
        return f"at least {self._left_out} tools left out: {self._why}" if self._left_out else ""

    def add(self, listed: Iterable[Any]) -> None:
        """Adds the acceptable tools of a page."""
        for tool in listed:
            if why := self._take(tool):
                self._left_out += 1
                self._why = self._why or why

    def _take(self, tool: Any) -> str:
        """Adds a tool, or returns the reason why it is not accepted."""
        name, description = tool.name, tool.description or ""
        if len(self.tools) >= MAX_LISTED_TOOLS:
            return f"they are more than {MAX_LISTED_TOOLS}"
        if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
            return f"the name {one_line(name, 32)!r} is not 1 to {MAX_NAME_CHARS} printable characters"
        if name in self.tools:
            return f"the name {name!r} occurs twice"
        schema = msgspec.json.encode(tool.input_schema)
        size = len(schema) + len(description.encode())
        if self._bytes + size > MAX_LIST_BYTES:
            return f"all together have over {MAX_LIST_BYTES} bytes of descriptions and schemas"
        self._bytes += size
        self.tools[name] = ServerTool(
            name=f"{self._server}.{name}",
            description=description,
            input_schema_json=schema.decode(),
            source=self._server,
        )
        return ""


async def listed_tools(server: str, client: Any) -> ToolList:
    """Lists all tools of a server with a client of the SDK, page by page. Raises what the SDK raises."""
    found = ToolList(server)
    page = await client.list_tools(cursor=None)
    found.add(page.tools)
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        found.add(page.tools)
    return found
