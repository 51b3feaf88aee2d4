"""`python -m bench.bare_server`: a grpc.aio server that moves bytes without looking at them.

It is the ceiling: the same library, event loop and number of calls and writes as Turnwire, without storage, sessions,
events or logs. Its methods take and return raw bytes; `Method` lists them.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any

import aiohttp
import grpc

from bench.loop import run

SERVICE = "bench.Bare"


class Method(StrEnum):
    """Methods of the bare server."""

    ECHO = "Echo"
    """Unary. Returns as many bytes as the first four bytes of the request say."""
    KEEP = "Keep"
    """Unary. Keeps the request's bytes for `PAGE` and `FAN_OUT`."""
    PAGE = "Page"
    """Unary. Returns the kept bytes."""
    FAN_OUT = "FanOut"
    """Stream. Takes {"streams", "writes"}; once that many streams are open, makes that many writes of the kept bytes
    to each."""
    RELAY = "Relay"
    """Stream. Takes {"streams", "url", "model"}; once that many streams are open, asks the provider once and writes
    each chunk from its socket to all of them."""
    IDLE = "Idle"
    """Stream. Writes nothing."""

    @property
    def path(self) -> str:
        """The method's name on the wire."""
        return f"/{SERVICE}/{self.value}"


class BareServer:
    """The handlers and their shared state. Used on the event loop only."""

    def __init__(self) -> None:
        """Starts without kept bytes and open streams."""
        self._kept = b""
        self._joined = 0
        self._all_here = asyncio.Event()
        self._queues: list[asyncio.Queue[bytes]] = []

    async def echo(self, request: bytes, context: Any) -> bytes:
        """See `Method.ECHO`."""
        return bytes(int.from_bytes(request[:4], "big"))

    async def keep(self, request: bytes, context: Any) -> bytes:
        """See `Method.KEEP`."""
        self._kept = request
        return b""

    async def page(self, request: bytes, context: Any) -> bytes:
        """See `Method.PAGE`."""
        return self._kept

    async def fan_out(self, request: bytes, context: Any) -> None:
        """See `Method.FAN_OUT`."""
        wanted = json.loads(request)
        await context.send_initial_metadata(())
        await self._gather(wanted["streams"])
        for _ in range(wanted["writes"]):
            await context.write(self._kept)

    async def relay(self, request: bytes, context: Any) -> None:
        """See `Method.RELAY`."""
        wanted = json.loads(request)
        await context.send_initial_metadata(())
        if wanted["streams"] == 1:
            async for chunk in _provider_chunks(wanted):
                await context.write(chunk)
            return
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._queues.append(queue)
        if len(self._queues) == wanted["streams"]:
            queues, self._queues = self._queues, []
            feeding = asyncio.create_task(_feed(wanted, queues))
        else:
            feeding = None
        while chunk := await queue.get():
            await context.write(chunk)
        if feeding is not None:
            await feeding

    async def idle(self, request: bytes, context: Any) -> None:
        """See `Method.IDLE`."""
        await context.send_initial_metadata(())
        await asyncio.Event().wait()

    async def _gather(self, streams: int) -> None:
        self._joined += 1
        here = self._all_here
        if self._joined == streams:
            self._joined, self._all_here = 0, asyncio.Event()
            here.set()
        await here.wait()


async def _feed(wanted: dict[str, Any], queues: list[asyncio.Queue[bytes]]) -> None:
    async for chunk in _provider_chunks(wanted):
        for queue in queues:
            queue.put_nowait(chunk)
    for queue in queues:
        queue.put_nowait(b"")


async def _provider_chunks(wanted: dict[str, Any]) -> AsyncIterator[bytes]:
    body = {"model": wanted["model"], "messages": [], "stream": True}
    async with aiohttp.ClientSession() as session, session.post(wanted["url"], json=body) as answer:
        async for chunk in answer.content.iter_any():
            yield chunk


async def _serve() -> None:
    bare = BareServer()
    unary = {Method.ECHO: bare.echo, Method.KEEP: bare.keep, Method.PAGE: bare.page}
    streams = {Method.FAN_OUT: bare.fan_out, Method.RELAY: bare.relay, Method.IDLE: bare.idle}
    handlers = {name.value: grpc.unary_unary_rpc_method_handler(handler) for name, handler in unary.items()}
    handlers |= {name.value: grpc.unary_stream_rpc_method_handler(handler) for name, handler in streams.items()}
    # as many pending calls as Turnwire allows: the default refuses a thousand streams that are opened at once
    options = [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", -1),
        ("grpc.server.max_pending_requests", 100_000),
        ("grpc.server.max_pending_requests_hard_limit", 200_000),
    ]
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await server.stop(0)


if __name__ == "__main__":
    run(_serve())
