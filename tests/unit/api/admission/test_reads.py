"""Requests are read within a time, and few begin at a time."""

import asyncio
import contextvars
import gc
import itertools
import weakref
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.fakes.loop import begun, cancelled, elapse, settled
from turnwire.api.admission import reads as module
from turnwire.api.admission.reads import Reads
from turnwire.domain.errors import MemoryShort, RequestTooSlow
from turnwire.event_loop import fair_queue
from turnwire.event_loop.fair_loop import ROUND_SECONDS, FairSelectorLoop
from turnwire.event_loop.owner import own

MEMORY_SHORT = partial(MemoryShort.of, "limits.max_memory_bytes", 1, "short")


def with_slots(slots: int = 1_000) -> Reads:
    """Returns reads with so many slots; by default more than a test needs."""
    return Reads(slots, MEMORY_SHORT)


async def test_a_request_that_does_not_come_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the time that it had as its limit."""
    monkeypatch.setattr(module, "RECEIVE_SECONDS", 0.01)
    reads = with_slots()
    with pytest.raises(RequestTooSlow) as error:
        await reads.read("a", asyncio.Event().wait)  # type: ignore[arg-type]  # never comes
    assert error.value.metadata["limit"] == "RECEIVE_SECONDS"
    assert reads.count == 0


async def test_what_is_received_goes_on_when_its_call_has_ended() -> None:
    """GRPC frees a message only when it is read. Its error is told to nobody then: asyncio logs none."""
    reads, told = with_slots(), list[dict[str, Any]]()
    gc.collect()  # what the loop says of tasks that other tests have left
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    received = asyncio.get_running_loop().create_future()
    left, reading = (asyncio.create_task(reads.read("a", lambda: received)) for _ in range(2))
    await settled()
    await cancelled(left)
    assert (received.cancelled(), reads.count) == (False, 1)
    received.set_exception(KeyError("its call has ended"))
    with pytest.raises(KeyError):
        await reading
    del left, reading
    await settled()
    assert (told, reads.count) == ([], 0)


class Incomplete:
    """Requests that are being read, and have not come."""

    def __init__(self, slots: int = 1_000) -> None:
        self.reads = with_slots(slots)
        self._come = asyncio.Event()
        self.received: list[str] = []
        """Those that are being received, in their order."""
        self._reading: dict[str, asyncio.Task[bytes]] = {}

    async def begin(self, *names: str, network: str = "192.0.2.1") -> None:
        """Lets requests begin, each on a connection of its own."""
        for name in names:
            receive = partial(self._receive, name)
            self._reading[name] = asyncio.create_task(self.reads.read(f"ipv4:{network}:{name}", receive))
        await settled()

    async def lend(self, most: int = 1_000) -> None:
        """Lets those that have slots have had them for long, and lends the slots to others."""
        await elapse(timedelta(seconds=module.LENT_SECONDS + 0.01))
        self.reads.lend(most)
        await settled()

    async def _receive(self, name: str) -> bytes:
        self.received.append(name)
        await self._come.wait()
        return b"x"

    async def refused(self) -> list[str]:
        """Returns which ones have ended."""
        await settled()
        return [name for name, task in self._reading.items() if task.done()]

    async def ended(self) -> dict[str, type[BaseException]]:
        """Returns which ones have ended, and with what; and lets the others come."""
        await settled()
        ended = {name: type(task.exception()) for name, task in self._reading.items() if task.done()}
        self._come.set()
        await asyncio.gather(*self._reading.values(), return_exceptions=True)
        assert self.reads._reading == {}
        return ended


async def test_incomplete_requests_are_shed() -> None:
    """All that have no slot; those that begin later go on."""
    incomplete = Incomplete()
    await incomplete.begin(*"123")
    await incomplete.lend()
    await incomplete.begin("4")
    assert incomplete.reads.count == 4
    incomplete.reads.shed()
    assert await incomplete.ended() == dict.fromkeys("123", MemoryShort)


async def test_only_those_that_have_just_begun_are_spared_in_the_end() -> None:
    """A small request is there in a moment."""
    incomplete = Incomplete()
    await incomplete.begin(*"12")
    await elapse(timedelta(seconds=0.2))
    await incomplete.begin("3")
    incomplete.reads.shed(0.1)
    assert await incomplete.ended() == dict.fromkeys("12", MemoryShort)


async def test_few_are_read_at_a_time() -> None:
    """Those that were begun before count, and further ones wait until one has ended, or for more slots."""
    incomplete = Incomplete()
    await incomplete.begin(*"12")
    incomplete.reads.resize(3)
    await incomplete.begin(*"345")
    assert incomplete.received == [*"123"]
    incomplete.reads.shed(0.0)
    await settled()
    assert incomplete.received == [*"12345"]
    await incomplete.begin(*"67")
    assert incomplete.received == [*"123456"]
    incomplete.reads.resize(8)
    await settled()
    assert incomplete.received == [*"1234567"]
    assert await incomplete.ended() == dict.fromkeys("123", MemoryShort)


async def test_one_that_waits_to_be_read_too_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it has waited for: it is not its caller that was slow."""
    monkeypatch.setattr(module, "RECEIVE_SECONDS", 0.01)
    reads = with_slots(0)
    with pytest.raises(MemoryShort):
        await reads.read("a", asyncio.Event().wait)  # type: ignore[arg-type]  # never comes


async def test_a_request_that_waited_to_be_read_has_its_time_then() -> None:
    """It is not its caller that was slow."""
    incomplete = Incomplete(0)
    await incomplete.begin("1")
    await elapse(timedelta(seconds=module.RECEIVE_SECONDS - 1))
    incomplete.reads.resize(1)
    await settled()
    await elapse(timedelta(seconds=module.RECEIVE_SECONDS - 1))
    assert await incomplete.ended() == {}


@pytest.fixture
def fair_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.Runner]:
    """A loop whose owners take turns after a few callbacks each."""
    ticks = itertools.count(step=ROUND_SECONDS / 4)
    monkeypatch.setattr(fair_queue, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    with asyncio.Runner(loop_factory=FairSelectorLoop) as runner:
        yield runner


async def come(reads: Reads, size: int, connection: str) -> "asyncio.Task[bytes]":
    """Lets a request come whose call waits for its turn on the loop. Returns the call."""
    received = asyncio.get_running_loop().create_future()

    async def read() -> bytes:
        own(connection)
        return await reads.read(connection, lambda: received)

    reading = asyncio.create_task(read())
    while not reads.count:
        await asyncio.sleep(0)
    of_connection = contextvars.Context()
    of_connection.run(own, connection)
    for _ in range(1000):
        asyncio.get_running_loop().call_soon(int, context=of_connection)
    received.set_result(bytes(size))
    await asyncio.sleep(0)
    return reading


def test_a_request_that_is_there_is_not_shed(fair_loop: asyncio.Runner) -> None:
    """Though its call waits for its turn on the loop."""

    async def check() -> None:
        reads = with_slots()
        reading = await come(reads, 5, "ipv4:192.0.2.1:1")
        reads.shed(0.0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert (reading.done(), reads.count) == (False, 0)
        assert len(await reading) == 5

    fair_loop.run(check())


@pytest.mark.parametrize(("size", "waits"), [(module.SMALL_BYTES - 1, False), (module.SMALL_BYTES, True)])
def test_a_large_request_has_its_slot_until_its_call_goes_on(
    fair_loop: asyncio.Runner, size: int, *, waits: bool
) -> None:
    """Nothing else bounds until then how many of them are in memory."""

    async def check() -> None:
        reads = with_slots(1)
        reading = await come(reads, size, "ipv4:192.0.2.1:1")
        other = asyncio.create_task(reads.read("ipv4:192.0.2.2:1", partial(asyncio.sleep, 0, b"x")))
        for _ in range(10):
            await asyncio.sleep(0)
        assert (reading.done(), other.done()) == (False, not waits)
        assert (len(await reading), await other) == (size, b"x")

    fair_loop.run(check())


class Held:
    """Memory of a request."""


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Without the garbage collector, which finds old objects that refer to each other as good as never."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
async def test_a_read_that_fails_keeps_nothing_of_its_call() -> None:
    """Such as one of which no request came."""

    async def fail(_: Held) -> bytes:
        await asyncio.sleep(0)
        raise KeyError

    def begin(held: Held) -> "asyncio.Task[bytes]":
        return asyncio.create_task(fail(held))

    held = Held()
    kept = weakref.ref(held)
    with pytest.raises(KeyError):
        await with_slots().read("a", partial(begin, held))
    await settled()
    del held
    assert kept() is None


@pytest.mark.usefixtures("uncollected")
async def test_what_is_shed_keeps_nothing_of_its_call() -> None:
    """Also while memory stays critical, and one after the other is shed."""
    reads, held = with_slots(), Held()
    kept = weakref.ref(held)

    async def receive(_: Held) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def read(held: Held) -> None:
        with pytest.raises(MemoryShort):
            await reads.read("a", partial(receive, held))

    reading = await begun(read(held))
    reads.shed(0.0)
    await reading
    await settled()
    del held, reading
    assert kept() is None


@pytest.mark.parametrize("slots", [0, 1])
@pytest.mark.usefixtures("uncollected")
async def test_one_that_leaves_keeps_nothing_of_its_call(slots: int) -> None:
    """Though it stays in the queue of those that wait until its turn: clients may reset thousands of calls."""
    reads, held = with_slots(slots), Held()
    kept = weakref.ref(held)

    async def receive(_: Held) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def read(held: Held) -> None:
        await reads.read("a", partial(receive, held))

    reading = await begun(read(held))
    await cancelled(reading)
    del held, reading
    await settled()
    assert kept() is None


async def test_what_is_shed_gives_its_slot_back_before_its_call_has_ended() -> None:
    """The calls of a flood wait for each other; those of others are read at once."""
    incomplete = Incomplete()
    await incomplete.begin(*"12345678")
    incomplete.reads.resize(2)
    incomplete.reads.shed(0.0)
    other = asyncio.create_task(incomplete.reads.read("ipv4:192.0.2.2:1", partial(asyncio.sleep, 0, b"x")))
    await other
    assert await incomplete.ended() == dict.fromkeys("12345678", MemoryShort)


async def test_slots_are_lent() -> None:
    """A slow request gives its slot back after a moment and goes on: it keeps out nobody."""
    incomplete = Incomplete(2)
    await incomplete.begin(*"1234")
    incomplete.reads.lend(1_000)
    await settled()
    assert incomplete.received == [*"12"]
    await incomplete.lend()
    assert incomplete.received == [*"1234"]
    await incomplete.begin("5")
    assert incomplete.received == [*"1234"]
    assert await incomplete.ended() == {}


async def test_slots_are_lent_one_at_a_time_where_many_go_on_without() -> None:
    """Each of them may bring as much as the largest request, and all of them in the same moment."""
    incomplete = Incomplete(4)
    await incomplete.begin(*map(str, range(12)))

    async def lent() -> int:
        await incomplete.lend(3)
        return len(incomplete.received) - 4

    assert [await lent() for _ in range(4)] == [3, 4, 5, 6]
    assert await incomplete.ended() == {}


SMALL = [100] * module.SMALL_IN_SEQUENCE


async def send(reads: Reads, *sizes: int, network: str = "192.0.2.1") -> None:
    """Lets requests come, one after the other."""
    for size in sizes:
        come = asyncio.create_task(asyncio.sleep(0, bytes(size)))
        await reads.read(f"ipv4:{network}:1", lambda come=come: come)  # type: ignore[misc]


async def test_a_network_whose_requests_are_small_has_further_slots() -> None:
    """Others have the slots, and so have its own requests beyond those."""
    incomplete = Incomplete(4)
    await send(incomplete.reads, *SMALL)
    await incomplete.begin(*"1234", network="192.0.2.2")
    assert incomplete.received == [*"12"]
    small = [f"small {number}" for number in range(4 * module.SMALL_SLOTS + 3)]
    await incomplete.begin(*small)
    assert incomplete.received == [*"12", *small[:-1]]
    await incomplete.lend()
    assert sorted(incomplete.received) == sorted((*"1234", *small))
    assert await incomplete.ended() == {}


async def test_networks_whose_requests_are_small_share_their_further_slots() -> None:
    """Each of them may send large ones next: as many networks as anybody has would fill any memory."""
    incomplete = Incomplete(2)
    for network in range(20):
        await send(incomplete.reads, *SMALL, network=f"192.0.2.{network}")
    for network in range(20):
        await incomplete.begin(*(f"{network}.{number}" for number in range(4)), network=f"192.0.2.{network}")
    assert len(incomplete.received) == 2 + 2 * module.SMALL_SLOTS
    await elapse(timedelta(seconds=module.SMALL_SECONDS + 0.01))
    incomplete.reads.lend(1_000)
    await settled()
    assert len(incomplete.received) == 2 + 2 * module.SMALL_SLOTS + 2
    assert await incomplete.ended() == {}


async def test_a_large_request_takes_its_network_back_to_slots() -> None:
    """Until as many small ones have come again."""
    incomplete = Incomplete(1)
    await send(incomplete.reads, *SMALL, module.SMALL_BYTES, *SMALL[1:])
    await incomplete.begin(*"12")
    assert incomplete.received == ["1"]
    assert await incomplete.ended() == {}


async def test_new_requests_of_a_network_whose_requests_are_small_are_not_shed() -> None:
    """They bring little, and who calls at such a moment would see a failure for another's flood."""
    incomplete = Incomplete(4)
    await send(incomplete.reads, *SMALL)
    await incomplete.begin(*"12")
    await incomplete.begin("other", network="192.0.2.2")
    incomplete.reads.shed(0.0)
    assert await incomplete.refused() == ["other"]
    await elapse(timedelta(seconds=module.SMALL_SECONDS + 0.01))
    await incomplete.begin("3")
    incomplete.reads.shed(0.0)
    assert await incomplete.ended() == dict.fromkeys(("1", "2", "other"), MemoryShort)
    assert incomplete.reads._small == {"192.0.2.1": 1}


async def test_few_networks_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of which requests came last."""
    monkeypatch.setattr(module, "KNOWN_NETWORKS", 2)
    reads = with_slots()
    for network in "12131":
        await send(reads, 100, network=f"192.0.2.{network}")
    assert reads._small == {"192.0.2.3": 1, "192.0.2.1": 3}


async def test_a_request_that_has_come_gives_its_slot_back_at_once() -> None:
    """Whether or not its call has had its turn since: those that come with their calls never wait for each other."""
    reads = with_slots(1)
    come = [asyncio.get_running_loop().create_future() for _ in range(3)]
    reading = [asyncio.create_task(reads.read("a", lambda one=one: one)) for one in come]  # type: ignore[misc]
    await settled()
    for number, one in enumerate(come):
        assert reads.count == 1
        one.set_result(str(number).encode())
        await settled()
    assert await asyncio.gather(*reading) == [b"0", b"1", b"2"]
