"""Places among concurrent model calls: tenants have turns."""

import asyncio

from tests.support.fakes.loop import settled
from turnwire.core.answer.slots import Slot
from turnwire.domain.incremental.room import Room


async def test_a_tenant_does_not_wait_for_all_turns_of_another_one() -> None:
    """It has the second place that becomes free."""
    slots, held = Room(1), list[str]()
    go = asyncio.Semaphore(0)

    async def hold(tenant: str) -> None:
        async with Slot(slots, tenant):
            held.append(tenant)
            await go.acquire()

    running = [asyncio.create_task(hold(tenant)) for tenant in ("many", "many", "many", "other")]
    await settled()
    for _ in running:
        go.release()
        await settled()
    await asyncio.gather(*running)
    assert held == ["many", "many", "other", "many"]
    assert slots.held_bytes == 0


async def test_a_place_that_was_left_is_free_until_it_is_taken_again() -> None:
    """While a turn waits for a person, others are answered."""
    slots = Room(1)
    async with Slot(slots, "one") as slot:
        slot.leave()
        slot.leave()
        assert slots.held_bytes == 0
        await slot.take()
        assert slots.held_bytes == 1
    assert slots.held_bytes == 0
