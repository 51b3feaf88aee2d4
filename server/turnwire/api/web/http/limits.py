"""Bounds of connections, and the set of those that are open."""

import asyncio
import contextlib
import resource
import socket
import ssl
import weakref
from typing import Any, Protocol

from turnwire.api.admission.abuse import CutOffLog
from turnwire.api.web.http.certificates import certificate_of
from turnwire.api.web.http.work import Work, a_few_at_a_time
from turnwire.ports.identity.authenticator import ClientCertificate

MAX_HEAD_BYTES = 32_768
"""Of the first line and the headers of a request. A credential has 8 KiB at most; gRPC takes 16 KiB in all. A call by
GET has its message in the first line."""

MAX_HEADERS = 100
"""Of one request; browsers send about 20."""

HEAD_SECONDS = 10.0
"""How long the head of a request may take from its first byte, or from the beginning of the connection."""

IDLE_SECONDS = 75.0
"""How long a connection may wait for the next request."""

STALL_SECONDS = 60.0
"""How long a peer may read nothing of what waits for it, although it is there."""

_KEEPALIVE_IDLE_SECONDS = 20
_KEEPALIVE_TRIES = 2
_USER_TIMEOUT_MS = 30_000
"""When a peer that is gone without a word is noticed: half a minute, as gRPC does."""


class Connection(Protocol):
    """What the listener does with a connection when it stops."""

    def shutdown(self) -> None:
        """Closes the connection once its requests are answered; at once if there are none."""
        ...


class Connections:
    """The open connections of one listener."""

    def __init__(self, max_connections: int) -> None:
        """Takes how many there may be.

        They are never more than half of the files that the process may open: the database and gRPC need some too.
        """
        self._max = min(max_connections, max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
        self._transports: dict[Connection, asyncio.Transport] = {}
        self._handshakes = weakref.WeakSet[ssl.SSLObject]()
        """Those of TLS that are under way. One whose client leaves goes with its connection."""
        self._is_stopped = False
        self._cut_offs = CutOffLog()
        self.work = Work()
        """What they have still to read."""

    def __len__(self) -> int:
        """Returns how many are open."""
        return len(self._transports)

    def add(self, connection: Connection, transport: asyncio.Transport) -> bool:
        """Takes a connection. Returns False when there are too many or the listener stops, and takes none then.

        A handshake that is under way when the listener stops ends after that.
        """
        if self._is_stopped or len(self._transports) >= self._max:
            return False
        self._transports[connection] = transport
        _notice_dead_peers(transport.get_extra_info("socket"))
        return True

    def begin_handshake(self, tls: ssl.SSLObject) -> bool:
        """Counts a handshake, in place of the connection that it becomes.

        Returns False when there are too many of both or the listener stops, and does not count it then.
        """
        if self._is_stopped or len(self._transports) + len(self._handshakes) >= self._max:
            return False
        self._handshakes.add(tls)
        return True

    def end_handshake(self, tls: ssl.SSLObject) -> None:
        """Counts a handshake no more. Idempotent."""
        self._handshakes.discard(tls)

    def remove(self, connection: Connection) -> None:
        """Forgets a connection. Idempotent."""
        self._transports.pop(connection, None)

    async def shutdown(self) -> None:
        """Closes all connections that are idle, and the others once they are. Returns when all are told.

        No further one is taken.
        """
        self._is_stopped = True
        async for connection in a_few_at_a_time(list(self._transports)):
            if connection in self._transports:
                connection.shutdown()

    async def abort(self) -> None:
        """Closes all connections, whatever they do."""
        async for transport in a_few_at_a_time(list(self._transports.values())):
            transport.abort()

    def cut_off(self, transport: asyncio.Transport, reason: str) -> None:
        """Logs a peer that attacks, and whose connection is closed therefore."""
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self._cut_offs.note(f"{host}:{port}", "web", reason)

    def peer_certificate(self, transport: asyncio.Transport) -> ClientCertificate | None:
        """Returns the verified certificate of a client; None if it presented none."""
        ssl_object = transport.get_extra_info("ssl_object")
        return None if ssl_object is None else certificate_of(ssl_object.getpeercert())


def _notice_dead_peers(connection: Any) -> None:
    if connection is None:
        return
    options = {
        (socket.SOL_SOCKET, "SO_KEEPALIVE"): 1,
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE"): _KEEPALIVE_IDLE_SECONDS,
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL"): 5,
        (socket.IPPROTO_TCP, "TCP_KEEPCNT"): _KEEPALIVE_TRIES,
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT"): _USER_TIMEOUT_MS,
    }
    for (level, name), value in options.items():
        if (option := getattr(socket, name, None)) is not None:
            with contextlib.suppress(OSError):
                connection.setsockopt(level, option, value)
