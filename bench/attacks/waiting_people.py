"""Turns that wait for people: permission requests over many sessions, and watchers and lists of all of them."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator

import grpc

from bench.attacks.attack import Attack, Target
from bench.attacks.costly_requests import again, caller
from bench.child import ROOT
from opencode.event.event_pb2 import SubscribeGlobalEventsRequest, WatchEventsRequest
from opencode.event.event_pb2_grpc import EventServiceStub
from opencode.message import message_pb2
from opencode.tool import tool_pb2, tool_pb2_grpc

_PROGRAM = str(ROOT / "tests/support/servers/mcp_wild.py")
_TOML = f"""
[mcp.wild]
command = {json.dumps(sys.executable)}
args = {json.dumps(["-I", "-S", _PROGRAM, "plain"])}
protocol = "handshake"
[permissions]
"*" = "ask"
"""
SENDERS, READERS = 8, 3


async def _permissions(target: Target) -> None:
    """Answers of 100 calls with 16 KiB of arguments each, which nobody allows."""
    words = f'/tool wild.do {{"what": "{"x" * 16_000}"}}\n' * 100
    part = message_pb2.MessagePart(text=message_pb2.TextPart(text=words))
    done = Counter[str]()

    async with caller(target) as one, grpc.aio.insecure_channel(target.address) as channel:
        events, permissions = EventServiceStub(channel), tool_pb2_grpc.PermissionServiceStub(channel)

        async def send() -> None:
            await one.messages.SendMessage(message_pb2.SendMessageRequest(parts=[part]))
            done["sent"] += 1
            await asyncio.sleep(0.02)

        async def read() -> None:
            await asyncio.sleep(2)
            await permissions.ListPermissions(tool_pb2.ListPermissionsRequest(page_size=1))
            done["listed"] += 1

        async def subscribe() -> None:
            await asyncio.sleep(2)
            async for _ in _first(events.SubscribeGlobalEvents(SubscribeGlobalEventsRequest()), 500):
                done["changes"] += 1

        async def watch() -> None:
            await asyncio.sleep(2)
            async for _ in _first(events.WatchEvents(WatchEventsRequest()), 5):
                done["batches"] += 1

        try:
            senders = [again(send) for _ in range(SENDERS)]
            readers = [again(what) for what in (read, subscribe, watch) for _ in range(READERS)]
            await asyncio.gather(*senders, *readers)
        finally:
            print(dict(done))


async def _first(stream: AsyncIterable[object], most: int) -> AsyncIterator[object]:
    """Yields so many answers of a stream, and ends it."""
    count = 0
    async for answer in stream:
        yield answer
        count += 1
        if count >= most:
            stream.cancel()  # type: ignore[attr-defined]
            return


ATTACKS = (Attack("permissions", "1,000s of permission requests of 16 KiB", _permissions, _TOML, seconds=25),)
