"""The pace at which a server is read."""

import asyncio
from datetime import timedelta

from tests.support.fakes.loop import elapse, settled
from turnwire.tools.mcp.wire.pace import UNIT_BYTES, Pace


async def test_a_burst_is_free_and_the_rest_has_a_pace() -> None:
    """Long messages count as several."""
    pace, done = Pace(10, 5), [0]

    async def read() -> None:
        for size in [0] * 5 + [UNIT_BYTES * 9, 0]:
            await pace.take(1, size)
            done[0] += 1

    reading = asyncio.create_task(read())
    await settled()
    assert done == [5]
    await elapse(timedelta(seconds=0.9))
    assert done == [5]
    await elapse(timedelta(seconds=0.15))
    assert done == [6]
    await elapse(timedelta(seconds=0.2))
    assert done == [7]
    await reading
