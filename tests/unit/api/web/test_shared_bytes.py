"""Bytes that many have together: the newest of who has most is refused."""

import asyncio
from collections.abc import Callable

import pytest

from tests.support.fakes.loop import begun, settled
from turnwire.api.web.shared_bytes import LARGE_BYTES, ByteLease, SharedBytes
from turnwire.domain.errors import TooManyCalls


class Leases:
    """Leases that stay until the test says so."""

    def __init__(self, max_bytes: int) -> None:
        self.shared = SharedBytes("MAX_BYTES", max_bytes, "too many")
        self.end = asyncio.Event()
        self.leases: list[ByteLease] = []

    async def begin(self, owner: str) -> tuple[asyncio.Task[None], Callable[[int], None]]:
        """Begins a lease; returns its task, and what makes it grow."""

        async def have() -> None:
            async with self.shared.lease(owner) as lease:
                self.leases.append(lease)
                await self.end.wait()

        return await begun(have()), self.leases[-1].grow


async def test_the_newest_of_who_has_most_is_refused() -> None:
    """Also when another one grows; all others stay."""
    leases = Leases(10)
    old, grow_old = await leases.begin("most")
    new, grow_new = await leases.begin("most")
    other, grow_other = await leases.begin("other")
    grow_new(5)
    grow_old(1)
    grow_other(4)
    assert leases.shared.total == 10
    grow_other(1)
    assert leases.shared.total == 6
    await settled()
    assert (old.done(), new.done(), other.done()) == (False, True, False)
    with pytest.raises(TooManyCalls) as refused:
        await new
    assert refused.value.metadata == {"limit": "MAX_BYTES", "limitValue": "10"}
    assert refused.value.retry_after is not None
    leases.end.set()
    await asyncio.gather(old, other)
    assert (leases.shared.total, leases.shared._leases, leases.shared._bytes) == (0, {}, {})


async def test_one_that_is_refused_may_not_grow() -> None:
    """Neither when it is refused itself, nor when it was and did not know."""
    leases = Leases(10)
    alone, grow = await leases.begin("a")
    with pytest.raises(TooManyCalls):
        grow(11)
    with pytest.raises(TooManyCalls):
        grow(1)
    assert leases.shared.total == 0
    leases.end.set()
    await alone


async def test_as_many_are_refused_as_are_too_much() -> None:
    """One that grows much may end several."""
    leases = Leases(10)
    several = [await leases.begin("most") for _ in range(4)]
    for _, grow in several:
        grow(2)
    last, grow_last = await leases.begin("other")
    grow_last(5)
    await settled()
    assert [task.done() for task, _ in several] == [False, False, True, True]
    leases.end.set()
    await asyncio.gather(last, *(task for task, _ in several), return_exceptions=True)
    assert leases.shared.total == 0


async def test_another_timeout_is_no_refusal() -> None:
    """An error of its body is raised."""
    with pytest.raises(TimeoutError):
        async with SharedBytes("MAX_BYTES", 10, "too many").lease("a"):
            raise TimeoutError


async def test_small_ones_behind_the_same_proxy_stay() -> None:
    """Large ones that never end do not keep the calls of their neighbours out."""
    leases = Leases(3 * LARGE_BYTES)
    old, grow_old = await leases.begin("proxy")
    new, grow_new = await leases.begin("proxy")
    small, grow_small = await leases.begin("proxy")
    grow_old(LARGE_BYTES)
    grow_new(2 * LARGE_BYTES)
    grow_small(100)
    await settled()
    assert (old.done(), new.done(), small.done()) == (False, True, False)
    with pytest.raises(TooManyCalls):
        await new
    leases.end.set()
    await asyncio.gather(old, small)
