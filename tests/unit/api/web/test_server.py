"""The web listener on uvicorn, in the event loop and beside the signals of its process."""

import asyncio
import inspect
import logging
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import h11
import pytest
import uvicorn
from structlog.testing import capture_logs
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from turnwire.api.web import http
from turnwire.api.web.server import WebServer, WebSettings

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


class _NoGate:
    """Nothing is called through it."""

    def refused(self, *_: object) -> None:
        """Forgets it."""


@asynccontextmanager
async def listening(max_connections: int = 20) -> AsyncIterator[int]:
    """Runs a listener that has no methods; its port."""
    server, gate = WebServer(WebSettings(1024, max_connections)), _NoGate()
    port = int(server.bind("127.0.0.1", 0).rpartition(":")[2])
    await server.start((), gate)  # type: ignore[arg-type]
    try:
        yield port
    finally:
        await server.stop(timedelta())


async def said(port: int, request: bytes) -> bytes:
    """Returns all that is answered to a client that sends this and nothing more, until the listener closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_signals_stay_those_of_the_process() -> None:
    """Else uvicorn would take them, and end alone."""
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    async with listening():
        assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before


async def test_a_stop_ends_what_does_not_end_by_itself() -> None:
    """Requests whose body never comes, and connections that say nothing; a second stop finds nothing to do."""
    server, gate = WebServer(WebSettings(1024, 20)), _NoGate()
    port = int(server.bind("127.0.0.1", 0).rpartition(":")[2])
    await server.start((), gate)  # type: ignore[arg-type]
    readers = []
    for request in (b"", HEALTH, b"POST /a.b/c HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        readers.append((reader, writer))
    assert b" 200 " in await readers[1][0].readuntil(b"ok\n")
    for _ in range(2):
        await server.stop(timedelta())
    for reader, writer in readers:
        await reader.read()
        writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_listener_that_never_started_gives_its_address_back() -> None:
    """The start of something else failed."""
    server = WebServer(WebSettings(1024, 20))
    port = int(server.bind("127.0.0.1", 0).rpartition(":")[2])
    await server.stop(timedelta())
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


def test_an_address_that_is_in_use_leaves_no_socket() -> None:
    """The listener can take another one."""
    server = WebServer(WebSettings(1024, 20))
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        server.bind("127.0.0.1", other.getsockname()[1])
    assert server._socket is None


async def test_an_address_is_free_at_once_after_a_listener_before() -> None:
    """Although connections that it closed are still remembered: a server starts again at once."""
    with socket.create_server(("127.0.0.1", 0)) as before:
        port = before.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            before.accept()[0].close()
            assert client.recv(1) == b""
    server = WebServer(WebSettings(1024, 20))
    assert server.bind("127.0.0.1", port) == f"http://127.0.0.1:{port}"
    await server.stop(timedelta())


BROKEN = b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        (b"no HTTP\r\n\r\n",),
        (b"GET /healthz HTTP/1.1\r\n\r\n",),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",),
        (b"POST / HTTP/1.1\r\nhost: a\r\n" + BROKEN + b"no number\r\n",),
        (b"POST / HTTP/1.1\r\nhost: a\r\n" + BROKEN, b"no number\r\n"),
        (HEALTH, b"no HTTP\r\n\r\n"),
    ],
    ids=["nothing", "no host", "HTTP/2", "broken body", "broken after the answer", "broken afterwards"],
)
async def test_what_is_no_http_ends_its_connection_without_a_word(
    caplog: pytest.LogCaptureFixture, pieces: tuple[bytes, ...]
) -> None:
    """Anybody can send it, as often as he likes: no line of the log has it, neither uvicorn's nor the event loop's."""
    with caplog.at_level(logging.DEBUG), capture_logs() as lines:
        async with listening() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for at, piece in enumerate(pieces, 1):
                writer.write(piece)
                if at < len(pieces):
                    await reader.readuntil(b"\n\r\n")
            await reader.read()
            writer.close()
            assert await said(port, HEALTH.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    assert lines == []
    assert [one for one in caplog.records if one.levelno > logging.DEBUG] == []


LINES = b"a:\r\n" * 4_000
CLOSING = HEALTH.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
CHUNKED_HEALTH = HEALTH.replace(b"\r\n\r\n", b"\r\n" + BROKEN)


@pytest.mark.parametrize(
    "pieces",
    [
        (HEALTH[:-2] + LINES + b"\r\n",),
        (HEALTH[:-2] + LINES,),
        (HEALTH + HEALTH[:-2] + LINES + b"\r\n",),
        (CHUNKED_HEALTH + b"0\r\n" + LINES + b"\r\n",),
        (CHUNKED_HEALTH + b"2\r\nhi\r\n000;x\r\n" + LINES + b"\r\n",),
        (CHUNKED_HEALTH + b"0\r\n", LINES + b"\r\n"),
    ],
    ids=["head", "unfinished head", "second head", "trailers", "trailers of a chunk", "trailers that come later"],
)
def test_many_lines_are_refused_before_they_are_read(
    pieces: tuple[bytes, ...],
) -> None:
    """They hold the event loop of all, and nobody has been admitted yet."""
    connection = http._Connection()
    with pytest.raises(h11.RemoteProtocolError, match="too many lines"):
        for piece in pieces:
            connection.receive_data(piece)
            while (event := connection.next_event()) is not h11.NEED_DATA:
                if event is h11.PAUSED:
                    connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                    connection.send(h11.EndOfMessage())
                    connection.start_next_cycle()


async def test_lines_of_a_body_are_none_of_a_head() -> None:
    """Whether it has a size or chunks, whose data may look like the last one; and a head may have many lines."""
    body = b"0\r\n" + LINES
    head = HEALTH[:-2] + b"a:\r\n" * (http.MAX_HEAD_LINES - 10)
    chunks = b"1\r\n0\r\n%x\r\n%s\r\n0\r\na: b\r\n\r\n" % (len(body), body)
    async with listening() as port:
        sized = head + b"content-length: %d\r\n\r\n%s" % (len(body), body)
        answer = await said(port, sized + head + BROKEN + chunks + CLOSING)
        assert answer.count(b"HTTP/1.1 200") == 3
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEALTH[:-2] + LINES + b"\r\n")
        assert b" 400 " in await reader.readuntil(b"\r\n")
        await reader.read()
        writer.close()


async def test_a_wish_for_another_protocol_loses_no_body() -> None:
    """Clients ask for HTTP/2 with their first request; it is answered in HTTP/1.1, and so is the next one."""
    upgrade = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"
    first = b"GET /healthz HTTP/1.1\r\nhost: a\r\n%scontent-length: 2\r\n\r\nhi" % upgrade
    async with listening() as port:
        answer = await said(port, first + HEALTH.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    assert answer.count(b"HTTP/1.1 200") == 2


async def test_requests_that_come_together_are_answered_in_order() -> None:
    """Pipelining: the second one waits for the first."""
    async with listening() as port:
        answer = await said(port, HEALTH * 50 + HEALTH.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    assert answer.count(b"HTTP/1.1 200") == 51


async def test_every_answer_has_its_date() -> None:
    """The first one too; no answer names the software."""
    async with listening() as port:
        answer: Any = await said(port, HEALTH.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    head = answer.lower().partition(b"\r\n\r\n")[0]
    assert b"\r\ndate: " in head and b"\r\nserver: " not in head


def test_what_is_extended_of_uvicorn_is_there() -> None:
    """When this fails, another version calls its classes in another way: look at all of `Http` and `_Server`."""
    assert uvicorn.__version__.startswith("0.54.")
    for name in ("connection_made", "data_received", "on_response_complete", "connection_lost"):
        assert callable(getattr(H11Protocol, name))
    made = H11Protocol(Config(lambda: None), ServerState(), {}, asyncio.new_event_loop())  # type: ignore[arg-type]
    assert {"conn", "connections", "limit_concurrency", "loop", "transport"} <= vars(made).keys()
    made.loop.close()
    server = Server(Config(lambda: None))  # type: ignore[arg-type]
    assert {"server_state", "started"} <= vars(server).keys() and "servers" in inspect.getsource(Server.shutdown)
    assert inspect.iscoroutinefunction(server.startup) and callable(server.capture_signals)
