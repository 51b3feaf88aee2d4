"""Budgets: what tenants have together is bounded, half of it for each, and nobody waits for ever."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.loop import settled
from tests.support.oracles.budget import BudgetOracle, Part
from turnwire.domain.fair_semaphore import FairSemaphore, Permit


async def _waiting(budget: FairSemaphore, got: list[str], *wanted: tuple[str, int]) -> list[asyncio.Task[None]]:
    """Returns tasks that acquire in this order, and note in `got` when they have."""

    async def want(tenant: str, size: int) -> None:
        await budget.acquire(tenant, size)
        got.append(f"{tenant}{size}")

    tasks = [asyncio.create_task(want(tenant, size)) for tenant, size in wanted]
    await settled()
    return tasks


async def test_the_only_tenant_has_all_of_it() -> None:
    """From when there is a second one on, each has half."""
    budget, got = FairSemaphore(10), list[str]()
    await _waiting(budget, got, ("a", 6), ("a", 4), ("b", 5), ("a", 1))
    assert got == ["a6", "a4"]
    budget.release("a", 6)
    await settled()
    assert got == ["a6", "a4", "b5", "a1"]
    assert not budget.try_acquire("a", 1)
    budget.release("b", 5)
    assert not budget.try_acquire("a", 1)
    assert budget.try_acquire("b", 5)


async def test_the_first_of_a_tenant_may_be_as_large_as_all() -> None:
    """It waits for others, and none of them overtakes it meanwhile."""
    budget, got = FairSemaphore(10), list[str]()
    await _waiting(budget, got, ("a", 2), ("b", 10), ("c", 1))
    assert (got, budget.try_acquire("d", 1)) == (["a2"], False)
    budget.release("a", 2)
    await settled()
    assert got == ["a2", "b10"]
    budget.release("b", 10)
    await settled()
    assert (got, budget.in_use) == (["a2", "b10", "c1"], 1)


async def test_a_lease_grows_when_there_is_more_and_gives_all_back() -> None:
    """Also when what is done with it fails."""
    budget = FairSemaphore(10)
    lease = Permit(budget, "a")
    await lease.acquire(4)
    assert lease.try_grow(6)
    assert not lease.try_grow(11)
    lease.shrink(8)
    assert (lease.size, budget.in_use) == (6, 6)
    lease.shrink(2)
    assert (lease.size, budget.in_use) == (2, 2)
    lease.release()
    lease.release()
    async with budget.held("b", 3) as held:
        held.release()
        await held.acquire(5)
    assert budget.in_use == 0


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(("want", "release", "leave")),
        st.sampled_from("abc"),
        st.sampled_from(("", "x", "y")),
        st.integers(1, 12),
    ),
    min_size=25,
    max_size=40,
)


@given(_STEPS)
def test_a_budget_does_what_its_model_does(steps: list[tuple[str, str, str, int]]) -> None:
    """Whoever comes, leaves and gives back, in any order."""
    asyncio.run(_compare(steps))


async def _compare(steps: list[tuple[str, str, str, int]]) -> None:
    budget, oracle, granted = FairSemaphore(12), BudgetOracle(12), list[int]()
    tasks: dict[int, asyncio.Task[None]] = {}

    async def want(part: Part) -> None:
        await budget.acquire(part.tenant, part.size, part.connection)
        granted.append(part.number)

    for number, (step, tenant, connection, value) in enumerate(steps):
        if step == "want":
            part = Part(tenant, connection, value, number)
            tasks[number] = asyncio.create_task(want(part))
            oracle.want(part)
        elif step == "release" and oracle.held:
            part = oracle.held[value % len(oracle.held)]
            budget.release(part.tenant, part.size, part.connection)
            oracle.release(part)
        elif step == "leave" and oracle.waiting:
            part = oracle.waiting[value % len(oracle.waiting)]
            tasks[part.number].cancel()
            oracle.leave(part)
        await settled()
        assert granted == oracle.granted
        assert budget.in_use == oracle.used() <= 12
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert budget._waiting == {}


async def test_what_all_may_have_can_change() -> None:
    """Places in use stay; those that fit then are given to those that wait."""
    budget, got = FairSemaphore(10), list[str]()
    await _waiting(budget, got, ("a", 4), ("b", 4))
    budget.resize(6)
    await _waiting(budget, got, ("a", 1), ("b", 2))
    assert (got, budget.in_use) == (["a4", "b4"], 8)
    budget.release("b", 4)
    await settled()
    assert got[2:] == ["b2"]
    budget.resize(20)
    await settled()
    assert got[3:] == ["a1"]
