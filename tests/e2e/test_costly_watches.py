"""Watches, of health and of events, that would hold up others or fill the memory."""

import asyncio
import socket
import struct
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from structlog.testing import capture_logs

from tests.support.servers.running import connect, running_server

pytestmark = pytest.mark.slow

WATCH = "/grpc.health.v1.Health/Watch"
SERVING = health_pb2.HealthCheckResponse.SERVING


def deaf_watcher(address: str) -> socket.socket:
    """Returns a connection that watches the server's health and has no room for an answer (HTTP/2 by hand)."""

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload

    def header(name: str, value: str) -> bytes:
        return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()

    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    headers = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", WATCH),
        (":authority", "test"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    )
    window_of_nothing = frame(4, 0, 0, struct.pack(">HI", 4, 0))
    call = frame(1, 4, 1, b"".join(header(*one) for one in headers))
    empty_request = frame(0, 1, 1, b"\0\0\0\0\0")
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + window_of_nothing + call + empty_request)
    return connection


async def received_headers(connection: socket.socket) -> None:
    """Waits until the server has answered the call, whose message then waits for room."""
    connection.setblocking(False)
    received = b""
    while b"application/grpc" not in received:
        chunk = await asyncio.get_running_loop().sock_recv(connection, 4096)
        assert chunk, "the connection has ended"
        received += chunk


async def test_a_watcher_that_does_not_read_holds_up_nobody(tmp_path: Path) -> None:
    """Others are answered, and the server still stops."""
    running = running_server(tmp_path, "[server]\nshutdown_grace_seconds = 1\n")
    server = await running.__aenter__()
    with deaf_watcher(server.address) as deaf:
        await received_headers(deaf)
        async with connect(server.address) as client:
            call = HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest(), timeout=200)
            assert (await call.read()).status == SERVING
            await running.__aexit__(None, None, None)
            assert (await call.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_long_and_broken_requests_are_refused_and_cost_no_line(tmp_path: Path) -> None:
    """A request of a watch is kept by gRPC as long as it lasts, so a stranger could fill the memory with names."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        long = health_pb2.HealthCheckRequest(service="x" * 2000).SerializeToString()
        with capture_logs() as lines:
            for data in (long, b"\xff\xff"):
                check = client.channel.unary_unary("/grpc.health.v1.Health/Check", None, None)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await check(data)
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    [_ async for _ in client.channel.unary_stream(WATCH, None, None)(data, timeout=200)]
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert lines == []


async def test_unknown_services_are_unknown(tmp_path: Path) -> None:
    """As the protocol of health checks has it: NOT_FOUND for a check, an answer for a watch that stays open."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        stub = HealthStub(client.channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Check(health_pb2.HealthCheckRequest(service="no.such.Service"))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        call = stub.Watch(health_pb2.HealthCheckRequest(service="no.such.Service"))
        assert (await call.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        assert not call.done()
        call.cancel()


@pytest.mark.parametrize("method", ["event.EventService/WatchEvents", "event.EventService/SubscribeGlobalEvents"])
async def test_long_requests_of_watches_are_refused(tmp_path: Path, method: str) -> None:
    """Fields that nobody knows would be kept as long as the watch too."""
    unknown_field = b"\xfa\x3e" + b"\x80\x80\x10" + b"x" * (1 << 18)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        call = client.channel.unary_stream(f"/opencode.{method}", None, None)(unknown_field, timeout=200)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
