"""Handshakes of the web listener whose first bytes come at once, as those of browsers on the same machine do."""

import asyncio
import contextlib
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Self

import pytest

from tests.support.servers.authority import Authority
from turnwire.api.web import server
from turnwire.api.web.http import handshakes
from turnwire.api.web.http.certificates import WebCertificates
from turnwire.api.web.protocols.call import Gatekeeper
from turnwire.api.web.server import WebServer, WebSettings
from turnwire.event_loop.fair_loop import fair_loop

AUTHORITY = Authority("Turnwire tests")
CONNECTIONS = 60
MAX_CONNECTIONS = 5
PIECE_SECONDS = 0.02
SECONDS = 30.0


class NoGate(Gatekeeper):
    """Nothing is called through it."""


async def _hold() -> None:
    """Holds the loop in pieces for as long as it runs."""
    while True:
        time.sleep(PIECE_SECONDS)
        await asyncio.sleep(0)


class Listener:
    """Serves the console with TLS on a thread with a loop of its own; a context manager."""

    def __init__(
        self,
        folder: Path,
        make_loop: Callable[[], asyncio.AbstractEventLoop],
        *,
        is_busy: bool,
        max_connections: int = 100,
    ) -> None:
        """Takes where files may be written, whether something else holds the loop all the time, and a bound."""
        files = AUTHORITY.issue("", "localhost").write(folder, "web")
        self.failures = queue.SimpleQueue[str]()
        """Problems of handshakes."""
        self._server = WebServer(
            WebSettings(1024, max_connections),
            WebCertificates(*files, None),
            handshake_failed=self.failures.put,
        )
        self.port = int(self._server.bind("127.0.0.1", 0).rpartition(":")[2])
        self._is_busy = is_busy
        self._loop, self._stopping, self._started = make_loop(), asyncio.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Returns when connections are answered."""
        self._thread.start()
        assert self._started.wait(SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        """Stops."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(SECONDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        await self._server.start((), NoGate())
        holding = asyncio.create_task(_hold()) if self._is_busy else None
        self._started.set()
        await self._stopping.wait()
        if holding is not None:
            holding.cancel()
        await self._server.stop(timedelta())


def _ask(port: int, context: ssl.SSLContext) -> bytes:
    """Returns the status line of an answer. The first bytes leave in the moment in which the connection is there."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(received, sent, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = sent.read()
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        connection.sendall(hello)

        def until_done(step: Callable[[], bytes | int | None]) -> bytes | int | None:
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    connection.sendall(sent.read())
                    received.write(connection.recv(65_536) or pytest.fail("closed"))

        until_done(tls.do_handshake)
        tls.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = until_done(tls.read)
    assert isinstance(answer, bytes)
    return answer.partition(b"\r\n")[0]


def _send(port: int, data: bytes, *, leaves: bool = False) -> None:
    """Sends bytes, and waits for the end of the connection unless its client is to leave at once."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        connection.sendall(data)
        while not leaves and connection.recv(65_536):
            pass


def _wait_for_room(listener: Listener) -> None:
    """Connects until what is no TLS is refused as such, not for its number."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(ConnectionError):
            _send(listener.port, b"GET / HTTP/1.1\r\n\r\n")
        if "HTTP_REQUEST" in listener.failures.get(timeout=SECONDS):
            return
    pytest.fail("there is no room after clients have left")


of_both_loops = pytest.mark.parametrize("make_loop", [fair_loop, asyncio.new_event_loop], ids=["serve", "asyncio"])


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
@of_both_loops
def test_no_connection_is_lost(
    tmp_path: Path, make_loop: Callable[[], asyncio.AbstractEventLoop], is_busy: bool
) -> None:
    """Whatever comes before the listener has looked at the connection belongs to its handshake."""
    context = ssl.create_default_context(cadata=AUTHORITY.pem.decode())
    with Listener(tmp_path, make_loop, is_busy=is_busy) as listener:
        answers = [_ask(listener.port, context) for _ in range(CONNECTIONS)]
    assert answers == [b"HTTP/1.1 200 OK"] * CONNECTIONS
    assert listener.failures.empty()


@of_both_loops
def test_handshakes_that_fail_are_reported(
    tmp_path: Path, make_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once: those of clients without TLS, of clients that leave, and those that do not end in time."""
    with Listener(tmp_path, make_loop, is_busy=False) as listener:
        _send(listener.port, b"GET / HTTP/1.1\r\n\r\n")
        assert "HTTP_REQUEST" in listener.failures.get(timeout=SECONDS)
    for module in (handshakes, server):
        monkeypatch.setattr(module, "HEAD_SECONDS", 0.5)
    with Listener(tmp_path, make_loop, is_busy=False) as listener:
        _send(listener.port, b"")
        assert "not ended after" in listener.failures.get(timeout=SECONDS)
        _send(listener.port, b"\x16\x03\x01", leaves=True)
        assert "not ended after" in listener.failures.get(timeout=SECONDS)
        assert _ask(listener.port, ssl.create_default_context(cadata=AUTHORITY.pem.decode())) == b"HTTP/1.1 200 OK"
        _send(listener.port, b"")  # so that the time of the one before is over
        listener.failures.get(timeout=SECONDS)
    assert listener.failures.empty()


@of_both_loops
def test_silent_connections_are_bounded(tmp_path: Path, make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Those over the limit are closed before they have sent anything, and who comes when others left is answered."""
    context = ssl.create_default_context(cadata=AUTHORITY.pem.decode())
    with (
        Listener(tmp_path, make_loop, is_busy=False, max_connections=MAX_CONNECTIONS) as listener,
        contextlib.ExitStack() as silent,
    ):
        clients = [
            silent.enter_context(socket.create_connection(("127.0.0.1", listener.port), timeout=SECONDS))
            for _ in range(3 * MAX_CONNECTIONS)
        ]
        for client in clients[MAX_CONNECTIONS:]:
            assert client.recv(1) == b""
            assert "too many connections" in listener.failures.get(timeout=SECONDS)
        for client in clients[:MAX_CONNECTIONS]:
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)
            client.settimeout(SECONDS)
        for client in clients[:MAX_CONNECTIONS]:
            client.close()
        _wait_for_room(listener)
        assert _ask(listener.port, context) == b"HTTP/1.1 200 OK"
