"""An MCP server that floods: the same program that tests/fault/test_mcp_wild.py tries, called again and again."""

import asyncio
import contextlib
import json
import sys
from collections import Counter
from functools import partial

import grpc

from bench.attacks.attack import Attack, Target
from bench.child import ROOT
from opencode.event.event_pb2 import WatchEventsRequest
from opencode.event.event_pb2_grpc import EventServiceStub
from opencode.message.message_pb2 import MessagePart, SendMessageRequest, TextPart
from opencode.message.message_pb2_grpc import MessageServiceStub

AT_ONCE = 4
"""Sessions that call the tool."""

_PROGRAM = str(ROOT / "tests/support/servers/mcp_wild.py")
_TOML = f"""
[mcp.wild]
command = {json.dumps(sys.executable)}
args = {json.dumps(["-I", "-S", _PROGRAM, "plain"])}
protocol = "handshake"
"""

_KINDS = {
    "garbage": "200,000 lines that are no messages",
    "progress": "1,000 lines of progress a call",
    "changed": "1,000 changes of the list of tools a call",
    "asks": "800 requests a call, half of them long",
    "unread": "10,000 pings a call, whose answers it does not read",
    "values": "a result of two million lists",
    "deep": "a result of 50,000 lists in each other",
    "endless": "a result without end",
    "escapes": "results of 30 MB of escaped characters",
    "wide": "results of 30 MB that are not ASCII",
    "picture": "pictures of 8 MB",
    "long": "results of 10 MB of text",
    "parts": "results of 10,000 parts",
    "stderr": "14 MB on standard error a call",
}


async def call_tool(target: Target, what: str, turns: int = AT_ONCE, calls: int = 1) -> None:
    """Calls the tool again and again.

    Args:
        target: The attacked server.
        what: The argument of the tool.
        turns: How many do so at the same time.
        calls: How many each of them asks for at once.
    """
    ended = Counter[str]()
    async with grpc.aio.insecure_channel(target.address) as channel:
        try:
            await asyncio.gather(*(_again(channel, what, calls, ended) for _ in range(turns)))
        finally:
            print(dict(ended) or "no call has ended")


async def _again(channel: grpc.aio.Channel, what: str, calls: int, ended: Counter[str]) -> None:
    words = f'/tool wild.do {{"what": "{what}"}}\n' * calls
    request = SendMessageRequest(parts=[MessagePart(text=TextPart(text=words))])
    while True:
        with contextlib.suppress(grpc.aio.AioRpcError):
            accepted = await MessageServiceStub(channel).SendMessage(request)
            watch = WatchEventsRequest(session_id=accepted.session_id, after_sequence=accepted.sequence)
            async for batch in EventServiceStub(channel).WatchEvents(watch):
                for event in batch.events:
                    if (state := event.tool_call_updated.state).status in ("success", "error"):
                        ended[state.error[:80] or state.output[:20]] += 1
                if any(event.HasField("turn_ended") for event in batch.events):
                    break
        await asyncio.sleep(0.01)


ATTACKS = (
    *(Attack(f"tools_{kind}", what, partial(call_tool, what=kind), _TOML) for kind, what in _KINDS.items()),
    *(
        Attack(
            f"tools_{kind}_at_once",
            f"2,048 calls: {_KINDS[kind]}",
            partial(call_tool, what=kind, turns=256, calls=8),
            _TOML,
        )
        for kind in ("long", "picture", "progress")
    ),
)
