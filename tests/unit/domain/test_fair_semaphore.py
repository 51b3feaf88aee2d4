"""Budgets: what tenants have together is bounded, half of it for each, and nobody waits for ever."""

import asyncio
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.loop import settled
from turnwire.domain.fair_semaphore import FairSemaphore, Permit


async def _waiting(budget: FairSemaphore, got: list[str], *wanted: tuple[str, int]) -> list[asyncio.Task[None]]:
    """Returns tasks that acquire in this order, and note in `got` when they have."""

    async def want(tenant: str, size: int) -> None:
        await budget.acquire(tenant, size)
        got.append(f"{tenant}{size}")

    tasks = [asyncio.create_task(want(tenant, size)) for tenant, size in wanted]
    await settled()
    return tasks


async def test_what_fits_need_not_wait() -> None:
    """To the last byte; what does not fit waits until enough is given back."""
    budget, got = FairSemaphore(10), list[str]()
    await _waiting(budget, got, ("a", 6), ("b", 4), ("c", 3))
    assert (got, budget.in_use) == (["a6", "b4"], 10)
    budget.release("b", 2)
    await settled()
    assert got == ["a6", "b4"]
    budget.release("a", 1)
    await settled()
    assert (got[2:], budget.in_use) == (["c3"], 10)


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


async def test_one_that_gives_up_holds_nothing() -> None:
    """Before its turn, when those behind it go on, and in the moment of its turn; it is forgotten."""
    budget, got = FairSemaphore(10), list[str]()
    _, first, _, last = await _waiting(budget, got, ("a", 6), ("b", 8), ("c", 2), ("d", 9))
    first.cancel()
    await settled()
    assert (got, budget.in_use) == (["a6", "c2"], 8)
    budget.release("a", 6)
    budget.release("c", 2)
    last.cancel()
    await settled()
    assert (got, budget.in_use, budget._waiting) == (["a6", "c2"], 0, {})
    assert budget.try_acquire("a", 10)


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


@dataclass
class _Model:
    """The same by looking at everything each time."""

    limit: int
    held: list[tuple[str, int]] = field(default_factory=list)
    waiting: list[tuple[str, int, int]] = field(default_factory=list)
    """Tenant, size and number, in order of arrival."""
    turns: list[str] = field(default_factory=list)
    """Tenants that wait, whose turn is next first."""
    seen: set[str] = field(default_factory=set)
    granted: list[int] = field(default_factory=list)

    def used(self, tenant: str | None = None) -> int:
        return sum(size for one, size in self.held if tenant in (None, one))

    def within_share(self, tenant: str, size: int) -> bool:
        used = self.used(tenant)
        return not used or len(self.seen) < 2 or used + size <= self.limit // 2

    def want(self, tenant: str, size: int, number: int) -> None:
        self.seen.add(tenant)
        self.waiting.append((tenant, size, number))
        if tenant not in self.turns:
            self.turns.append(tenant)
        self.grant()

    def leave(self, number: int) -> None:
        self.waiting = [one for one in self.waiting if one[2] != number]
        self.grant()

    def release(self, index: int) -> None:
        del self.held[index]
        self.grant()

    def grant(self) -> None:
        while True:
            self.turns = [tenant for tenant in self.turns if any(one[0] == tenant for one in self.waiting)]
            firsts = [next(one for one in self.waiting if one[0] == tenant) for tenant in self.turns]
            first = next((one for one in firsts if self.within_share(one[0], one[1])), None)
            if first is None or self.used() + first[1] > self.limit:
                return
            tenant, size, number = first
            self.waiting.remove(first)
            self.turns.remove(tenant)
            self.turns.append(tenant)
            self.held.append((tenant, size))
            self.granted.append(number)


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("want"), st.sampled_from("abc"), st.integers(1, 12)),
        st.tuples(st.just("release"), st.just(""), st.integers(0, 20)),
        st.tuples(st.just("leave"), st.just(""), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(_STEPS)
def test_a_budget_does_what_its_model_does(steps: list[tuple[str, str, int]]) -> None:
    """Whoever comes, leaves and gives back, in any order."""
    asyncio.run(_compare(steps))


async def _compare(steps: list[tuple[str, str, int]]) -> None:
    budget, model, granted = FairSemaphore(12), _Model(12), list[int]()
    tasks: dict[int, asyncio.Task[None]] = {}

    async def want(tenant: str, size: int, number: int) -> None:
        await budget.acquire(tenant, size)
        granted.append(number)

    for number, (step, tenant, value) in enumerate(steps):
        if step == "want":
            tasks[number] = asyncio.create_task(want(tenant, value, number))
            model.want(tenant, value, number)
        elif step == "release" and model.held:
            index = value % len(model.held)
            budget.release(*model.held[index])
            model.release(index)
        elif step == "leave" and model.waiting:
            left = model.waiting[value % len(model.waiting)][2]
            tasks[left].cancel()
            model.leave(left)
        await settled()
        assert granted == model.granted
        assert budget.in_use == model.used() <= 12
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert budget._waiting == {}


async def test_what_all_may_have_can_change() -> None:
    """What is in use stays; what fits then is given to those that wait."""
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
