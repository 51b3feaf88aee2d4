"""Owners of shards, with locks in memory."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator

import pytest

from turnwire.cluster.ownership import SILENT_AFTER, Ownership, own_id
from turnwire.domain.shards import SHARDS, shard_of
from turnwire.ports.ownership import ConnectionLost, Held

ALL = frozenset(range(SHARDS))


class Database:
    """The locks of all nodes. A connection that ends releases its own."""

    def __init__(self) -> None:
        self.owners: dict[int, str] = {}
        self.nodes: set[str] = set()
        self.started: list[Node] = []

    def start(self, address: str, seed: int = 1) -> "Node":
        """Starts a node, which runs until the test ends."""
        self.started.append(Node(self, address, seed))
        return self.started[-1]


@pytest.fixture
def database() -> Iterator[Database]:
    """The locks of the nodes of a test."""
    database = Database()
    yield database
    for node in database.started:
        node.task.cancel()


class Connection:
    """The locks of one node. Time is turns of the event loop."""

    def __init__(self, database: Database, address: str) -> None:
        self.database, self.address = database, address
        self.is_lost, self.silent_seconds = False, 0.0
        database.nodes.add(address)

    async def held(self) -> Held:
        """See `Locks`."""
        self._check()
        return Held(dict(self.database.owners), len(self.database.nodes))

    async def take(self, shards: Collection[int]) -> frozenset[int]:
        """See `Locks`."""
        self._check()
        got = frozenset(shard for shard in shards if shard not in self.database.owners)
        self.database.owners.update(dict.fromkeys(got, self.address))
        await asyncio.sleep(0)
        self._check()
        return got

    async def give(self, shards: Collection[int]) -> None:
        """See `Locks`."""
        self._check()
        for shard in shards:
            assert self.database.owners.pop(shard) == self.address

    async def leave(self) -> None:
        """See `Locks`."""
        self._check()
        self.database.nodes.discard(self.address)

    async def wait(self, seconds: float) -> None:
        """See `Locks`."""
        await asyncio.sleep(0)
        self._check()

    async def renew(self) -> None:
        """See `Locks`."""
        self.is_lost = False
        self.database.nodes.add(self.address)

    def silence(self) -> float:
        """See `Locks`."""
        return self.silent_seconds

    def lose(self) -> None:
        """Ends the connection: the database releases its locks at once, and the node learns it later."""
        self.is_lost = True
        self.database.nodes.discard(self.address)
        for shard in [shard for shard, owner in self.database.owners.items() if owner == self.address]:
            del self.database.owners[shard]

    def _check(self) -> None:
        if self.is_lost:
            raise ConnectionLost


class Sessions:
    """Notes what is done with shards."""

    def __init__(self) -> None:
        self.live: set[int] = set()
        self.busy: set[int] = set()
        self.recovering = asyncio.Event()
        self.recovering.set()
        self.fails = False

    async def recover(self, shards: frozenset[int]) -> None:
        """See `Sessions`."""
        await self.recovering.wait()
        if self.fails:
            raise OSError("the disk is gone")
        assert not self.live & shards
        self.live |= shards

    async def leave(self, shards: frozenset[int]) -> None:
        """See `Sessions`."""
        await asyncio.sleep(0)
        self.live -= shards

    def is_idle(self, shard: int) -> bool:
        """See `Sessions`."""
        return shard not in self.busy


class Node:
    """A node with its task."""

    def __init__(self, database: Database, address: str, seed: int) -> None:
        self.connection, self.sessions = Connection(database, address), Sessions()
        self.ownership = Ownership(address, self.connection, self.sessions, random.Random(seed))
        self.task = asyncio.create_task(self.ownership.run())

    def kill(self) -> None:
        """Ends the process: it learns nothing and stores nothing any more."""
        self.task.cancel()
        self.connection.lose()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


def _shares(*nodes: Node) -> list[int]:
    return [len(node.ownership.mine()) for node in nodes]


def _is_whole(*nodes: Node) -> bool:
    return sum(_shares(*nodes)) == SHARDS


async def test_one_node_owns_everything(database: Database) -> None:
    """At once: nobody is there to share with."""
    node = database.start("a")
    await _until(lambda: node.ownership.mine() == ALL)
    assert node.sessions.live == ALL


async def test_nodes_have_equal_shares_in_the_end(database: Database) -> None:
    """Whoever was quicker gives its surplus away."""
    nodes = [database.start(name) for name in "abc"]
    await _until(lambda: _is_whole(*nodes) and max(_shares(*nodes)) <= SHARDS // 3 + 1)
    assert sorted(shard for node in nodes for shard in node.ownership.mine()) == sorted(ALL)


async def test_the_shards_of_a_killed_node_are_taken_and_recovered(database: Database) -> None:
    """By the nodes that live, all of them."""
    nodes = [database.start(name) for name in "abc"]
    await _until(lambda: _is_whole(*nodes) and min(_shares(*nodes)) > 0)
    nodes[1].kill()
    left = (nodes[0], nodes[2])
    await _until(lambda: _is_whole(*left))
    assert left[0].sessions.live | left[1].sessions.live == ALL


async def test_who_loses_its_connection_forgets_at_once_and_begins_anew(database: Database) -> None:
    """As after a crash: others may own its shards already."""
    a, b = database.start("a"), database.start("b", 2)
    await _until(lambda: _is_whole(a, b) and min(_shares(a, b)) > 0)
    a.connection.lose()
    await _until(lambda: not a.sessions.live)
    await _until(lambda: _is_whole(a, b) and min(_shares(a, b)) > 0)


async def test_no_call_is_carried_out_before_the_turns_of_a_shard_are_recovered(database: Database) -> None:
    """A message that came earlier would begin a turn beside one that is to go on."""
    node = database.start("a")
    node.sessions.recovering.clear()
    await _until(lambda: len(node.connection.database.owners) == SHARDS)
    assert not node.ownership.mine()
    node.sessions.recovering.set()
    await _until(lambda: node.ownership.mine() == ALL)


async def test_shards_that_cannot_be_recovered_are_given_back(database: Database) -> None:
    """Another node, or the next look, may succeed."""
    node = database.start("a")
    node.sessions.fails = True
    await _until(lambda: bool(database.owners))
    await _until(lambda: not database.owners)
    assert not node.ownership.mine()
    node.sessions.fails = False
    await _until(lambda: node.ownership.mine() == ALL)


async def test_a_node_that_hears_nothing_from_the_database_answers_for_nothing(database: Database) -> None:
    """Its shards may be those of another node already."""
    node = database.start("a")
    await _until(lambda: node.ownership.mine() == ALL)
    node.connection.silent_seconds = SILENT_AFTER.total_seconds()
    assert not node.ownership.is_mine(0)
    node.connection.silent_seconds = 0
    assert node.ownership.is_mine(0)


async def test_a_stop_suspends_and_gives_everything_and_takes_nothing_more(database: Database) -> None:
    """The node that is left has everything."""
    a, b = database.start("a"), database.start("b", 2)
    await _until(lambda: _is_whole(a, b))
    await a.ownership.stop()
    assert not a.sessions.live
    assert a.task.done() or await a.task is None
    assert "a" not in database.owners.values()
    await _until(lambda: b.ownership.mine() == ALL)


async def test_a_stop_ends_though_the_connection_is_lost(database: Database) -> None:
    """Then there is nothing to give."""
    node = database.start("a")
    await _until(lambda: node.ownership.mine() == ALL)
    node.connection.lose()
    await node.ownership.stop()
    assert not node.sessions.live


async def test_shards_with_running_turns_are_not_given_to_a_new_node(database: Database) -> None:
    """They are when their turns have ended."""
    a = database.start("a")
    await _until(lambda: a.ownership.mine() == ALL)
    busy = set(range(200))
    a.sessions.busy = busy
    b = database.start("b", 2)
    await _until(lambda: len(b.ownership.mine()) == SHARDS - len(busy))
    assert busy <= a.ownership.mine()
    a.sessions.busy = set()
    await _until(lambda: _shares(a, b) == [128, 128])


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(10))
async def test_a_shard_is_never_answered_for_by_two_nodes(database: Database, seed: int) -> None:
    """Whichever nodes lose their connections when, and whatever is busy."""
    rng = random.Random(seed)
    nodes = [database.start(name, seed + number) for number, name in enumerate("abcd")]
    for _ in range(400):
        await asyncio.sleep(0)
        for node in nodes:
            if rng.random() < 0.01:
                node.connection.lose()
            if rng.random() < 0.02:
                node.sessions.busy = set(rng.sample(range(SHARDS), 20))
        locked = Counter[int]()
        for node in nodes:
            # who does not know yet that it has lost its connection answers from memory: its silence bounds that
            if not node.connection.is_lost:
                locked.update(node.ownership.mine())
                assert all(database.owners[shard] == node.connection.address for shard in node.ownership.mine())
                assert node.ownership.mine() <= node.sessions.live
        assert not locked or max(locked.values()) == 1


def test_new_ids_are_of_own_shards() -> None:
    """A node without shards takes any."""
    numbers = iter(range(10_000))

    def new_id(prefix: str) -> str:
        return f"{prefix}_{next(numbers)}"

    assert shard_of(own_id(new_id, "ses", lambda name: shard_of(name) % 3 == 0)) % 3 == 0
    assert own_id(new_id, "ses", lambda _: False).startswith("ses_")
