"""The servers that share a database, as the core needs them: each has some of the sessions; this one is among them."""

from typing import Protocol

from msgspec import Struct

from turnwire.feed.memory import Subscription


class PartRequest(Struct, frozen=True, kw_only=True, array_like=True):
    """A request for the part of one server in a watch of all sessions: about the sessions that it has."""

    include_deltas: bool = True
    """False omits part_started, part_delta and tool_log."""
    is_conflated: bool = False
    """True: the state of each part that changed, a few times a second, and no events."""
    session_ids: frozenset[str] = frozenset()
    """The sessions whose states are needed; empty for all."""


class Servers(Protocol):
    """All servers of the database."""

    def watch_all(self, tenant: str, request: PartRequest) -> Subscription:
        """Watches all sessions of a tenant. What is not stored comes as the parts of the servers have it.

        Raises:
            TooManyWatchers: the limit on open subscriptions is reached.
            ShuttingDown: this server stops.
        """
        ...
