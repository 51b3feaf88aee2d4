"""Cost of the web listener beside gRPC, on one server: a call by Connect with protobuf, and the way of a delta.

The client of Connect is a bare one on sockets, so that the listener is measured and not a library. Both clients call in
turns, and read the same deltas at the same time. The ceiling is gRPC.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import report
from bench.child import Child, model_provider, turnwire
from bench.client import Client, connect
from bench.delta_latency import PER_SECOND, moments, read_latencies
from bench.model_provider import model_name
from opencode.event.event_pb2 import WatchEventsRequest
from opencode.session.session_pb2 import GetSessionRequest

CALLS = 200
"""Calls by one client before it is the turn of the other."""

MOST_OF_GRPC = 1 / 1.5
"""A call by Connect takes at most one and a half times that of gRPC."""

WANTED_MORE_MS = 2.0
"""Further time that a delta by a web stream may take, at p50."""

_GET = "/opencode.session.SessionService/GetSession"
_WATCH = "/opencode.event.EventService/WatchEvents"
_PREFIX = "console and calls over HTTP on http://"


async def measure(folder: Path, quick: bool) -> None:
    """Prints the price of a call, and the latency of deltas."""
    report.title("web", f"GetSession and {PER_SECOND} deltas/s by Connect over HTTP/1.1; ceiling: by gRPC, same server")
    rounds, deltas = (3, 100) if quick else (15, 500)
    async with model_provider(folder) as provider:
        toml = (
            '[web]\nlisten = "127.0.0.1:0"\n'
            f'[providers.local]\nkind = "openai_chat"\nbase_url = "http://{provider.address}/v1"\n'
        )
        async with turnwire(folder, toml) as server, connect(server.address) as client:
            address = _web_address(server)
            await _calls(client, address, rounds)
            await _deltas(client, address, deltas)


async def _calls(client: Client, address: str, rounds: int) -> None:
    session_id = await client.create_session()
    request = GetSessionRequest(session_id=session_id).SerializeToString()
    web = await _Connection.open(address)
    by_web, by_grpc = [], []
    for _ in range(rounds):
        by_grpc.append(await _each(client.get_bytes, request))
        by_web.append(await _each(web.call, request))
    web.close()
    found, ceiling = report.median(by_web), report.median(by_grpc)
    report.show(
        [report.Figure("GetSession by Connect, p50", found, ceiling, "ms", lower_is_better=True, target=MOST_OF_GRPC)]
    )


async def _each(call: Callable[[bytes], Awaitable[bytes]], request: bytes) -> float:
    """Returns the milliseconds of a call, one after the other: the median."""
    found = []
    for _ in range(CALLS):
        started = time.perf_counter()
        await call(request)
        found.append((time.perf_counter() - started) * 1000)
    return report.median(found)


async def _deltas(client: Client, address: str, deltas: int) -> None:
    await _both(client, address, 20)  # imports the SDK, opens the connections
    by_web, by_grpc = await _both(client, address, deltas)
    for percent in (50, 99):
        found, ceiling = report.percentile(by_web, percent), report.percentile(by_grpc, percent)
        report.show([report.Figure(f"delta by a web stream, p{percent}", found, ceiling, "ms", lower_is_better=True)])
        if percent == 50:
            more = report.Figure(
                "more than by gRPC, p50", found - ceiling, None, "ms", lower_is_better=True, wanted=WANTED_MORE_MS
            )
            report.show([more])


async def _both(client: Client, address: str, deltas: int) -> tuple[list[float], list[float]]:
    """Returns the latencies of the same deltas by both ways."""
    session_id = await client.create_session()
    request = WatchEventsRequest(session_id=session_id).SerializeToString()
    web = await _Connection.open(address)
    await web.begin_stream(request)
    stream = await client.watch(session_id)
    reading = (
        asyncio.create_task(_web_latencies(web, deltas)),
        asyncio.create_task(read_latencies(stream, deltas)),
    )
    await client.send(session_id, "go", f"local/{model_name(deltas, PER_SECOND)}")
    by_web, by_grpc = await asyncio.gather(*reading)
    stream.cancel()
    web.close()
    return by_web, by_grpc


async def _web_latencies(web: "_Connection", deltas: int) -> list[float]:
    found: list[float] = []
    newest = 0
    while len(found) < deltas:
        batch = await web.reader.read(65_536)
        now = time.monotonic_ns()
        if not batch:
            raise RuntimeError(f"the stream ended after {len(found)} of {deltas} deltas")
        newest = moments(batch, now, newest, found)
    return found


class _Connection:
    """One connection of HTTP/1.1."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self._writer = reader, writer

    @classmethod
    async def open(cls, address: str) -> "_Connection":
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def call(self, request: bytes) -> bytes:
        self._writer.write(_head(_GET, "application/proto", len(request)) + request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return await self.reader.readexactly(length)

    async def begin_stream(self, request: bytes) -> None:
        body = b"\0" + len(request).to_bytes(4, "big") + request
        self._writer.write(_head(_WATCH, "application/connect+proto", len(body)) + body)
        await self.reader.readuntil(b"\r\n\r\n")

    def close(self) -> None:
        self._writer.transport.abort()


def _head(path: str, kind: str, length: int) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "host: localhost", f"content-type: {kind}", f"content-length: {length}", "", "")
    return "\r\n".join(lines).encode()


def _web_address(server: Child) -> str:
    lines = server.log.read_text().splitlines()
    return next(line.removeprefix(_PREFIX).strip() for line in lines if line.startswith(_PREFIX))
