"""A real MCP server whose tools ask people, written with the SDK: over standard input and output, or streamable HTTP.

    python -m tests.support.servers.mcp_asker stdio
    python -m tests.support.servers.mcp_asker http PORT

Without the method `server/discover` it speaks version 2025-11-25 at most; clients choose.
"""

import asyncio
import json
import sys
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp.server.request_state import RequestStateSecurity
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitRequestURLParams, InputRequiredResult
from pydantic import BaseModel, Field

server = MCPServer("asker", request_state_security=RequestStateSecurity(keys=[b"k" * 32]))
connected: set[str] = set()
"""Links that were followed."""
runs: list[str] = []
"""Every run of `once`, to see that none is repeated."""


class Colour(BaseModel):
    """The question of `paint`."""

    colour: str = Field(description="Name of a colour", max_length=20)
    coats: int = Field(default=1, ge=1, le=5)


def which_colour(what: str) -> Elicit[Colour]:
    """Asks for the colour of a thing, in the way of the version that was negotiated."""
    return Elicit(f"Which colour for {what}?", Colour)


@server.tool()
async def paint(what: str, answer: Annotated[ElicitationResult[Colour], Resolve(which_colour)]) -> str:
    """Paints something in a colour that a person chooses."""
    if answer.action != "accept":
        return f"not painted: {answer.action}"
    return f"{what} is {answer.data.colour}, {answer.data.coats} times"


@server.tool()
async def connect(ctx: Context, link: str = "one") -> str:
    """Asks a person to follow a link (2025-11-25)."""
    result = await ctx.elicit_url("Connect your account", f"https://example.com/connect/{link}", link)
    return f"link: {result.action}"


@server.tool()
async def followed(ctx: Context, link: str) -> str:
    """Says that a link was followed."""
    connected.add(link)
    await ctx.session.send_elicit_complete(link)
    return "followed"


@server.tool()
async def needs(link: str) -> str:
    """Runs only once a link was followed (2025-11-25)."""
    if link in connected:
        return "runs"
    raise UrlElicitationRequiredError(
        [ElicitRequestURLParams(message="Sign in first", url=f"https://example.com/{link}", elicitation_id=link)]
    )


ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 3, "pattern": "^[A-Z]"},
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
        "with": {"type": "array", "items": {"type": "string", "enum": ["milk", "sugar"]}, "default": ["milk"]},
        "price": {"type": "number", "minimum": 0.5},
        "hot": {"type": "boolean", "description": "\u202eAs hot\x1b[2J as it is"},
    },
    "required": ["name", "size", "hot"],
}


@server.tool()
async def order(ctx: Context) -> str:
    """Asks for every kind of value, with control characters in its texts (2025-11-25)."""
    result = await ctx.session.elicit_form("What\x1b]0;t\x07 do you drink?", ORDER, ctx.request_id)
    return f"{result.action}: {json.dumps(result.content)}"


@server.tool()
async def odd(ctx: Context, kind: str) -> Any:
    """Asks something that cannot be asked, or for ever."""
    form: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    asked: dict[str, Any] = {"message": "What?", "requested_schema": form}
    match kind:
        case "nested":
            asked["requested_schema"] = {"type": "object", "properties": {"a": {"type": "object"}}}
        case "large":
            form["properties"]["a"]["description"] = "x" * 20_000
        case "long":
            asked["message"] = "x" * 5000
    if kind in ("http", "file"):
        return _asking(ElicitRequestURLParams(message="What?", url=f"{kind}://example.com/", elicitation_id="x"))
    return _asking(ElicitRequestFormParams(**asked))


@server.tool()
async def wild(ctx: Context) -> Any:
    """Asks for ever, whatever the answers are (2026-07-28)."""
    return _asking(ElicitRequestFormParams(message="Again?", requested_schema={"type": "object", "properties": {}}))


@server.tool()
async def flood(ctx: Context) -> str:
    """Asks a thousand questions at once (2025-11-25)."""
    asked = await asyncio.gather(
        *(ctx.elicit(f"Number {number}?", Colour) for number in range(1000)), return_exceptions=True
    )
    return f"{sum(isinstance(one, Exception) for one in asked)} refused"


@server.tool()
async def add(a: int, b: int) -> str:
    """Asks nothing."""
    return f"the sum is {a + b}"


def _asking(params: Any) -> InputRequiredResult:
    return InputRequiredResult(input_requests={"q": ElicitRequest(params=params)})


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
