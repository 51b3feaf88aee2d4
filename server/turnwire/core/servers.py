"""The servers that share a database, as the core needs them: each has some of the sessions; this one is among them."""

from collections.abc import AsyncGenerator
from typing import Protocol

from msgspec import Struct

from turnwire.domain.principal import Principal
from turnwire.feed.memory import Subscription


class PartRequest(Struct, frozen=True, kw_only=True, array_like=True):
    """A request for the part of one server in a watch of all sessions: about the sessions that it has."""

    include_deltas: bool = True
    """False omits part_started, part_delta and tool_log."""
    is_conflated: bool = False
    """True: the state of each part that changed, a few times a second, and no events."""
    session_ids: frozenset[str] = frozenset()
    """The sessions whose states are needed; empty for all."""


class ServerLost(Exception):
    """A server is gone, or its sessions are. What it has done since its last answer is unknown."""


class Servers(Protocol):
    """All servers of the database."""

    def owns(self, key: str) -> bool:
        """Returns whether this server owns the shard of an id."""
        ...

    def owner_of(self, shard: int) -> str | None:
        """Returns the address of the server that owns a shard, which may be stale; "" for this one, None for none."""
        ...

    async def changed(self, seconds: float) -> None:
        """Returns when that may have changed, at the latest after some time."""
        ...

    def share(self, address: str, principal: Principal, request: bytes) -> AsyncGenerator[bytes]:
        """Has another server carry out its share of an import, and yields its reports; see `Shares.serve`.

        Closing the iterator ends it there.

        Raises:
            ServerLost: the rest is for the servers that have the sessions by now.
        """
        ...

    def watch_all(self, tenant: str, request: PartRequest) -> Subscription:
        """Watches all sessions of a tenant. What is not stored comes as the parts of the servers have it.

        Raises:
            TooManyWatchers: the limit on open subscriptions is reached.
            ShuttingDown: this server stops.
        """
        ...
