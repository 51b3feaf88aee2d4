"""Requests: read within a time, with memory for large ones until they are carried out."""

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

from tests.support.fakes.loop import elapse, settled
from turnwire.api.admission import requests as module
from turnwire.api.admission.flow import Client
from turnwire.api.admission.requests import (
    COUNTED_BYTES,
    MEMORY_OF_BYTE,
    Requests,
    run_to_completion,
)
from turnwire.domain.errors import MemoryShort, RequestTooSlow, TooManyCalls
from turnwire.event_loop import fair_queue
from turnwire.event_loop.fair_loop import ROUND_SECONDS, FairSelectorLoop
from turnwire.event_loop.owner import own

MAX_BYTES = 10 * MEMORY_OF_BYTE * COUNTED_BYTES
HALF = 5 * COUNTED_BYTES
"""Of a request: two have memory."""


class Asked:
    """Requests that are carried out until the test says so."""

    def __init__(self) -> None:
        """None is there."""
        self.requests = Requests(MAX_BYTES)
        self.begun: list[str] = []
        self._done: dict[str, asyncio.Event] = {}

    def ask(
        self, name: str, size: int = HALF, connection: str = "ipv4:192.0.2.1:1", *, reads: bool = False
    ) -> asyncio.Task[None]:
        """Begins a request of a size."""
        done = self._done[name] = asyncio.Event()

        async def work() -> None:
            self.begun.append(name)
            await done.wait()

        async def request() -> None:
            async with self.requests.memory(Client("acme", connection), size, only_reads=reads) as finish:
                await finish(work)

        return asyncio.create_task(request())

    def finish(self, *names: str) -> None:
        """Lets requests end."""
        for name in names:
            self._done[name].set()


async def test_requests_have_memory_by_what_they_take() -> None:
    """The next one begins when one has ended, and small ones wait for none."""
    asked = Asked()
    calls = [asked.ask(name) for name in "123"]
    calls.append(asked.ask("small", COUNTED_BYTES - 1))
    await settled()
    assert sorted(asked.begun) == ["1", "2", "small"]
    asked.finish("2")
    await settled()
    assert asked.begun[3:] == ["3"]
    asked.finish("1", "3", "small")
    await asyncio.gather(*calls)
    assert asked.requests._memory.in_use == 0


async def test_one_that_is_larger_than_the_budget_has_all_of_it() -> None:
    """Where the configuration allows such requests."""
    asked = Asked()
    large, next_one = asked.ask("1", MAX_BYTES), asked.ask("2")
    await settled()
    assert asked.begun == ["1"]
    asked.finish("1", "2")
    await asyncio.gather(large, next_one)


async def test_addresses_and_tenants_take_turns() -> None:
    """Many of one address do not hold up the only one of another."""
    asked = Asked()
    calls = [asked.ask(name, connection=f"ipv4:192.0.2.1:{name}") for name in "12345"]
    calls.append(asked.ask("6", connection="ipv4:192.0.2.2:1"))
    await settled()
    asked.finish("1", "2")
    await settled()
    assert "6" in asked.begun[:4]
    asked.finish(*"3456")
    await asyncio.gather(*calls)


async def test_further_ones_are_refused_when_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit and a hint when to try again. Another address has its half of what may wait."""
    monkeypatch.setattr(module, "MAX_WAITING_REQUESTS_BYTES", 4 * HALF)
    asked = Asked()
    calls = [asked.ask(name) for name in "1234"]
    await settled()
    refused = asked.ask("5")
    modest = asked.ask("6", connection="ipv4:192.0.2.2:1")
    await settled()
    with pytest.raises(TooManyCalls) as error:
        await refused
    assert error.value.metadata == {"limit": "limits.max_request_memory_bytes", "limitValue": str(MAX_BYTES)}
    assert error.value.retry_after is not None
    asked.finish(*"12346")
    await asyncio.gather(*calls, modest)
    assert (asked.requests._memory.in_use, asked.requests._waiting.in_use) == (0, 0)


async def test_a_caller_who_leaves_while_it_waits_is_forgotten() -> None:
    """And those behind it go on."""
    asked = Asked()
    calls = [asked.ask(name) for name in "1234"]
    await settled()
    calls[2].cancel()
    await asyncio.gather(calls.pop(2), return_exceptions=True)
    asked.finish("1", "2", "4")
    await asyncio.gather(*calls)
    assert (asked.begun, asked.requests._waiting.in_use) == ([*"124"], 0)


async def test_what_was_begun_keeps_its_memory_until_its_end() -> None:
    """Its caller may have left: the request is in memory nevertheless. The call ends with it. What only reads ends."""
    asked = Asked()
    calls = [asked.ask("1"), asked.ask("2", reads=True), asked.ask("3")]
    await settled()
    for _ in range(2):
        calls[0].cancel()
        await settled()
    assert (calls[0].done(), sorted(asked.begun)) == (False, ["1", "2"])
    calls[1].cancel()
    await settled()
    assert (calls[1].cancelled(), asked.begun[2:]) == (True, ["3"])
    asked.finish("1", "3")
    await settled()
    assert calls[0].cancelled()
    await calls[2]


async def test_what_fails_when_its_caller_has_left_is_told_to_nobody() -> None:
    """Who has not left gets the error."""

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        await run_to_completion(fail)
    call = asyncio.create_task(run_to_completion(fail))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_request_that_does_not_come_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the time that it had as its limit."""
    monkeypatch.setattr(module, "RECEIVE_SECONDS", 0.01)
    requests = Asked().requests
    with pytest.raises(RequestTooSlow) as error:
        await requests.read("a", asyncio.Event().wait)  # type: ignore[arg-type]  # never comes
    assert error.value.metadata["limit"] == "RECEIVE_SECONDS"
    assert requests.reading_of("a") == 0


async def test_what_is_received_goes_on_when_its_call_has_ended() -> None:
    """GRPC frees a message only when it is read. Its error is told to nobody then: asyncio logs none."""
    requests, told = Asked().requests, list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    received = asyncio.get_running_loop().create_future()
    left, reading = (asyncio.create_task(requests.read("a", lambda: received)) for _ in range(2))
    await settled()
    left.cancel()
    await asyncio.wait((left,))
    assert (received.cancelled(), requests.reading_of("a")) == (False, 1)
    received.set_exception(KeyError("its call has ended"))
    with pytest.raises(KeyError):
        await reading
    del left, reading
    await settled()
    assert (told, requests.reading_of("a")) == ([], 0)


class Incomplete:
    """Requests that are being read, and have not come."""

    def __init__(self, requests: Requests) -> None:
        """None has begun."""
        self._requests = requests
        self._come = asyncio.Event()
        self.received: list[str] = []
        """Those that are being received, in their order."""
        self._reading: dict[str, asyncio.Task[bytes]] = {}

    async def begin(self, *names: str, network: str = "192.0.2.1") -> None:
        """Lets requests begin, each on a connection of its own."""
        for name in names:
            receive = partial(self._receive, name)
            self._reading[name] = asyncio.create_task(self._requests.read(f"ipv4:{network}:{name}", receive))
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
        assert self._requests._reading == {}
        return ended


MEMORY_SHORT = partial(MemoryShort.of, "limits.max_memory_bytes", 1, "short")


async def test_incomplete_requests_are_shed() -> None:
    """All of them, the oldest first; those that are there, or begin later, go on."""
    requests = Asked().requests
    incomplete = Incomplete(requests)
    await incomplete.begin("1", "2", "3")
    assert requests.reading_of("192.0.2.1") == 3
    requests.shed_incomplete(MEMORY_SHORT)
    assert await incomplete.ended() == {"1": MemoryShort, "2": MemoryShort, "3": MemoryShort}


async def test_the_newest_of_each_network_are_spared() -> None:
    """In turns, until there are as many: what one network does not need, another one has."""
    requests = Asked().requests
    incomplete = Incomplete(requests)
    await incomplete.begin(*"12345")
    await incomplete.begin("honest", network="192.0.2.2")
    requests.shed_incomplete(MEMORY_SHORT, 4)
    assert await incomplete.ended() == dict.fromkeys("12", MemoryShort)


async def test_some_are_spared_where_there_are_many_networks() -> None:
    """Those of the networks that came last."""
    requests = Asked().requests
    incomplete = Incomplete(requests)
    for number in range(5):
        await incomplete.begin(str(number), network=f"192.0.2.{number}")
    requests.shed_incomplete(MEMORY_SHORT, 2)
    assert await incomplete.ended() == dict.fromkeys("012", MemoryShort)


async def test_only_those_that_have_just_begun_are_spared_in_the_end() -> None:
    """A small request is there in a moment."""
    requests = Asked().requests
    incomplete = Incomplete(requests)
    await incomplete.begin(*"12")
    await elapse(timedelta(seconds=0.2))
    await incomplete.begin("3")
    requests.shed_incomplete(MEMORY_SHORT, 8, 0.1)
    assert await incomplete.ended() == dict.fromkeys("12", MemoryShort)


async def test_few_are_read_at_a_time_when_that_is_bounded() -> None:
    """Those that were begun before count, and further ones wait until one has ended, or for the end of the bound."""
    requests = Asked().requests
    incomplete = Incomplete(requests)
    await incomplete.begin(*"12")
    requests.bound_reading(3, MEMORY_SHORT)
    await incomplete.begin(*"345")
    assert incomplete.received == [*"123"]
    requests.shed_incomplete(MEMORY_SHORT, 1)
    await settled()
    assert incomplete.received == [*"12345"]
    await incomplete.begin(*"67")
    assert incomplete.received == [*"12345"]
    requests.unbound_reading()
    await settled()
    assert incomplete.received == [*"1234567"]
    assert await incomplete.ended() == dict.fromkeys("12", MemoryShort)


async def test_one_that_waits_to_be_read_too_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it has waited for: it is not its caller that was slow."""
    monkeypatch.setattr(module, "RECEIVE_SECONDS", 0.01)
    requests = Asked().requests
    requests.bound_reading(0, MEMORY_SHORT)
    with pytest.raises(MemoryShort):
        await requests.read("a", asyncio.Event().wait)  # type: ignore[arg-type]  # never comes


async def test_a_request_that_waited_to_be_read_has_its_time_then() -> None:
    """It is not its caller that was slow."""
    requests = Asked().requests
    requests.bound_reading(0, MEMORY_SHORT)
    incomplete = Incomplete(requests)
    await incomplete.begin("1")
    await elapse(timedelta(seconds=module.RECEIVE_SECONDS - 1))
    requests.unbound_reading()
    await settled()
    await elapse(timedelta(seconds=module.RECEIVE_SECONDS - 1))
    assert await incomplete.ended() == {}


def test_a_request_that_is_there_is_not_shed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its call waits for its turn on the loop. A large one counts as being read until then."""
    connection, network = "ipv4:192.0.2.1:1", "192.0.2.1"
    ticks = itertools.count(step=ROUND_SECONDS / 4)
    monkeypatch.setattr(fair_queue, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))

    async def check() -> None:
        requests, come = Asked().requests, asyncio.get_running_loop().create_future()

        async def read() -> bytes:
            own(connection)
            return await requests.read(connection, lambda: come)

        reading = asyncio.create_task(read())
        while not requests.reading_of(network):
            await asyncio.sleep(0)
        of_connection = contextvars.Context()
        of_connection.run(own, connection)
        for _ in range(1000):
            asyncio.get_running_loop().call_soon(int, context=of_connection)
        come.set_result(b"x" * COUNTED_BYTES)
        await asyncio.sleep(0)
        requests.shed_incomplete(MEMORY_SHORT)
        for _ in range(5):
            await asyncio.sleep(0)
        assert (reading.done(), requests.reading_of(network)) == (False, 1)
        assert len(await reading) == COUNTED_BYTES
        assert requests.reading_of(network) == 0

    with asyncio.Runner(loop_factory=FairSelectorLoop) as runner:
        runner.run(check())


class Held:
    """What a request has in memory."""


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Without the garbage collector, which finds old objects that refer to each other as good as never."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
async def test_what_fails_keeps_nothing_of_its_request() -> None:
    """Once its caller has the error."""

    async def fail(_: Held) -> None:
        await asyncio.sleep(0)
        raise KeyError

    held = Held()
    kept = weakref.ref(held)
    with pytest.raises(KeyError):
        await run_to_completion(partial(fail, held))
    del held
    assert kept() is None


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
        await Asked().requests.read("a", partial(begin, held))
    await settled()
    del held
    assert kept() is None


@pytest.mark.usefixtures("uncollected")
async def test_what_is_shed_keeps_nothing_of_its_call() -> None:
    """Also while memory stays critical, and one after the other is shed."""
    requests, held = Asked().requests, Held()
    kept = weakref.ref(held)

    async def receive(_: Held) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def read(held: Held) -> None:
        with pytest.raises(MemoryShort):
            await requests.read("a", partial(receive, held))

    requests.bound_reading(8, MEMORY_SHORT)
    reading = asyncio.create_task(read(held))
    await settled()
    requests.shed_incomplete(MEMORY_SHORT)
    await reading
    await settled()
    del held, reading
    assert kept() is None


async def test_what_is_shed_gives_its_slot_back_before_its_call_has_ended() -> None:
    """The calls of a flood wait for each other; those of others are read at once."""
    requests = Asked().requests
    incomplete = Incomplete(requests)
    await incomplete.begin(*"12345678")
    requests.bound_reading(2, MEMORY_SHORT)
    requests.shed_incomplete(MEMORY_SHORT)
    other = asyncio.create_task(requests.read("ipv4:192.0.2.2:1", partial(asyncio.sleep, 0, b"x")))
    await other
    assert await incomplete.ended() == dict.fromkeys("12345678", MemoryShort)
