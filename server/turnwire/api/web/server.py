"""The web listener: binds an address, and starts and stops what answers on it."""

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import NamedTuple

from uvicorn.config import Config
from uvicorn.server import ServerState

from turnwire.api.registry import Service
from turnwire.api.web.app import WebApplication
from turnwire.api.web.console import Console
from turnwire.api.web.encoding.codecs import routes_of
from turnwire.api.web.http.certificates import WebCertificates
from turnwire.api.web.http.handshakes import watch_handshakes
from turnwire.api.web.http.http1 import Http1
from turnwire.api.web.http.limits import HEAD_SECONDS, IDLE_SECONDS, Connections
from turnwire.api.web.http.work import a_few_at_a_time
from turnwire.api.web.origins import Origins
from turnwire.api.web.protocols.call import Gatekeeper
from turnwire.api.web.tracing import TracedGate
from turnwire.ports.telemetry.tracing import NO_TRACER, Tracer

_BACKLOG = 1024

STOP_SECONDS = 5.0
"""How long the end of cancelled requests is waited for; they end at once."""


class WebSettings(NamedTuple):
    """What the listener takes."""

    max_message_bytes: int
    """Size of the largest request in bytes."""
    max_connections: int
    allowed_origins: Collection[str] = ()
    """Origins of pages that may call, beside the listener's own."""
    hosts: Collection[str] = ()
    """Names by which the listener is called, beside addresses and `localhost`."""


class WebServer:
    """Serves the contract and the console on one address: `bind`, then `start`, then `stop`."""

    def __init__(
        self,
        settings: WebSettings,
        certificates: WebCertificates | None = None,
        tracer: Tracer = NO_TRACER,
        *,
        handshake_failed: Callable[[str], None] = lambda _: None,
        problem: Callable[[], str] = lambda: "",
    ) -> None:
        """Args:
        settings: Bounds, and which pages may call.
        certificates: For TLS; without them nothing is encrypted.
        tracer: Starts the spans of calls; without one they cost nothing.
        handshake_failed: Called with the problem of each handshake of TLS that fails.
        problem: Returns why calls cannot be carried out; "" if they can.
        """
        self._tracer = tracer
        self._certificates = certificates
        self._handshake_failed = handshake_failed
        # TLS proves the name that was called; without it, a name that resolves to this machine proves nothing
        origins = Origins(settings.allowed_origins, settings.hosts, checks_host=certificates is None)
        self._application = WebApplication(origins, Console(), settings.max_message_bytes, problem)
        self._connections = Connections(settings.max_connections)
        self._state = ServerState()
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None

    def bind(self, host: str, port: int) -> str:
        """Takes the address. Callers can connect, but wait until `start`.

        Args:
            host: A name or an address.
            port: 0 selects a free port.

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
        traced = gate if self._tracer is NO_TRACER else TracedGate(gate, self._tracer)
        self._application.open(routes_of(services), traced)
        # words about bad requests would fill the log; what is said of errors, the application logs itself
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        logging.getLogger("hpack").setLevel(logging.CRITICAL)  # tells the headers with their credentials
        config = Config(
            self._application,
            interface="asgi3",
            http=Http1,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # they would let callers choose their address
            server_header=False,
            date_header=False,
            timeout_keep_alive=round(IDLE_SECONDS),
        )
        config.load()
        loop = asyncio.get_running_loop()

        def connection() -> Http1:
            return Http1(config, self._state, {}, loop, all_connections=self._connections)

        if self._certificates is None:
            self._server = await loop.create_server(connection, sock=self._socket, backlog=_BACKLOG)
            return
        context = self._certificates.context()
        watch_handshakes(context, self._connections, self._handshake_failed)
        self._server = await loop.create_server(
            connection, sock=self._socket, backlog=_BACKLOG, ssl=context, ssl_handshake_timeout=HEAD_SECONDS
        )

    async def stop(self, grace: timedelta) -> None:
        """Refuses new calls, and cancels running ones that do not end within the grace period. Idempotent.

        An open stream would delay this for the whole period, so close the feed first.
        """
        self._application.close()
        if self._server is not None:
            self._server.close()
        self._close_socket()
        await self._connections.shutdown()
        running = set(self._state.tasks)
        if running:
            _, running = await asyncio.wait(running, timeout=grace.total_seconds())
        async for task in a_few_at_a_time(running):
            task.cancel()
        if running := {task for task in running if not task.done()}:
            await asyncio.wait(running, timeout=STOP_SECONDS)
        await self._connections.abort()

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
