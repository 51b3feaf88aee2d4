"""The time before TLS: a connection is counted from its first moment, not from the end of its handshake.

asyncio shows a connection to its protocol after the handshake only. Those that never finish it would be bounded by
nothing, and take all files that the process may open.
"""

import asyncio
import ssl
from collections.abc import Callable

from turnwire.api.web.http.limits import HEAD_SECONDS, Connections


class Handshake(asyncio.Protocol):
    """One connection until it is encrypted; another protocol takes it then."""

    def __init__(
        self,
        context: ssl.SSLContext,
        make: Callable[[], asyncio.Protocol],
        connections: Connections,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Args:
        context: Encrypts.
        make: Makes what speaks on the encrypted connection.
        connections: All of the listener.
        loop: Runs them.
        """
        self._context, self._make, self._all, self._loop = context, make, connections, loop
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._early = b""
        """What the client said with the end of its handshake."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes the connection, unless there are too many."""
        self._transport = transport
        transport.pause_reading()  # the handshake reads
        if self._all.add(self, transport):
            self._task = self._loop.create_task(self._shake(transport))
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Keeps what comes before the other protocol has taken over."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self._all.remove(self)

    def shutdown(self) -> None:
        """Closes the connection: no request has begun."""
        if self._transport is not None:
            self._transport.abort()

    async def _shake(self, transport: asyncio.Transport) -> None:
        try:
            encrypted = await self._loop.start_tls(
                transport, self, self._context, server_side=True, ssl_handshake_timeout=HEAD_SECONDS
            )
        except OSError:  # of the client, which speaks no TLS, has no certificate, or is gone
            transport.abort()
            return
        finally:
            self._all.remove(self)
        if encrypted is None or encrypted.is_closing():
            return
        protocol = self._make()
        encrypted.set_protocol(protocol)
        protocol.connection_made(encrypted)
        if self._early:
            protocol.data_received(self._early)
