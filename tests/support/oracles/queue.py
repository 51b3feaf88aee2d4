"""Oracle of a fair queue's order, which looks at everything each time."""

from collections.abc import Collection

from turnwire.domain.networks import network_of_peer


class QueueOracle:
    """Does what `FairQueue` does."""

    def __init__(self) -> None:
        self.items: list[tuple[str, int]] = []
        """In order of arrival."""
        self.networks: list[str] = []
        self.connections: list[str] = []
        """Both in the order of their turns."""

    def add(self, connection: str, item: int) -> None:
        """Adds an item."""
        self.items.append((connection, item))
        if network_of_peer(connection) not in self.networks:
            self.networks.append(network_of_peer(connection))
        if connection not in self.connections:
            self.connections.append(connection)

    def of(self, connection: str) -> list[int]:
        """Returns the items of a connection."""
        return [item for one, item in self.items if one == connection]

    def size(self, network: str) -> int:
        """Returns how many items a network has."""
        return len([one for one, _ in self.items if network_of_peer(one) == network])

    def remove(self, connection: str, item: int) -> None:
        """Removes an item."""
        self.items.remove((connection, item))
        self.forget_empty()

    def forget_empty(self) -> None:
        """Forgets the turns of connections and networks without items."""
        self.connections = [one for one in self.connections if self.of(one)]
        self.networks = [one for one in self.networks if self.size(one)]

    def take(self, skipped: Collection[str] = ()) -> tuple[str, int]:
        """Removes the next item of a network that is not skipped. Raises StopIteration: there is none."""
        network = next(one for one in self.networks if one not in skipped)
        connection = next(one for one in self.connections if network_of_peer(one) == network)
        item = self.of(connection)[0]
        self.networks.remove(network)
        self.networks.append(network)
        self.connections.remove(connection)
        self.connections.append(connection)
        self.remove(connection, item)
        return connection, item
