"""Requests in work: room by what they take in memory, in turns, and what waits has a bound."""

import asyncio

import pytest

from tests.support.fakes.loop import settled
from turnwire.api.bounds import working
from turnwire.api.bounds.sending import Client
from turnwire.api.bounds.working import (
    COUNTED_BYTES,
    LARGE_BYTES,
    MAX_LARGE_WORKING_BYTES,
    MAX_WORKING_BYTES,
    MEMORY_OF_BYTE,
    Working,
)
from turnwire.domain.errors import TooManyCalls

HALF = MAX_LARGE_WORKING_BYTES // (2 * MEMORY_OF_BYTE)
"""Of a large request: two have room."""


class Requests:
    """Requests that are in work until the test says so."""

    def __init__(self) -> None:
        """None is in work."""
        self.working = Working()
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
            async with self.working.room(Client("acme", connection), size, only_reads=reads) as finish:
                await finish(work)

        return asyncio.create_task(request())

    def finish(self, *names: str) -> None:
        """Lets requests end."""
        for name in names:
            self._done[name].set()


async def test_large_ones_have_room_by_what_they_take_in_memory() -> None:
    """The next one begins when one has ended."""
    requests = Requests()
    calls = [requests.ask(name) for name in "123"]
    await settled()
    assert requests.begun == ["1", "2"]
    requests.finish("2")
    await settled()
    assert requests.begun == ["1", "2", "3"]
    requests.finish("1", "3")
    await asyncio.gather(*calls)


async def test_one_that_is_larger_than_the_room_has_all_of_it() -> None:
    """Where the configuration allows such requests."""
    requests = Requests()
    large, next_one = requests.ask("1", MAX_LARGE_WORKING_BYTES), requests.ask("2")
    await settled()
    assert requests.begun == ["1"]
    requests.finish("1", "2")
    await asyncio.gather(large, next_one)


async def test_smaller_ones_do_not_wait_behind_large_ones() -> None:
    """They have room of their own, and the smallest need none."""
    requests = Requests()
    sizes = {"1": HALF, "2": HALF, "3": HALF, "4": LARGE_BYTES, "5": COUNTED_BYTES - 1}
    calls = [requests.ask(name, size) for name, size in sizes.items()]
    await settled()
    assert sorted(requests.begun) == [*"1245"]
    assert requests.working._others.held_bytes == MEMORY_OF_BYTE * LARGE_BYTES
    requests.finish(*"12345")
    await asyncio.gather(*calls)
    assert requests.working.held_bytes == 0


async def test_addresses_and_tenants_take_turns() -> None:
    """Many of one address do not hold up the only one of another."""
    requests = Requests()
    calls = [requests.ask(name, connection=f"ipv4:192.0.2.1:{name}") for name in "12345"]
    calls.append(requests.ask("6", connection="ipv4:192.0.2.2:1"))
    await settled()
    requests.finish("1", "2")
    await settled()
    assert requests.begun == [*"1236"]
    requests.finish(*"3456")
    await asyncio.gather(*calls)


async def test_the_newest_of_who_has_most_is_refused_when_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hint when to try again. Others wait on."""
    monkeypatch.setattr(working, "MAX_WAITING_REQUESTS_BYTES", 3 * HALF)
    requests = Requests()
    calls = [requests.ask(name) for name in "12345"]
    await settled()
    modest = requests.ask("6", connection="ipv4:192.0.2.2:1")
    await settled()
    with pytest.raises(TooManyCalls) as refused:
        await calls.pop()
    assert refused.value.metadata == {"limit": "MAX_WAITING_REQUESTS_BYTES", "limitValue": str(3 * HALF)}
    assert refused.value.retry_after is not None
    requests.finish(*"12346")
    await asyncio.gather(*calls, modest)
    assert requests.working._waiting.total == 0


async def test_a_caller_who_leaves_while_it_waits_is_forgotten() -> None:
    """And those behind it go on."""
    requests = Requests()
    calls = [requests.ask(name) for name in "1234"]
    await settled()
    calls[2].cancel()
    await asyncio.gather(calls.pop(2), return_exceptions=True)
    requests.finish("1", "2", "4")
    await asyncio.gather(*calls)
    assert (requests.begun, requests.working._waiting.total) == ([*"124"], 0)


async def test_what_was_begun_keeps_its_room_until_its_end() -> None:
    """Its caller may have left: the request is in memory nevertheless. The call ends with it."""
    requests = Requests()
    calls = [requests.ask(name) for name in "123"]
    await settled()
    for _ in range(2):
        calls[0].cancel()
        await settled()
    assert (calls[0].done(), requests.begun) == (False, ["1", "2"])
    requests.finish("1")
    await settled()
    assert (calls[0].cancelled(), requests.begun) == (True, ["1", "2", "3"])
    requests.finish("2", "3")
    await asyncio.gather(*calls[1:])


async def test_what_fails_when_its_caller_has_left_is_told_to_nobody() -> None:
    """Who has not left gets the error."""

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        await working.certain(fail)
    call = asyncio.create_task(working.certain(fail))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_others_do_not_wait_behind_one_that_asks_for_much() -> None:
    """What it asks for may take long, as copies of sessions do that wait for each other."""
    requests = Requests()
    names = [str(number) for number in range(20)]
    calls = [requests.ask(name, MAX_WORKING_BYTES // (16 * MEMORY_OF_BYTE)) for name in names]
    await settled()
    assert 0 < len(requests.begun) < 16
    other = requests.ask("other", 10 * COUNTED_BYTES, "ipv4:192.0.2.2:1")
    await settled()
    assert requests.begun[-1] == "other"
    requests.finish(*names, "other")
    await asyncio.gather(other, *calls)
    assert requests.working.held_bytes == 0


async def test_large_ones_that_only_read_leave_room_to_what_is_to_be_stored() -> None:
    """One at a time has room; one that leaves, waiting or not, gives back what it has."""
    requests = Requests()
    calls = [requests.ask(name, HALF, reads=True) for name in "123"]
    await settled()
    stored = requests.ask("4")
    await settled()
    assert requests.begun == ["1", "4"]
    calls[0].cancel()
    calls[1].cancel()
    await settled()
    assert requests.begun == ["1", "4", "3"]
    requests.finish("3", "4")
    await asyncio.gather(*calls, stored, return_exceptions=True)
    assert (requests.working.held_bytes, requests.working._large_reads.held_bytes) == (0, 0)
