"""Requests: read within a time, with memory for large ones until they are carried out."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.loop import settled
from tests.support.oracles.budget import BudgetOracle, Part
from turnwire.api.admission import requests as module
from turnwire.api.admission.flow import Client
from turnwire.api.admission.requests import COUNTED_BYTES, MEMORY_OF_BYTE, Requests, run_to_completion
from turnwire.domain.errors import TooManyCalls

MAX_BYTES = 10 * MEMORY_OF_BYTE * COUNTED_BYTES
HALF = 5 * COUNTED_BYTES
"""Size of a request: two have memory."""


@pytest.fixture(autouse=True)
def _much_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budgets of these tests are small."""
    monkeypatch.setattr(module, "WAITING_SHARE", 10.0)


async def test_one_that_is_larger_than_what_may_wait_waits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would be refused whenever another one has memory, where there is little of it."""
    monkeypatch.setattr(module, "WAITING_SHARE", 1 / 20)
    asked = Asked()
    calls = [asked.ask("first"), asked.ask("large", 2 * HALF)]
    await settled()
    assert asked.begun == ["first"]
    with pytest.raises(TooManyCalls):
        await asked.ask("further", 2 * HALF, "ipv4:192.0.2.2:1")
    asked.finish("first", "large")
    await asyncio.gather(*calls)
    assert (asked.begun, asked.requests._waiting.in_use) == (["first", "large"], 0)


class Asked:
    """Requests that are carried out until the test says so."""

    def __init__(self) -> None:
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
    monkeypatch.setattr(module, "WAITING_SHARE", 0.4)
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
    """A caller that has not left gets the error."""

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


class Held:
    """Memory of a request."""


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


_STEPS = st.lists(
    st.tuples(st.sampled_from(("ask", "ask", "finish", "leave")), st.sampled_from("123"), st.integers(0, 14)),
    min_size=20,
    max_size=30,
)


@given(_STEPS)
def test_requests_have_memory_as_in_a_model(steps: list[tuple[str, str, int]]) -> None:
    """Whatever comes, ends and leaves, in any order; small ones are not counted. What has begun ends by itself."""
    asyncio.run(_compare(steps))


async def _compare(steps: list[tuple[str, str, int]]) -> None:
    asked, oracle = Asked(), BudgetOracle(MAX_BYTES)
    calls, parts = dict[int, asyncio.Task[None]](), dict[int, Part]()
    for number, (step, network, value) in enumerate(steps):
        if step == "ask":
            size, connection = value * COUNTED_BYTES, f"ipv4:192.0.2.{network}:1"
            calls[number] = asked.ask(str(number), size, connection)
            parts[number] = Part(network, "", min(size * MEMORY_OF_BYTE, MAX_BYTES), number)
            if size:
                oracle.want(parts[number])
        elif step == "finish" and oracle.held:
            part = oracle.held[value % len(oracle.held)]
            asked.finish(str(part.number))
            oracle.release(part)
        elif step == "leave" and oracle.waiting:
            part = oracle.waiting[value % len(oracle.waiting)]
            calls[part.number].cancel()
            oracle.leave(part)
        await settled()
        small = {str(part.number) for part in parts.values() if not part.size}
        assert [name for name in asked.begun if name not in small] == list(map(str, oracle.granted))
        assert small <= set(asked.begun)
        assert asked.requests._memory.in_use == oracle.used() <= MAX_BYTES
    for task in calls.values():
        task.cancel()
    asked.finish(*map(str, calls))
    await asyncio.gather(*calls.values(), return_exceptions=True)
    assert (asked.requests._memory.in_use, asked.requests._waiting.in_use) == (0, 0)
