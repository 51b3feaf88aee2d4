"""A real MCP server, written with the SDK: over standard input and output, or streamable HTTP.

    python -m tests.support.servers.mcp_program stdio [FOLDER]
    python -m tests.support.servers.mcp_program http PORT [FOLDER]

In FOLDER it writes its process id, and what became of slow calls: `NAME_began`, `NAME_cancelled`.
"""

import asyncio
import base64
import os
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image

FOLDER = Path(sys.argv[-1]) if len(sys.argv) > 2 and not sys.argv[-1].isdigit() else None

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mP4z8CAFTEMLQkAKP8/wc53yE8AAAAASUVORK5CYII="
)
"""A red square, as PNG."""

server = MCPServer("test server")
waiting: list[asyncio.Event] = []
"""One for each call of `meet` that waits for others."""


def note(name: str, text: str = "") -> None:
    """Writes a file that a test looks for."""
    if FOLDER is not None:
        (FOLDER / name).write_text(text)


@server.tool()
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return f"the sum is {a + b}"


@server.tool()
async def count(to: int, ctx: Context) -> str:
    """Counts aloud."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"at {number}")
    return "counted"


@server.tool()
async def slow(ctx: Context, name: str = "slow") -> str:
    """Takes ten minutes."""
    await ctx.report_progress(0, 1, "began")
    note(f"{name}_began")
    try:
        await asyncio.sleep(600)
    except BaseException:
        note(f"{name}_cancelled")
        raise
    return "done"


@server.tool()
async def pause(seconds: float) -> str:
    """Takes some seconds."""
    await asyncio.sleep(seconds)
    return "rested"


@server.tool()
async def meet(others: int) -> str:
    """Returns when so many other calls of it are under way too."""
    waiting.append(asyncio.Event())
    if len(waiting) > others:
        for event in waiting:
            event.set()
        waiting.clear()
    else:
        await waiting[-1].wait()
    return "met"


@server.tool()
def long(chars: int) -> str:
    """Says a lot."""
    return "é" * chars


@server.tool()
def story(lines: int) -> str:
    """Tells a story of numbered lines, so that it shows which of them came."""
    return "\n".join(f"line {number} of {lines}" for number in range(1, lines + 1))


@server.tool()
def picture() -> list[str | Image]:
    """Draws a red square."""
    return ["a red square", Image(data=PICTURE, format="png")]


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("this never works")


@server.tool()
def die() -> str:
    """Ends the whole server."""
    os._exit(3)


@server.tool()
def environment(name: str) -> str:
    """Says the value of a variable."""
    return os.environ.get(name, "not set")


@server.tool()
def place(ctx: Context) -> str:
    """Says the place in a trace that came with the call."""
    return str((ctx.request_context.meta or {}).get("traceparent", "none"))


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool and says so."""
    server.add_tool(lambda: "new", name="grown", description="a new tool")
    await ctx.session.send_tool_list_changed()  # up to 2025-11-25
    await ctx.notify_tools_changed()
    return "grown"


if __name__ == "__main__":
    note("pid", str(os.getpid()))
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
