"""The port to the component that decides which node owns which shard."""

from collections.abc import Collection, Mapping
from typing import Protocol

from msgspec import Struct


class ConnectionLost(Exception):
    """The connection has ended, and its locks with it; a write in progress may or may not be stored."""


class Held(Struct, frozen=True):
    """The owners of all shards at one moment."""

    owners: Mapping[int, str]
    """Addresses of the nodes that own shards, by shard. Shards that are missing are free."""
    nodes: int
    """Number of live nodes, this one included."""


class Locks(Protocol):
    """The locks of shards that the writing connection of this node holds.

    While the connection lives, no other node can hold one of them, and this node writes only over this connection. So a
    write by a node that has lost a shard cannot be stored, whatever the node's clock says.
    """

    async def held(self) -> Held:
        """Returns the owners of the shards. Raises ConnectionLost."""
        ...

    async def take(self, shards: Collection[int]) -> frozenset[int]:
        """Takes the locks of the shards that are free, and returns these shards. Raises ConnectionLost."""
        ...

    async def give(self, shards: Collection[int]) -> None:
        """Releases the locks of shards. Raises ConnectionLost."""
        ...

    async def leave(self) -> None:
        """Removes this node from the live ones, so that it takes no shards. Raises ConnectionLost."""
        ...

    async def wait(self, seconds: float) -> None:
        """Returns after this time; raises ConnectionLost as soon as the connection is lost."""
        ...

    async def renew(self) -> None:
        """Connects again, without any lock. Retries until it succeeds. Cancellable."""
        ...

    def silence(self) -> float:
        """Returns the seconds since the database last answered on the connection."""
        ...
