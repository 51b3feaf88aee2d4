"""The port to what decides which node owns which shard."""

from collections.abc import Collection, Mapping
from typing import Protocol

from msgspec import Struct


class ConnectionLost(Exception):
    """The connection with the locks has ended: they are gone, and what was being written may be stored or not."""


class Held(Struct, frozen=True):
    """The owners of all shards at one moment."""

    owners: Mapping[int, str]
    """The addresses of the nodes that own shards, by shard. What is not here is free."""
    nodes: int
    """How many nodes live, this one included."""


class Locks(Protocol):
    """The locks of shards that the writing connection of this node holds.

    While the connection lives no other node can hold one of them, and all that this node writes goes through this
    connection. So what a node writes that has lost a shard cannot be stored, whatever its clock says.
    """

    async def held(self) -> Held:
        """Returns who owns what. Raises ConnectionLost."""
        ...

    async def take(self, shards: Collection[int]) -> frozenset[int]:
        """Takes the locks of shards that are free, and returns those that it got. Raises ConnectionLost."""
        ...

    async def give(self, shards: Collection[int]) -> None:
        """Releases the locks of shards. Raises ConnectionLost."""
        ...

    async def leave(self) -> None:
        """Counts this node no longer among those that live: it takes no shards. Raises ConnectionLost."""
        ...

    async def wait(self, seconds: float) -> None:
        """Returns after some time; raises ConnectionLost as soon as the connection is lost."""
        ...

    async def renew(self) -> None:
        """Connects again, without any lock. Tries until it succeeds. Cancellable."""
        ...

    def silence(self) -> float:
        """Returns the seconds since the database answered on the connection for the last time."""
        ...
