"""One piece of work at a time."""

import asyncio

import pytest

from tests.support.fakes.loop import settled
from turnwire.domain.incremental.fairness import OneAtATime


class Work:
    """Pieces of work that end when they are told, and note their order."""

    def __init__(self) -> None:
        """Nothing was begun."""
        self.one = OneAtATime()
        self.begun: list[str] = []
        self.may_end = asyncio.Event()

    def of(self, owner: str, name: str) -> "asyncio.Task[str]":
        """Begins a piece, when it is its turn."""

        async def work() -> str:
            self.begun.append(name)
            await self.may_end.wait()
            if name == "fails":
                raise LookupError(name)
            return name

        return asyncio.create_task(self.one.run(owner, work))


async def test_owners_take_turns() -> None:
    """Whoever brings many gets one done when each of the others had one; those of one owner keep their order."""
    work = Work()
    tasks = [work.of(name[0], name) for name in ("a0", "a1", "a2", "b0", "b1", "c0")]
    await settled()
    assert work.begun == ["a0"]
    work.may_end.set()
    assert await asyncio.gather(*tasks) == ["a0", "a1", "a2", "b0", "b1", "c0"]
    assert work.begun == ["a0", "a1", "b0", "c0", "a2", "b1"]


async def test_who_is_gone_is_left_out() -> None:
    """Work that runs goes on alone until its end; work that waits never begins."""
    work = Work()
    running, gone, last = (work.of("a", name) for name in ("running", "gone", "last"))
    await settled()
    for task in (running, gone):
        task.cancel()
    await settled()
    assert (running.cancelled(), gone.cancelled(), work.begun) == (True, True, ["running"])
    work.may_end.set()
    assert await last == "last"
    assert work.begun == ["running", "last"]


async def test_an_error_is_its_callers() -> None:
    """The next work is not affected."""
    work = Work()
    work.may_end.set()
    failing, last = work.of("a", "fails"), work.of("b", "last")
    with pytest.raises(LookupError):
        await failing
    assert await last == "last"
