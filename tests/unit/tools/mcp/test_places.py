"""Places for large messages: what is in memory of them has a bound, of one server and of all."""

import asyncio

from tests.support.fakes.loop import settled
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.tools.mcp.places import ALWAYS_BYTES, Place, Places

LARGE = 1_000_000
LENGTH = {"content-length": str(LARGE)}


def _place(places: Places, *, is_kept: bool = True) -> Place:
    return Place(places, LENGTH, is_kept=is_kept)


async def test_a_large_message_waits_for_its_place() -> None:
    """Small ones do not; it goes on when one before it has left."""
    places = Places("a", FairSemaphore(4 * LARGE, tenant_limit=2 * LARGE))
    first, second, third = (_place(places) for _ in range(3))
    await first.take(ALWAYS_BYTES + 1)
    await second.take(ALWAYS_BYTES + 1)
    waiting = asyncio.create_task(third.take(ALWAYS_BYTES + 1))
    await settled()
    assert not waiting.done()
    await third.take(ALWAYS_BYTES)
    first.leave()
    await waiting


async def test_one_server_has_half_of_the_room() -> None:
    """The other half is there for the others, whatever it holds."""
    room = FairSemaphore(4 * LARGE, tenant_limit=2 * LARGE)
    wild, other = Places("wild", room), Places("other", room)
    held = [_place(wild) for _ in range(3)]
    tasks = [asyncio.create_task(place.take(LARGE)) for place in held]
    await settled()
    assert [task.done() for task in tasks] == [True, True, False]
    await _place(other).take(LARGE)
    assert room.in_use == 3 * LARGE
    tasks[2].cancel()


async def test_who_is_cancelled_while_it_waits_holds_nothing() -> None:
    """Neither of its own room nor of that of all."""
    room = FairSemaphore(2 * LARGE)
    places, others = Places("a", room), Places("b", room)
    await _place(others).take(LARGE)
    await _place(Places("c", room)).take(LARGE)
    task = asyncio.create_task(_place(places).take(LARGE))
    await settled()
    task.cancel()
    await settled()
    assert room.in_use == 2 * LARGE
    room.release("other", LARGE)
    await _place(places).take(LARGE)


async def test_a_place_without_a_call_ends_with_its_message() -> None:
    """A stream of the server's own goes on for days."""
    room = FairSemaphore(2 * LARGE)
    place = _place(Places("a", room), is_kept=False)
    await place.take(LARGE)
    await place.take(0)
    assert room.in_use == 0
