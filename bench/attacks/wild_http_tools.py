"""MCP servers over HTTP that flood: their tool is called again and again, or by all turns that may run at once."""

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from bench.attacks.attack import Attack
from bench.attacks.wild_http import CALLS, PLACES
from bench.attacks.wild_tools import call_tool
from bench.child import running

TURNS, CALLS_AT_ONCE = 256, 8
"""As many as the usual limits allow."""


@contextlib.asynccontextmanager
async def _wild(folder: Path, place: str = "plain") -> AsyncIterator[str]:
    async with running(folder, "wild", ["-m", "bench.attacks.wild_http"]) as server:
        yield f'[mcp.wild]\nurl = "http://{server.address}/{place}"\nprotocol = "handshake"\n'


_MANY = ("done", "long", "begun", "silent", "comments", "events", "trickle", "tiny_chunks")

ATTACKS = (
    *(
        Attack(f"http_{name}", f"an MCP server over HTTP: {flood.what}", partial(call_tool, what=name), around=_wild)
        for name, flood in CALLS.items()
    ),
    *(
        Attack(
            f"http_{place}",
            f"an MCP server over HTTP: {what}",
            partial(call_tool, what="done"),
            around=partial(_wild, place=place),
        )
        for place, what in PLACES.items()
    ),
    *(
        Attack(
            f"calls_{name}",
            f"2,048 calls over HTTP: {CALLS[name].what}",
            partial(call_tool, what=name, turns=TURNS, calls=CALLS_AT_ONCE),
            around=_wild,
            seconds=20.0,
        )
        for name in _MANY
    ),
)
