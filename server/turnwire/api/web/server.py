"""The web listener: uvicorn serves `WebApplication` on one address, in the event loop of this process."""

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import Callable, Collection, Generator, Iterable
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from h11 import LocalProtocolError
from uvicorn import Config, Server

from turnwire.api.registry import Service
from turnwire.api.web.app import WebApplication
from turnwire.api.web.certificates import WebCertificates
from turnwire.api.web.console import Console
from turnwire.api.web.encoding.codecs import routes_of
from turnwire.api.web.http import Http
from turnwire.api.web.origins import Origins
from turnwire.api.web.protocols.call import Gatekeeper
from turnwire.api.web.tracing import TracedGate
from turnwire.ports.telemetry.tracing import NO_TRACER, Tracer

_BACKLOG = 1024

IDLE_SECONDS = 75
"""Longest wait of a connection for its next request. Browsers and proxies close theirs after about a minute."""

HANDSHAKE_SECONDS = 10.0
"""Longest time that a handshake of TLS may take: until its end, a connection is not counted."""

USER_TIMEOUT_MS = 30_000
"""Time until the system ends a connection whose peer is gone without notice, or reads nothing of what is sent."""

_PEER_OPTIONS = {
    (socket.SOL_SOCKET, "SO_KEEPALIVE"): 1,
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE"): 20,
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL"): 5,
    (socket.IPPROTO_TCP, "TCP_KEEPCNT"): 2,
}
"""Options by which a peer that is gone is noticed while nothing is sent to it: within half a minute, as gRPC does."""

STOP_SECONDS = 5.0
"""Time that the end of cancelled requests, then of connections, is waited for; they end at once."""


class WebSettings(NamedTuple):
    """Settings of the listener."""

    max_message_bytes: int
    """Size of the largest request in bytes."""
    max_connections: int
    allowed_origins: Collection[str] = ()
    """Origins of pages that may call, in addition to the listener's own."""
    hosts: Collection[str] = ()
    """Names by which the listener is called, in addition to addresses and `localhost`."""
    max_bodies_bytes: int = 0
    """Size of all bodies that are being read, in bytes; two of the largest requests always have room."""


class _Server(Server):
    """uvicorn in a process that has an event loop and signals of its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leaves the signals to the process, which stops its listeners."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens at the sockets. uvicorn would do the same, and leave the minute of asyncio to handshakes."""
        make = partial(Http, self.config, self.server_state, {})
        tls = self.config.ssl
        self.servers = [
            await asyncio.get_running_loop().create_server(
                make, sock=one, ssl=tls, ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None, backlog=_BACKLOG
            )
            for one in sockets or ()
        ]
        self.started = True


class WebServer:
    """Serves the contract and the console on one address: `bind`, then `start`, then `stop`."""

    def __init__(
        self,
        settings: WebSettings,
        certificates: WebCertificates | None = None,
        tracer: Tracer = NO_TRACER,
        *,
        problem: Callable[[], str] = lambda: "",
    ) -> None:
        """Args:
        settings: Bounds, and which pages may call.
        certificates: For TLS; without them nothing is encrypted.
        tracer: Starts the spans of calls; without one they cost nothing.
        problem: Returns why calls cannot be carried out; "" if they can.
        """
        self._settings, self._tracer, self._certificates = settings, tracer, certificates
        # TLS proves the name that was called; without it, a name that resolves to this machine proves nothing
        origins = Origins(settings.allowed_origins, settings.hosts, checks_host=certificates is None)
        self._application = WebApplication(
            origins, Console(), settings.max_message_bytes, problem, settings.max_bodies_bytes
        )
        self._socket: socket.socket | None = None
        """The bound one, until uvicorn has it."""
        self._server = _Server(self._config())
        self._serving: asyncio.Task[None] | None = None

    def _config(self) -> Config:
        certificates = self._certificates
        # half of the files are left to gRPC and the database
        max_connections = min(
            self._settings.max_connections, max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        )
        return Config(
            self._application,
            interface="asgi3",
            http=Http,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",  # words about bad requests, of which anybody can send many
            access_log=False,
            proxy_headers=False,  # they would let callers choose their address
            server_header=False,
            limit_concurrency=max_connections + 1,  # one more, for uvicorn refuses requests from this number on
            timeout_keep_alive=IDLE_SECONDS,
            ssl_context_factory=None if certificates is None else lambda *_: certificates.context(),
        )

    def bind(self, host: str, port: int, *, shares_port: bool = False) -> str:
        """Takes the address. Callers can connect, but wait until `start`.

        Args:
            host: A name or an address.
            port: 0 selects a free port.
            shares_port: Whether other processes listen on the same address.

        Returns:
            The URL with the actual port, such as http://127.0.0.1:8080.

        Raises:
            OSError: the address is in use or cannot be bound.
        """
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._socket = socket.socket(family, kind, protocol)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shares_port:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            _notice_dead_peers(self._socket)
            self._socket.setblocking(False)
            self._socket.bind(address)
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self._close_socket()
            problem = "the address is in use or not an address of this machine; set another with --web or web.listen"
            raise OSError(f"cannot listen on {host}:{port}: {problem}") from error
        name = f"[{host}]" if ":" in host else host
        scheme = "http" if self._certificates is None else "https"
        return f"{scheme}://{name}:{self._socket.getsockname()[1]}"

    async def start(self, services: Iterable[Service], gate: Gatekeeper) -> None:
        """Begins to answer calls of the services through the gate. The address must have been bound."""
        assert self._socket is not None
        logging.getLogger("asyncio").addFilter(_is_of_the_server)
        traced = gate if self._tracer is NO_TRACER else TracedGate(gate, self._tracer)
        self._application.open(routes_of(services), traced)
        taken, self._socket = self._socket, None
        self._serving = asyncio.create_task(self._server.serve(sockets=[taken]))
        while not self._server.started:  # a few rounds of the loop
            if self._serving.done():
                await self._serving
            await asyncio.sleep(0)

    async def stop(self, grace: timedelta) -> None:
        """Refuses new calls, and cancels running ones that do not end within the grace period. Idempotent.

        An open stream would delay this for the whole period, so close the feed first.
        """
        self._application.close()
        self._close_socket()
        if self._serving is None:
            return
        self._server.should_exit = True
        await asyncio.wait((self._serving,), timeout=grace.total_seconds())
        if not self._serving.done():
            await self._application.end(STOP_SECONDS)
            self._server.force_exit = True  # it waits for connections of which nothing more comes
            await asyncio.wait((self._serving,), timeout=STOP_SECONDS)
        self._serving.cancel()
        await asyncio.wait((self._serving,))

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _is_of_the_server(record: logging.LogRecord) -> bool:
    """Returns whether a line of the event loop is about the server, not about a client that sends no HTTP.

    uvicorn answers a broken body also when the application has answered before, which h11 refuses: an exception for
    each connection that anybody makes.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], LocalProtocolError))


def _notice_dead_peers(listening: socket.socket) -> None:
    """Sets what the system does about peers that are gone. Accepted connections take it from the listening socket."""
    options = {**_PEER_OPTIONS, (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT"): USER_TIMEOUT_MS}
    for (level, name), value in options.items():
        if (option := getattr(socket, name, None)) is not None:  # some systems lack some of them
            with contextlib.suppress(OSError):
                listening.setsockopt(level, option, value)
