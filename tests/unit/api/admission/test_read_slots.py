"""Which requests are read while memory is critical."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from tests.support.fakes.loop import elapse, settled
from turnwire.api.admission import read_slots as module
from turnwire.api.admission.read_slots import ReadSlots
from turnwire.domain.errors import MemoryShort

SHORT = partial(MemoryShort.of, "limits.max_memory_bytes", 1, "short")


class Reading:
    """Requests that want slots."""

    def __init__(self, slots: ReadSlots) -> None:
        """None has come."""
        self._slots = slots
        self.read: list[str] = []
        """Those that have had a slot, in their order."""
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, *names: str, connection: str = "ipv4:192.0.2.1:1") -> None:
        """Lets requests of a connection come."""

        async def want(name: str) -> None:
            await self._slots.acquire(connection)
            self.read.append(name)

        for name in names:
            self.tasks[name] = asyncio.create_task(want(name))
        await settled()

    async def end(self, connection: str = "ipv4:192.0.2.1:1") -> None:
        """Lets one of a connection that was read be there."""
        self._slots.release(connection)
        await settled()


def bounded(limit: int) -> tuple[ReadSlots, Reading]:
    """Returns slots with a bound, and requests for them."""
    slots = ReadSlots()
    slots.bound(limit, SHORT)
    return slots, Reading(slots)


async def test_without_a_bound_all_are_read_at_once() -> None:
    """And none waits a round of the loop."""
    slots, reading = ReadSlots(), Reading(ReadSlots())
    await reading.begin(*"123")
    assert (reading.read, slots.are_bounded) == ([*"123"], False)


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


async def test_the_bound_ends_step_by_step() -> None:
    """Those that wait do not come all at once, and no more come when there is a bound again."""
    slots, reading = bounded(2)
    await reading.begin(*map(str, range(24)))
    counts = [len(reading.read)]
    slots.unbound()
    for _ in range(2):
        await settled()
        counts.append(len(reading.read))
        await elapse(timedelta(seconds=module.WIDEN_SECONDS))
    counts.append(len(reading.read))
    slots.bound(2, SHORT)
    await elapse(timedelta(seconds=module.WIDEN_SECONDS))
    assert counts == [2, 4, 8, 16]
    assert (len(reading.read), slots.are_bounded) == (16, True)
    slots.unbound()
    for _ in range(4):
        await elapse(timedelta(seconds=module.WIDEN_SECONDS))
    assert (len(reading.read), slots.are_bounded) == (24, False)


async def test_of_too_many_the_newest_of_who_has_most_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes last."""
    monkeypatch.setattr(module, "MAX_WAITING_READS", 4)
    _, reading = bounded(0)
    await reading.begin(*"123")
    await reading.begin("4", connection="ipv4:192.0.2.1:2")
    await reading.begin("honest", connection="ipv4:192.0.2.2:1")
    refused = [name for name, task in reading.tasks.items() if task.done()]
    assert refused == ["3"]
    assert isinstance(reading.tasks["3"].exception(), MemoryShort)
    for task in reading.tasks.values():
        task.cancel()


async def test_one_that_leaves_holds_up_nobody() -> None:
    """While it waits, and in the moment in which it gets its slot."""
    slots, reading = bounded(1)
    await reading.begin(*"1234")
    reading.tasks["2"].cancel()
    await settled()
    slots.release("ipv4:192.0.2.1:1")
    reading.tasks["3"].cancel()
    await settled()
    assert reading.read == [*"14"]
