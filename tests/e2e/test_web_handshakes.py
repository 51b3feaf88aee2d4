"""Handshakes of the web listener: those whose first bytes come at once, as from the same machine, and silent ones."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Self

import pytest
import uvloop

from tests.support.servers.authority import Authority
from turnwire.api.web import server
from turnwire.api.web.certificates import WebCertificates
from turnwire.api.web.protocols.call import Gatekeeper
from turnwire.api.web.server import WebServer, WebSettings

AUTHORITY = Authority("Turnwire tests")
CONNECTIONS = 60
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

    def __init__(self, folder: Path, make_loop: Callable[[], asyncio.AbstractEventLoop], *, is_busy: bool) -> None:
        """Takes where files may be written, and whether something else holds the loop all the time."""
        files = AUTHORITY.issue("", "localhost").write(folder, "web")
        self._server = WebServer(WebSettings(1024, 2 * CONNECTIONS), WebCertificates(*files))
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


of_both_loops = pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop])


@pytest.mark.slow
@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
@of_both_loops
def test_no_connection_is_lost(
    tmp_path: Path, make_loop: Callable[[], asyncio.AbstractEventLoop], is_busy: bool
) -> None:
    """Bytes that come before the listener has looked at the connection belong to its handshake."""
    context = ssl.create_default_context(cadata=AUTHORITY.pem.decode())
    with Listener(tmp_path, make_loop, is_busy=is_busy) as listener:
        answers = [_ask(listener.port, context) for _ in range(CONNECTIONS)]
    assert answers == [b"HTTP/1.1 200 OK"] * CONNECTIONS


@pytest.mark.slow
@of_both_loops
def test_a_silent_handshake_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Until its end no connection is counted, so that anybody could take all files of the process."""
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.1)
    with (
        Listener(tmp_path, make_loop, is_busy=False) as listener,
        socket.create_connection(("127.0.0.1", listener.port), timeout=SECONDS) as silent,
    ):
        assert silent.recv(1) == b""
