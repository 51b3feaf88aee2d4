"""Which of the tools that an MCP server lists are taken."""

from collections.abc import Iterable
from typing import Any

import msgspec

from turnwire.domain.text import one_line
from turnwire.ports.tools import ServerTool

MAX_TOOLS = 512
"""Most tools of one server, because an endless list would fill the memory."""

MAX_PAGES = 100
"""Pages of one list: a server may have an empty page follow an empty page."""

MAX_CURSOR_CHARS = 4096
"""Of the name of a page, which goes back to the server."""

MAX_NAME_CHARS = 128
"""Of a tool's name: the most that MCP allows."""

MAX_TOOL_BYTES = 64 * 1024
"""Description and schema of one tool: some twenty pages, which a model reads at each step."""

MAX_LIST_BYTES = 2 * 2**20
"""Of all tools of one server together: more than fits the context of a model."""

_TOO_MANY = "there are more than {}"


class ToolList:
    """The tools of one server, page by page."""

    def __init__(self, server: str) -> None:
        """Takes the name of the server."""
        self._server = server
        self._bytes = 0
        self._pages = 0
        self._left_out = 0
        self._why = ""
        self.tools: dict[str, ServerTool] = {}
        """By the server's own names; of two with the same name, the first."""

    @property
    def problem(self) -> str:
        """How many tools were left out at least, and why one of them was; "" when all were taken."""
        return f"at least {self._left_out} tools left out: {self._why}" if self._left_out else ""

    def add(self, listed: Iterable[Any], next_cursor: str | None) -> bool:
        """Takes the tools of a page that can be taken. Returns whether to ask for the next page."""
        for tool in listed:
            if why := self._take(tool):
                self._leave_out(why)
        self._pages += 1
        if not next_cursor:
            return False
        if len(self.tools) >= MAX_TOOLS:
            self._leave_out(_TOO_MANY.format(MAX_TOOLS))
            return False
        if self._pages >= MAX_PAGES or len(next_cursor) > MAX_CURSOR_CHARS:
            self._leave_out(f"its list has more than {MAX_PAGES} pages, or a page has a very long name")
            return False
        return True

    def _leave_out(self, why: str) -> None:
        self._left_out += 1
        self._why = self._why or why

    def _take(self, tool: Any) -> str:
        """Takes a tool, or returns why not."""
        name, description = tool.name, tool.description or ""
        if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
            return f"the name {one_line(name, 32)!r} is not 1 to {MAX_NAME_CHARS} printable characters"
        if name in self.tools:
            return f"the name {name!r} is there twice"
        if len(self.tools) >= MAX_TOOLS:
            return _TOO_MANY.format(MAX_TOOLS)
        schema = msgspec.json.encode(tool.input_schema)
        size = len(schema) + len(description.encode())
        if size > MAX_TOOL_BYTES:
            return f"{name!r} has {size} bytes of description and schema, over {MAX_TOOL_BYTES}"
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
    """Asks a client of the SDK for all tools of a server, page by page. Raises what the SDK raises."""
    found, cursor, is_more = ToolList(server), None, True
    while is_more:
        page = await client.list_tools(cursor=cursor)
        is_more = found.add(page.tools, page.next_cursor) and page.next_cursor != cursor
        cursor = page.next_cursor
    return found
