"""What connections have sent of requests that are not whole."""

from collections.abc import Collection

import pytest

from turnwire.api.bounds.connections import unfinished
from turnwire.api.bounds.connections.unfinished import HEAD_BYTES, Unfinished


class System:
    """Tells what the test says that connections have sent."""

    def __init__(self) -> None:
        self.received: dict[str, int] = {}
        self.unfinished = Unfinished(self._tell)

    def _tell(self, connections: Collection[str]) -> dict[str, int]:
        return {one: self.received[one] for one in connections if one in self.received}

    async def of(self, connection: str = "a") -> int | None:
        """Returns the bytes of a connection."""
        return (await self.unfinished.bytes_of([connection])).get(connection)


async def test_whole_requests_do_not_count() -> None:
    """What else the connection has sent does."""
    system = System()
    for size in (10_000, None, 500):
        system.unfinished.begin("a")
        if size is not None:
            system.unfinished.end("a", size)
    system.unfinished.begin("a")
    system.received = {"a": 90_000, "b": 7}
    assert await system.of() == 90_000 - 10_500 - 2 * HEAD_BYTES
    assert await system.of("b") == 0
    assert await system.of("c") is None


async def test_requests_that_ended_are_forgotten_when_none_is_awaited() -> None:
    """How much each of them had, nobody tells."""
    system = System()
    system.received = {"a": 5_000}
    for _ in range(2):
        system.unfinished.begin("a")
    system.unfinished.end("a", None)
    assert await system.of() == 5_000
    system.unfinished.end("a", None)
    assert await system.of("b") is None
    system.unfinished.begin("a")
    system.received = {"a": 5_800}
    assert await system.of() == 800


async def test_what_was_ended_counts_no_more() -> None:
    """Though further requests are awaited."""
    system = System()
    system.received = {"a": 5_000}
    system.unfinished.begin("a")
    assert await system.of() == 5_000
    system.unfinished.forgive("a", 5_000)
    system.received = {"a": 5_100}
    assert await system.of() == 100


async def test_a_new_connection_owes_nothing_to_an_old_one() -> None:
    """Its peer may use the same address."""
    system = System()
    for _ in range(2):
        system.unfinished.begin("a")
    system.unfinished.end("a", 10_000)
    system.received = {"a": 300}
    assert await system.of() == 0
    system.received = {"a": 4_300}
    assert await system.of() == 4_000
    system.received = {}
    assert await system.of() is None
    system.received = {"a": 20_000}
    assert await system.of() == 20_000


async def test_few_connections_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has sent no request for longest is forgotten."""
    monkeypatch.setattr(unfinished, "_MAX_KNOWN", 2)
    system = System()
    for connection in "abca":
        system.unfinished.begin(connection)
        system.unfinished.end(connection, 1_000 - HEAD_BYTES)
    for connection in "abc":
        system.unfinished.begin(connection)
    system.received = dict.fromkeys("abc", 5_000)
    assert await system.unfinished.bytes_of("abc") == {"a": 4_000, "b": 5_000, "c": 4_000}
