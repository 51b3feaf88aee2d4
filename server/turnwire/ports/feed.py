"""The feed: delivers new events to current watchers.

The store publishes durable events to it, a running turn its ephemeral ones. It keeps the newest of both in memory,
bounded by bytes; a watcher that falls behind reads the store instead. Used on the event loop only; publishing never
waits.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from turnwire.domain.conversation.events import Event
from turnwire.ports.store import StoredEvent


class Entry(Struct, frozen=True):
    """One event in the feed."""

    event: Event
    frame: bytes
    order: int
    """Its sequence, or its position in a subscription to all sessions; 0 when it is not durable."""


class Taken(Struct, frozen=True):
    """Waiting events that a subscription took."""

    frames: bytes
    """Joined frames, in order."""
    order: int
    """Order of the newest durable event among them; 0 when there is none."""


class Subscription(Protocol):
    """A cursor into the feed. Starts at the end: the next event published is its first. Used by one task."""

    @property
    def closed(self) -> bool:
        """True when no event will follow: the session was deleted or the feed closed."""
        ...

    @property
    def shutting_down(self) -> bool:
        """True when the feed closed."""
        ...

    @property
    def lagging(self) -> bool:
        """True when events after the cursor were dropped: call `skip` and read the store."""
        ...

    @property
    def behind(self) -> bool:
        """True when an event waits to be taken."""
        ...

    @property
    def head(self) -> int:
        """Order of the newest durable event that the feed has seen; 0 when it has seen none."""
        ...

    def take(self, max_bytes: int) -> Taken:
        """Takes waiting events: at least one if there is any, about max_bytes at most. Must not be lagging."""
        ...

    def take_entries(self, max_entries: int | None = None) -> Sequence[Entry]:
        """Takes waiting events, as entries: so many at most, or all. Must not be lagging."""
        ...

    def skip(self) -> None:
        """Moves the cursor to the end."""
        ...

    async def wait(self) -> None:
        """Returns when an event waits, the subscription closed, or a heartbeat may be due. Safe to cancel.

        Lets the event loop go on with others first, also when an event waits already.
        """
        ...

    def close(self) -> None:
        """Ends the subscription. Idempotent."""
        ...


class Feed(Protocol):
    """The hub of one server."""

    def is_watched(self, tenant: str, session_id: str) -> bool:
        """Returns whether the events of a session reach a subscription now. Safe to call from any thread."""
        ...

    def publish_stored(self, events: Sequence[StoredEvent]) -> None:
        """Publishes durable events; encodes those that come without a frame when a watcher came meanwhile."""
        ...

    def publish(self, tenant: str, event: Event) -> None:
        """Publishes an ephemeral event of a tenant. Costs almost nothing when nobody watches."""
        ...

    def subscribe(self, tenant: str, session_id: str | None) -> Subscription:
        """Watches one session of a tenant, or all its sessions when None.

        Raises:
            TooManyWatchers: the limit on open subscriptions is reached.
            ShuttingDown: the feed is closed.
        """
        ...

    def watchers(self, tenant: str) -> int:
        """Returns how many subscriptions of a tenant are open."""
        ...

    def close(self) -> None:
        """Closes every subscription. Idempotent."""
        ...
