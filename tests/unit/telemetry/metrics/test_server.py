"""The metrics' own HTTP server: what it answers, and what it does not wait for."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator

import pytest

from turnwire.telemetry.metrics import server
from turnwire.telemetry.metrics.server import MAX_CONNECTIONS, MAX_REQUEST_BYTES, MetricsServer


@contextlib.asynccontextmanager
async def _serving(*, checks_host: bool = False) -> AsyncIterator[tuple[str, int]]:
    async def text() -> bytes:
        return b"turnwire_up 1\n"

    metrics = MetricsServer(text, "text/plain; version=1.0.0", checks_host=checks_host)
    host, _, port = metrics.start("127.0.0.1", 0).rpartition(":")
    try:
        yield host, int(port)
    finally:
        await metrics.aclose()


async def _ask(address: tuple[str, int], request: bytes) -> bytes:
    """Sends bytes and returns all that comes until the other side closes."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /metrics HTTP/1.1", "200 OK"),
        ("GET /metrics?name[]=x HTTP/1.1", "200 OK"),
        ("HEAD /metrics HTTP/1.1", "200 OK"),
        ("POST /metrics HTTP/1.1", "405 Method Not Allowed"),
        ("GET / HTTP/1.1", "404 Not Found"),
        ("GET", "404 Not Found"),
    ],
)
async def test_it_answers_one_path(request_line: str, status: str) -> None:
    """And closes the connection."""
    async with _serving() as address:
        answer = await _ask(address, f"{request_line}\r\nHost: x\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status}\r\n".encode())
    assert (body == b"turnwire_up 1\n") == (request_line.startswith("GET /metrics"))
    assert b"Connection: close" in head


@pytest.mark.parametrize(
    ("hosts", "is_answered"),
    [
        (["127.0.0.1:9464"], True),
        (["localhost"], True),
        (["[::1]:9464"], True),
        ([], True),
        (["evil.example:9464"], False),
        (["localhost.evil.example"], False),
        (["localhost", "evil.example"], False),
        ([""], False),
    ],
)
async def test_a_page_whose_name_resolves_to_this_machine_reads_nothing(hosts: list[str], is_answered: bool) -> None:
    """Its browser calls by that name. Programs other than browsers may name none."""
    head = "".join(f"hOsT: {host}\r\n" for host in hosts)
    request = f"GET /metrics HTTP/1.1\r\n{head}\r\n".encode()
    async with _serving(checks_host=True) as address:
        assert (b"turnwire_up" in await _ask(address, request)) == is_answered
    async with _serving() as address:  # one that other machines can reach has names of its own
        assert b"turnwire_up" in await _ask(address, request)


@pytest.mark.parametrize("sent", [b"\x16\x03\x01", b"x" * (2 * MAX_REQUEST_BYTES), b""])
async def test_what_is_no_request_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes without an end are not kept, and nobody waits longer than the limit."""
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.05)
    async with _serving() as address:
        assert await _ask(address, sent) == b""
        monkeypatch.undo()
        assert b"turnwire_up" in await _ask(address, b"GET /metrics HTTP/1.1\r\n\r\n")


async def test_connections_are_bounded() -> None:
    """One more than the limit is closed at once; when one goes, the next is answered."""
    async with _serving() as address, contextlib.AsyncExitStack() as stack:
        silent = []
        for _ in range(MAX_CONNECTIONS):
            _, writer = await asyncio.open_connection(*address)
            stack.callback(writer.close)
            silent.append(writer)
        assert await _ask(address, b"GET /metrics HTTP/1.1\r\n\r\n") == b""
        silent[0].close()
        await silent[0].wait_closed()
        while not await _ask(address, b"GET /metrics HTTP/1.1\r\n\r\n"):
            pass


async def test_it_runs_beside_a_held_loop() -> None:
    """An operator sees why nothing else answers."""
    async with _serving() as address:
        with socket.create_connection(address, timeout=200) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")  # blocking calls: this loop runs nothing meanwhile
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    assert answer.endswith(b"turnwire_up 1\n")


async def test_a_close_leaves_neither_thread_nor_connection() -> None:
    """Neither connections that wait for an answer nor those that are being accepted hold it or stay open."""
    async with _serving() as address:
        asked = [await asyncio.open_connection(*address) for _ in range(5)]
        opening = [asyncio.create_task(asyncio.open_connection(*address)) for _ in range(5)]
        await asyncio.sleep(0)
    assert "metrics" not in [thread.name for thread in threading.enumerate()]
    opened = await asyncio.gather(*opening, return_exceptions=True)
    for reader, writer in [*asked, *(found for found in opened if not isinstance(found, BaseException))]:
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
    with socket.create_server(address):  # nobody listens there any more
        pass


async def test_a_taken_port_is_an_error_with_its_address() -> None:
    """The start of the server fails with it."""
    async with _serving() as (host, port):

        async def text() -> bytes:
            return b""

        with pytest.raises(OSError, match=rf"cannot serve metrics on {host}:{port}: "):
            MetricsServer(text, "text/plain").start(host, port)
