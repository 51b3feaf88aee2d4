"""Work in small steps ends when it is told to."""

import asyncio

import pytest

from tests.support.fakes.loop import settled
from turnwire.domain.errors import ShuttingDown
from turnwire.storage.sqlite.steps import Steps


class Nothing(Steps):
    """Never has anything to do."""

    def __init__(self) -> None:
        """Needs no connection."""
        super().__init__(None, lambda _: False, 0, "nothing", idle_seconds=3600)  # type: ignore[arg-type]

    async def _carry_out(self) -> bool:
        return False


@pytest.mark.parametrize("loops", range(6))
async def test_work_that_is_woken_and_closed_at_once_ends(loops: int) -> None:
    """At whatever step of the loop: a server would stop an hour later."""
    work = Nothing()
    work.start()
    await settled()
    work.wake()
    for _ in range(loops):
        await asyncio.sleep(0)
    closing = asyncio.create_task(work.aclose())
    await settled()
    assert closing.done()


async def test_work_that_a_stopping_store_refuses_waits_to_be_closed() -> None:
    """Its task does not fail, which asyncio would report."""

    class Refused(Nothing):
        async def _carry_out(self) -> bool:
            raise ShuttingDown

    work = Refused()
    work.start()
    await settled()
    assert work._task is not None
    assert not work._task.done()
    await work.aclose()
    assert work._task.cancelled()
