"""Housekeeping: steps in turns, looks at the files, and an end at once."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import cast

import pytest

from tests.support.fakes.loop import begun, elapse, settled
from turnwire.domain.errors import ShuttingDown, StorageFull
from turnwire.storage.sql.housekeeping import (
    LOOK_SECONDS,
    PAUSE_SECONDS,
    RETRY_SECONDS,
    ROUND_SECONDS,
    Housekeeping,
    Step,
)
from turnwire.storage.sql.writer import GroupWriter


class _Writer:
    """Counts the looks at the files."""

    def __init__(self) -> None:
        self.looks = 0

    async def look(self) -> None:
        """Looks."""
        self.looks += 1
        assert self.looks < 1000, "it does nothing else"


def keeping(writer: _Writer, *steps: Callable[[], bool]) -> Housekeeping:
    """Returns the task with steps that need no database."""

    def step_of(one: Callable[[], bool]) -> Step:
        async def step() -> bool:
            return one()

        return step

    return Housekeeping(cast(GroupWriter, writer), [step_of(one) for one in steps])


async def test_steps_are_carried_out_in_turns_until_nothing_is_left() -> None:
    """Then after a while, or when somebody tells that there is something to do."""
    done, left = list[str](), {"a": 2, "b": 1}

    def step(name: str) -> Callable[[], bool]:
        def carry_out() -> bool:
            done.append(name)
            left[name] -= 1
            return left[name] > 0

        return carry_out

    work = keeping(_Writer(), step("a"), step("b"))
    work.start()
    await settled()
    assert done == ["a", "b"]
    await elapse(timedelta(seconds=PAUSE_SECONDS))
    assert done == ["a", "b", "a"]
    await elapse(timedelta(seconds=ROUND_SECONDS / 2))
    assert done == ["a", "b", "a"]
    work.wake()
    await settled()
    assert done == ["a", "b", "a", "a", "b"]
    await elapse(timedelta(seconds=ROUND_SECONDS + LOOK_SECONDS))
    assert done == ["a", "b", "a", "a", "b", "a", "b"]
    await work.aclose()


async def test_the_files_are_looked_at_once_a_second() -> None:
    """At the start, then after each pause, until the end; steps come more seldom."""
    writer, rounds = _Writer(), list[int]()
    work = keeping(writer, lambda: bool(rounds.append(1)))
    work.start()
    await settled()
    for looks in (1, 2, 3):
        assert writer.looks == looks
        await elapse(timedelta(seconds=LOOK_SECONDS))
    assert len(rounds) == 1
    await work.aclose()
    looks = writer.looks
    await elapse(timedelta(seconds=ROUND_SECONDS))
    assert writer.looks == looks


@pytest.mark.parametrize("failure", [StorageFull("no space"), ShuttingDown()])
async def test_a_step_that_failed_is_tried_again_later(failure: Exception) -> None:
    """The task does not fail, which asyncio would report, and looks at the files meanwhile."""
    writer, tries = _Writer(), list[int]()

    def fail() -> bool:
        tries.append(1)
        raise failure

    work = keeping(writer, fail)
    work.start()
    await settled()
    before = writer.looks
    await elapse(timedelta(seconds=RETRY_SECONDS / 2))
    assert len(tries) == 1
    assert writer.looks > before
    await elapse(timedelta(seconds=RETRY_SECONDS))
    assert len(tries) == 2
    await work.aclose()


@pytest.mark.parametrize("loops", range(6))
async def test_work_that_is_woken_and_closed_at_once_ends(loops: int) -> None:
    """At whatever step of the loop: a server would stop a minute later."""
    work = keeping(_Writer(), lambda: False)
    work.start()
    await settled()
    work.wake()
    for _ in range(loops):
        await asyncio.sleep(0)
    assert (await begun(work.aclose())).done()
