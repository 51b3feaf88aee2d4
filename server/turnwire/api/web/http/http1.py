"""HTTP/1.1 by uvicorn and httptools, with bounds that these leave to a proxy.

A connection is closed that sends no whole head of a request in time, or one that is too long, or that stays idle.
A connection that begins as HTTP/2 is handed to `http2`.
"""

import asyncio
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from turnwire.api.web.caller import PEER
from turnwire.api.web.http.http2 import PREFACE, Http2
from turnwire.api.web.http.limits import (
    HEAD_SECONDS,
    IDLE_SECONDS,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    STALL_SECONDS,
    Connections,
)

_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_NO_TUNNEL = b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


_OF_UPGRADES = frozenset({b"upgrade", b"http2-settings"})
"""Headers, and words of `connection`, by which a client asks for another protocol."""

_MAX_UPGRADES = 10
"""Requests for another protocol that came in one piece; nobody asks so often before an answer."""

_MAX_WAITING = 100
"""Requests of one connection that wait for the answer before them. Reading stops behind them, but one piece of what was
read has room for thousands, each of which takes a hundred times its bytes."""

_JOINED_BYTES = 65_536


class JoiningTransport:
    """A transport whose writes of one turn of the event loop leave as one.

    uvicorn writes the head and the body of an answer apart, and most answers are short: as two packets they would wake
    their client twice.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Takes the transport that writes."""
        self._transport, self._loop = transport, loop
        self._waiting: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        """Returns what the transport has."""
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Writes at the end of this turn, or at once when there is much."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(data)
        self._size += len(data)
        if self._size > _JOINED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what waits."""
        if self._waiting:
            waiting, self._waiting, self._size = self._waiting, [], 0
            self._transport.write(b"".join(waiting))

    def close(self) -> None:
        """Closes the connection after what waits."""
        self.flush()
        self._transport.close()


class Http1(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        all_connections: Connections,
    ) -> None:
        """Takes what uvicorn gives, and what all connections share."""
        super().__init__(config, server_state, app_state, _loop)
        self._all = all_connections
        self._plain: asyncio.Transport
        """The transport itself."""
        self._timer: asyncio.TimerHandle | None = None
        """Runs while no request is being answered: until the next one begins, then until its head is whole."""
        self._head_bytes: int | None = None
        """Of the head that is being read; None between the heads."""
        self._rest_bytes = 0
        """Of what came behind the last piece of a body: extensions of chunks, and trailers, which the parser keeps."""
        self._has_moved = False
        """Whether something other than that has come."""
        self._stall: asyncio.TimerHandle | None = None
        """Runs while the peer reads nothing."""
        self._running: RequestResponseCycle | None = None
        """What is being answered; later requests of the connection wait for it."""
        self._first: bytes | None = b""
        """The beginning of the connection, while it may be that of HTTP/2."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes the connection, unless there are too many."""
        super().connection_made(JoiningTransport(transport, self.loop))  # type: ignore[arg-type]
        self._plain = transport
        if not self._all.add(self, transport):
            self._refuse(_TOO_MANY)
            return
        self.app_state[PEER] = self._all.peer_certificate(transport)
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None and ssl_object.selected_alpn_protocol() == "h2":
            self._become_http2(b"")
            return
        self._wait(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends what the connection had: all its requests, of which uvicorn knows the last one."""
        for cycle in (self._running, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._all.remove(self)
        self._stop_waiting()
        self._end_stall()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads a piece of requests."""
        if self.transport.is_closing():
            return
        if self._first is not None:
            data = self._first + data
            if data[: len(PREFACE)] == PREFACE[: len(data)]:
                if len(data) < len(PREFACE):
                    self._first = data
                else:
                    self._become_http2(data)
                return
            self._first = None
        self._unset_keepalive_if_required()
        self._has_moved = False
        self._read(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
        self._rest_bytes = 0 if self._has_moved else self._rest_bytes + len(data)
        if max(self._head_bytes or 0, self._rest_bytes) > MAX_HEAD_BYTES:
            self._refuse(_TOO_LONG)

    def _read(self, data: bytes) -> None:
        for _ in range(_MAX_UPGRADES):
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._without_upgrade() + data[upgrade.args[0] :]
            except httptools.HttpParserError:
                self._refuse(_BAD_REQUEST)
                return
            else:
                return
        self._refuse(_NO_TUNNEL)

    def _without_upgrade(self) -> bytes:
        """Returns the head of a request that asks for another protocol as one that does not, for a new parser.

        Clients ask for HTTP/2 so, and the standard allows to stay. The parser stops behind such a head, and would lose
        the body. A CONNECT asks so in any form.
        """
        lines = [b"%s %s HTTP/1.1" % (self.parser.get_method(), self.url)]
        for name, value in self.headers:
            if name == b"connection":
                kept = [word for word in value.split(b",") if word.strip().lower() not in _OF_UPGRADES]
                lines.append(b"connection: " + b",".join(kept))
            elif name not in _OF_UPGRADES:
                lines.append(name + b": " + value)
        self.parser = httptools.HttpRequestParser(self)
        return b"\r\n".join((*lines, b"", b""))

    def on_message_begin(self) -> None:
        """Begins to wait for the rest of a head."""
        super().on_message_begin()
        self._head_bytes = 0
        if self._timer is not None:
            self._wait(HEAD_SECONDS)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header. Trailers are read by nobody, and must not become headers of a request that runs."""
        if self._head_bytes is None:
            return
        if len(self.headers) >= MAX_HEADERS:
            raise httptools.HttpParserError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begins to answer a request."""
        self._head_bytes = None
        self._has_moved = True
        if self.parser.should_upgrade():
            return  # see _without_upgrade
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MAX_HEAD_BYTES:
            self._refuse(_TOO_LONG)
            return
        if len(self.pipeline) >= _MAX_WAITING:
            raise httptools.HttpParserError("too many requests before an answer")
        self._stop_waiting()
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        """Takes a piece of a body, unless its request was refused."""
        self._has_moved = True
        if self.cycle is not None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Takes the end of a request, unless it was refused."""
        self._has_moved = True
        if self.cycle is not None:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Begins to wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._wait(IDLE_SECONDS)

    def pause_writing(self) -> None:
        """Stops: the peer does not read. It may not do so for ever."""
        super().pause_writing()
        self._stall = self.loop.call_later(STALL_SECONDS, self._plain.abort)

    def resume_writing(self) -> None:
        """Goes on."""
        self._end_stall()
        super().resume_writing()

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _refuse(self, answer: bytes) -> None:
        """Closes the connection, after an answer if none is under way: within another one it would be its content."""
        if self.transport.is_closing():
            return
        if self._running is None or self._running.response_complete:
            self.transport.write(answer)
        self.transport.close()

    def _become_http2(self, data: bytes) -> None:
        self._stop_waiting()
        self._all.remove(self)
        self.connections.discard(self)
        protocol = Http2(self.app, self._all, self.app_state, self.tasks, self.loop)
        self._plain.set_protocol(protocol)
        protocol.connection_made(self._plain)
        if data:
            protocol.data_received(data)

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        self.transport.close()
