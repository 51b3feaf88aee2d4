"""Which requests are read first."""

import asyncio
import math
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.loop import elapse, settled
from tests.support.oracles.queue import QueueOracle
from turnwire.api.admission.read_slots import ReadSlots
from turnwire.domain.networks import network_of_peer


class Reading:
    """Requests that want slots."""

    def __init__(self, slots: ReadSlots) -> None:
        self._slots = slots
        self.read: list[str] = []
        """Those that have had a slot, in their order."""
        self._with_slots: list[tuple[str, str]] = []
        """Connections and names."""
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, *names: str, connection: str = "ipv4:192.0.2.1:1") -> None:
        """Lets requests of a connection come."""

        async def want(name: str) -> None:
            await self._slots.acquire(name, connection)
            self.read.append(name)
            self._with_slots.append((connection, name))

        for name in names:
            self.tasks[name] = asyncio.create_task(want(name))
        await settled()

    async def end(self, connection: str = "ipv4:192.0.2.1:1") -> None:
        """Lets the first one of a connection's network that is read be there."""
        network = network_of_peer(connection)
        first = next(one for one in self._with_slots if network_of_peer(one[0]) == network)
        self._with_slots.remove(first)
        self._slots.release(first[1])
        await settled()


def bounded(limit: int) -> tuple[ReadSlots, Reading]:
    """Returns slots with a bound, and requests for them."""
    slots = ReadSlots(limit)
    return slots, Reading(slots)


async def test_connections_of_a_network_take_turns() -> None:
    """One behind the same proxy does not wait for all those of another."""
    _, reading = bounded(1)
    await reading.begin(*"1234")
    await reading.begin("honest", connection="ipv4:192.0.2.1:2")
    for _ in range(3):
        await reading.end()
    assert "honest" in reading.read[:3]


async def test_networks_take_turns_and_one_has_half() -> None:
    """Once a second one has come: its next request finds a slot."""
    _, reading = bounded(4)
    other = "ipv4:192.0.2.2:1"
    await reading.begin("honest", connection=other)
    await reading.end(other)
    await reading.begin(*"1234")
    assert reading.read == ["honest", *"12"]
    await reading.begin("again", connection=other)
    assert reading.read == ["honest", *"12", "again"]
    await reading.end()
    assert reading.read[4:] == ["3"]


async def test_one_that_leaves_holds_up_nobody() -> None:
    """While it waits, and in the moment in which it gets its slot."""
    slots, reading = bounded(1)
    await reading.begin(*"1234")
    reading.tasks["2"].cancel()
    await settled()
    slots.release("1")
    slots.release("1")
    reading.tasks["3"].cancel()
    await settled()
    assert reading.read == [*"14"]


class _Oracle:
    """Does what `ReadSlots` does, by looking at everything each time."""

    def __init__(self) -> None:
        self.limit = 2
        self.in_use: list[str] = []
        """Connections, one for each slot."""
        self.waiting = QueueOracle()
        self.seen = set[str]()
        self.read: list[int] = []

    def want(self, connection: str, number: int) -> None:
        self.seen.add(network_of_peer(connection))
        self.waiting.add(connection, number)
        self.grant()

    def release(self, connection: str) -> None:
        self.in_use.remove(connection)
        self.grant()

    def leave(self, number: int) -> None:
        self.waiting.items = [item for item in self.waiting.items if item[1] != number]
        self.waiting.forget_empty()

    def _read(self, connection: str, number: int) -> None:
        self.in_use.append(connection)
        self.read.append(number)

    def _has_its_share(self, network: str) -> bool:
        used = [one for one in self.in_use if network_of_peer(one) == network]
        return len(self.seen) > 1 and len(used) >= max(1, self.limit // 2)

    def grant(self) -> None:
        while len(self.in_use) < self.limit:
            skipped = set(filter(self._has_its_share, self.waiting.networks))
            if set(self.waiting.networks) <= skipped:
                return
            self._read(*self.waiting.take(skipped))


_CONNECTIONS = ("ipv4:192.0.2.1:1", "ipv4:192.0.2.1:2", "ipv4:192.0.2.2:1")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("want", "want", "release", "leave", "resize")),
            st.sampled_from(_CONNECTIONS),
            st.integers(0, 5),
        ),
        min_size=25,
        max_size=40,
    )
)
def test_slots_are_given_as_in_a_model(steps: list[tuple[str, str, int]]) -> None:
    """Whatever comes, ends and leaves, and however many there are, in any order."""
    asyncio.run(_compare(steps))


async def _compare(steps: list[tuple[str, str, int]]) -> None:
    slots, oracle = ReadSlots(2), _Oracle()
    reading = Reading(slots)
    for number, (step, connection, value) in enumerate(steps):
        waiting = [int(name) for name, task in reading.tasks.items() if not task.done()]
        if step == "want":
            oracle.want(connection, number)
            await reading.begin(str(number), connection=connection)
        elif step == "release" and oracle.in_use:
            ended = oracle.in_use[value % len(oracle.in_use)]
            oracle.release(ended)
            await reading.end(ended)
        elif step == "leave" and waiting:
            left = waiting[value % len(waiting)]
            oracle.leave(left)
            reading.tasks[str(left)].cancel()
            await settled()
        elif step == "resize":
            oracle.limit = value
            oracle.grant()
            slots.resize(value)
            await settled()
        assert set(reading.read) == set(map(str, oracle.read))
    for task in reading.tasks.values():
        task.cancel()
    await asyncio.gather(*reading.tasks.values(), return_exceptions=True)


async def test_slots_that_are_held_for_long_are_taken_back() -> None:
    """They go to those that wait, and are given back once."""
    slots, reading = bounded(2)
    await reading.begin(*"12345")
    await elapse(timedelta(seconds=60))
    slots.release("1")
    await settled()
    assert (reading.read, slots.age("1")) == ([*"123"], math.inf)
    slots.take_back(60.0, 1)
    slots.release("2")
    await settled()
    assert reading.read == [*"1234"]
    assert (slots.age("2"), slots.age("3") < 60) == (math.inf, True)
