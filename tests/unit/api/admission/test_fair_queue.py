"""Which call begins next: networks and connections have turns."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.oracles.queue import QueueOracle
from turnwire.api.admission.fair_queue import BEGUN_AT_ONCE, FairQueue, PendingCalls
from turnwire.domain.networks import network_of_peer

NAMES = ("x:a", "x:b", "c")
"""Connections of two networks."""


def waiting(counts: dict[str, int]) -> FairQueue[str]:
    """Returns so many items of each connection: `a0`, `a1`, ... All are of one network."""
    queue = FairQueue[str]()
    for name, count in counts.items():
        for number in range(count):
            queue.add(f"host:{name}", f"{name}{number}")
    return queue


def taken(queue: FairQueue[str], count: int) -> list[str]:
    """Returns what is next."""
    return [queue.take()[1] for _ in range(count)]


def test_connections_take_turns() -> None:
    """The items of each keep their order, and who adds more keeps its turn."""
    queue = waiting({"a": 3, "b": 3, "c": 1})
    assert taken(queue, 2) == ["a0", "b0"]
    queue.add("host:a", "a3")
    assert taken(queue, 6) == ["c0", "a1", "b1", "a2", "b2", "a3"]


def test_connections_of_a_network_have_no_more_turns_than_one_of_another() -> None:
    """However many they are, and how many items they have."""
    queue = waiting({str(port): 1 for port in range(300)})
    for number in range(100):
        queue.add("neighbour:1", f"neighbour{number}")
    assert len([one for one in taken(queue, 200) if one.startswith("neighbour")]) == 100


@given(st.lists(st.tuples(st.sampled_from(("add", "take", "newest")), st.sampled_from(NAMES)), max_size=60))
def test_a_queue_does_what_its_model_does(steps: list[tuple[str, str]]) -> None:
    """Each item comes out once and in its turn; the newest of the largest goes when there are too many."""
    queue, model = FairQueue[int](), QueueOracle()
    for number, (step, name) in enumerate(steps):
        if step == "add":
            queue.add(name, number)
            model.add(name, number)
        elif not model.items:
            for take in (queue.take, queue.take_newest_of_largest):
                with pytest.raises(IndexError):
                    take()
        elif step == "take":
            assert queue.take() == model.take()
        else:
            connection, item = queue.take_newest_of_largest()
            network = network_of_peer(connection)
            assert model.size(network) == max(map(model.size, model.networks))
            assert len(model.of(connection)) == max(
                len(model.of(one)) for one in model.connections if network_of_peer(one) == network
            )
            assert item == model.of(connection)[-1]
            model.remove(connection, item)
        assert queue.count == len(model.items)


def pending(calls: dict[str, int], max_pending: int = 1_000) -> PendingCalls[str]:
    """Returns calls that wait, so many of each connection: `a0`, `a1`, ..."""
    waiting = PendingCalls[str](max_pending)
    for connection, count in calls.items():
        for number in range(count):
            assert waiting.add(f"host:{connection}", f"{connection}{number}") is None
    return waiting


async def begun(waiting: PendingCalls[str], count: int) -> list[str]:
    """Returns the calls that begin next."""
    return [await waiting.next() for _ in range(count)]


async def test_a_call_begins_when_it_comes() -> None:
    """Whoever asks for one waits until then."""
    waiting = PendingCalls[str](10)
    wanted = waiting.next()
    waiting.add("host:a", "a0")
    waiting.add("host:a", "a1")
    assert (await wanted, waiting.count) == ("a0", 1)
    assert await waiting.next() == "a1"


async def test_many_calls_begin_in_a_round_of_the_loop_but_not_all() -> None:
    """As gRPC waits for them. Where a round takes long, one a round would be few; thousands would hold up the loop."""
    waiting = pending({"a": 4 * BEGUN_AT_ONCE})

    async def begin_all() -> None:
        while waiting.count:
            await asyncio.wait({waiting.next()}, return_when=asyncio.FIRST_COMPLETED)

    beginning, rounds = asyncio.create_task(begin_all()), 0
    while not beginning.done():
        await asyncio.sleep(0)
        rounds += 1
    assert 4 <= rounds <= 12


async def test_nobody_asks_any_more() -> None:
    """A call that comes then waits for the end."""
    waiting = PendingCalls[str](10)
    waiting.next().cancel()
    waiting.add("host:a", "a0")
    assert list(waiting.end(ValueError("stopped"))) == ["a0"]


async def test_of_too_many_the_newest_of_who_has_most_is_refused() -> None:
    """Whoever comes last: a connection that has few is never refused for those of others."""
    waiting = pending({"a": 3, "b": 6}, max_pending=9)
    assert waiting.add("host:c", "c0") == ("host:b", "b5")
    assert waiting.add("host:a", "a3") == ("host:b", "b4")
    assert waiting.add("host:a", "a4") == ("host:a", "a4")
    assert waiting.count == 9
    assert sorted(await begun(waiting, 9)) == ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3", "c0"]


async def test_the_end_returns_what_waits() -> None:
    """Whoever waits for a call gets the error. What is not taken yet goes on waiting, and does not begin."""
    asked = PendingCalls[str](10)
    future = asked.next()
    assert list(asked.end(ValueError("stopped"))) == []
    with pytest.raises(ValueError, match="stopped"):
        await future
    waiting = pending({"a": 2, "b": 1})
    rest = waiting.end(ValueError("stopped"))
    first = [next(rest)]
    assert waiting.count == 2
    with pytest.raises(ValueError, match="stopped"):
        await waiting.next()
    assert sorted(first + list(rest)) == ["a0", "a1", "b0"]
    assert list(waiting.end(ValueError("again"))) == []
