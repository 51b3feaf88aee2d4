"""Room: places by size, owners in turns, and nobody is overtaken for ever."""

import asyncio

from tests.support.fakes.loop import settled
from turnwire.domain.incremental.room import Room


async def _asked(room: Room, got: list[str], *wanted: tuple[str, int]) -> list[asyncio.Task[None]]:
    """Returns tasks that want places in this order, and note in `got` when they have them."""

    async def want(owner: str, size: int) -> None:
        await room.take(owner, size)
        got.append(f"{owner}{size}")

    tasks = [asyncio.create_task(want(owner, size)) for owner, size in wanted]
    await settled()
    return tasks


async def test_what_fits_need_not_wait() -> None:
    """To the last byte; what does not fit waits until enough is given back."""
    room, got = Room(10), list[str]()
    await _asked(room, got, ("a", 6), ("b", 4), ("c", 3))
    assert (got, room.held_bytes) == (["a6", "b4"], 10)
    room.change(-2)
    await settled()
    assert got == ["a6", "b4"]
    room.change(-1)
    await settled()
    assert (got[2:], room.held_bytes) == (["c3"], 10)


async def test_owners_take_turns_and_each_ones_order_stays() -> None:
    """Though one of them has asked for many before another one came."""
    room, got = Room(10), list[str]()
    await _asked(room, got, ("a", 10), ("b", 1), ("b", 2), ("b", 3), ("c", 4))
    for _ in range(4):
        room.change(-room.held_bytes)
        await settled()
    assert got == ["a10", "b1", "c4", "b2", "b3"]


async def test_a_large_one_is_not_overtaken() -> None:
    """Small ones that would fit wait behind it."""
    room, got = Room(10), list[str]()
    await _asked(room, got, ("a", 6), ("b", 8), ("c", 1))
    assert (got, room.has_room(1)) == (["a6"], False)
    room.change(-6)
    await settled()
    assert (got, room.held_bytes) == (["a6", "b8", "c1"], 9)


async def test_one_that_gives_up_takes_nothing() -> None:
    """Before its turn, when those behind it go on, and in the moment of its turn."""
    room, got = Room(10), list[str]()
    _, first, _, last = await _asked(room, got, ("a", 6), ("b", 8), ("c", 2), ("d", 9))
    first.cancel()
    await settled()
    assert (got, room.held_bytes) == (["a6", "c2"], 8)
    room.change(-8)
    last.cancel()
    await settled()
    assert (got, room.held_bytes) == (["a6", "c2"], 0)
    assert room.has_room(10)


async def test_those_that_gave_up_are_forgotten() -> None:
    """However many come and go behind one that waits for long."""
    room, got = Room(10), list[str]()
    await _asked(room, got, ("a", 6), ("a", 8))
    for owner in ("a", "b"):
        [one] = await _asked(room, got, (owner, 9))
        one.cancel()
        await settled()
    assert [(owner, len(turns)) for owner, turns in room._waiting.items()] == [("a", 1)]
    room.change(-6)
    await settled()
    assert (got, room.held_bytes, room._waiting) == (["a6", "a8"], 8, {})
