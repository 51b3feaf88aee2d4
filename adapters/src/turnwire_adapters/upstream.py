"""The Turnwire server behind the adapters: one client for each caller's token.

A client is a connection and the token that goes with each of its calls, so callers of different tokens never share one.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from turnwire_adapters.settings import Target
from turnwire_client import Client, Tls

MAX_CLIENTS = 256
"""Clients that are kept while no request uses them; the one that was idle for the longest time goes first."""


@dataclass(slots=True)
class _Shared:
    """A client of several requests."""

    client: Client
    users: int = 0
    """Requests that use it now; at 0 it can be closed."""
    opened: bool = False
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it connects: an attempt that fails closes the channel, which other requests must not use yet."""


class Upstream:
    """Gives each request a client with the caller's own token. For one event loop."""

    def __init__(self, target: Target) -> None:
        """Connects to nothing yet."""
        self.target = target
        self._clients: OrderedDict[str, _Shared] = OrderedDict()

    @contextlib.asynccontextmanager
    async def client(self, token: str = "") -> AsyncIterator[Client]:
        """Lends a client until the block ends.

        Args:
            token: The caller's bearer token; "" for none.

        Raises:
            TurnwireError: the server does not answer, or does not take the token.
            ValueError: the token has characters that no token has, or would be sent where others can read it.
        """
        shared = self._clients.get(token)
        if shared is None:
            shared = self._clients[token] = _Shared(self._new(token))
        self._clients.move_to_end(token)
        shared.users += 1
        try:
            async with shared.opening:
                if not shared.opened:
                    await shared.client.open()
                    shared.opened = True
            yield shared.client
        finally:
            shared.users -= 1
            if not shared.opened and not shared.users and self._clients.get(token) is shared:
                del self._clients[token]  # a token that is not taken must not push out one that is
            await self._close_idle()

    async def check(self) -> None:
        """Asks the server who it is, without a token. Raises TurnwireError when it does not answer."""
        async with self._new(""):
            return

    async def identifies_callers(self) -> bool:
        """Returns whether the server wants to know who calls. Raises TurnwireError when it does not answer."""
        async with self._new("") as client:
            return bool(client.server.offered_auth)

    async def close(self) -> None:
        """Ends all connections. Idempotent."""
        while self._clients:
            _, shared = self._clients.popitem()
            await shared.client.close()

    def _new(self, token: str) -> Client:
        target = self.target
        files = any((target.ca, target.cert))
        tls = Tls(target.ca, target.cert, target.key) if files else target.encrypted
        return Client.connect(target.address, token=token, tls=tls, holder="turnwire-adapters")

    async def _close_idle(self) -> None:
        while len(self._clients) > MAX_CLIENTS:
            # Looked for anew after each one: while it closes, others are lent or closed.
            idle = next((token for token, shared in self._clients.items() if not shared.users), None)
            if idle is None:
                return
            await self._clients.pop(idle).client.close()
