"""Shares: nobody has all of a room, owners have turns, and nobody waits for ever."""

import asyncio

from tests.support.fakes.loop import settled
from turnwire.domain.incremental.shares import Shares


async def _asked(room: Shares, got: list[str], *wanted: tuple[str, int]) -> list[asyncio.Task[None]]:
    """Returns tasks that want places in this order, and note in `got` when they have them."""

    async def want(owner: str, size: int) -> None:
        await room.take(owner, size)
        got.append(f"{owner}{size}")

    tasks = [asyncio.create_task(want(owner, size)) for owner, size in wanted]
    await settled()
    return tasks


async def test_one_owner_leaves_some_to_others() -> None:
    """Who comes later goes on beside those of it that wait, and it goes on when it has less."""
    room, got = Shares(12, 2), list[str]()
    await _asked(room, got, *[("a", 2)] * 5, ("b", 2))
    assert (got, room.held_bytes) == ([*["a2"] * 4, "b2"], 10)
    room.give_back("b", 2)
    await settled()
    assert (got[5:], room.held_bytes) == ([], 8)
    room.give_back("a", 2)
    await settled()
    assert (got[5:], room.held_bytes) == (["a2"], 8)


async def test_the_first_of_an_owner_may_have_all() -> None:
    """To the last byte; without a share its others may, too."""
    for share, most in ((2, ["a12"]), (None, ["a12"])):
        room, got = Shares(12, share), list[str]()
        await _asked(room, got, ("a", 12), ("b", 1))
        assert got == most
    room, got = Shares(12), list[str]()
    await _asked(room, got, ("a", 6), ("a", 6), ("a", 1))
    assert got == ["a6", "a6"]


async def test_owners_take_turns() -> None:
    """Though one of them has asked for many before another one came; each one's order stays."""
    room, got = Shares(10), list[str]()
    await _asked(room, got, ("a", 10), ("b", 1), ("b", 2), ("b", 8), ("c", 7))
    room.give_back("a", 10)
    await settled()
    assert (got, room.held_bytes) == (["a10", "b1", "c7", "b2"], 10)
    room.give_back("c", 7)
    await settled()
    assert got[4:] == []
    room.give_back("b", 1)
    await settled()
    assert got[4:] == ["b8"]


async def test_who_has_nothing_is_not_overtaken() -> None:
    """Small ones that would fit wait behind it."""
    room, got = Shares(10, 2), list[str]()
    await _asked(room, got, ("a", 6), ("b", 8), ("c", 1))
    assert (got, room.has_room("d", 1)) == (["a6"], False)
    room.give_back("a", 6)
    await settled()
    assert (got, room.held_bytes) == (["a6", "b8", "c1"], 9)


async def test_one_that_gives_up_takes_nothing() -> None:
    """Before its turn, when those behind it go on, and in the moment of its turn."""
    room, got = Shares(10), list[str]()
    _, first, _, last = await _asked(room, got, ("a", 6), ("b", 8), ("c", 2), ("d", 9))
    first.cancel()
    await settled()
    assert (got, room.held_bytes) == (["a6", "c2"], 8)
    room.give_back("a", 6)
    room.give_back("c", 2)
    last.cancel()
    await settled()
    assert (got, room.held_bytes, room._waiting, room._held_of) == (["a6", "c2"], 0, {}, {})
