"""Owners of tasks."""

import asyncio

from turnwire.event_loop.owner import NO_OWNER, OWNER, context_without_owner, own, own_if_unowned, without_owner


async def _in_a_task(owner: str) -> str:
    own(owner)
    await asyncio.sleep(0)
    return OWNER.get()


async def _owner() -> str:
    return OWNER.get()


async def test_a_task_is_its_own_owners_alone() -> None:
    """The one that has begun it stays what it was."""
    assert await asyncio.gather(*(asyncio.create_task(_in_a_task(owner)) for owner in "ab")) == ["a", "b"]
    assert OWNER.get() == NO_OWNER


async def test_what_a_task_begins_is_its_owners() -> None:
    """So a turn is work of the connection that has asked for it."""

    async def begins() -> str:
        own("a")
        return await asyncio.create_task(_owner())

    assert await asyncio.create_task(begins()) == "a"


async def test_work_of_somebody_stays_theirs() -> None:
    """Only what is nobody's gets another owner."""

    async def owned(first: str) -> str:
        own(first)
        own_if_unowned("b")
        return OWNER.get()

    assert [await asyncio.create_task(owned(first)) for first in ("a", NO_OWNER)] == ["a", "b"]


async def test_what_others_wait_for_is_nobodys() -> None:
    """It has all else of its context."""

    async def begins() -> str:
        own("a")
        return await asyncio.create_task(_owner(), context=context_without_owner())

    assert await asyncio.create_task(begins()) == NO_OWNER


async def test_what_others_wait_for_is_nobodys_while_it_is_held() -> None:
    """And its owner's again behind it, also when it fails."""

    async def holds() -> list[str]:
        own("a")
        owners = []
        for error in (None, ValueError()):
            try:
                with without_owner():
                    owners.append(await asyncio.create_task(_owner()))
                    if error is not None:
                        raise error
            except ValueError:
                pass
            owners.append(OWNER.get())
        return owners

    assert await asyncio.create_task(holds()) == [NO_OWNER, "a", NO_OWNER, "a"]
