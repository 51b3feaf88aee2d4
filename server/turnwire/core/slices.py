"""Runs long computations on the event loop without holding it."""

import asyncio
import time
from typing import TypeVar

from turnwire.domain.incremental.slices import Sliced

T = TypeVar("T")

SLICE_SECONDS = 0.002
"""The loop is everybody's: a delta of another session waits at most this long, and once more for what it meets."""


class Slices:
    """Lets computations work in turns, one slice of one of them in a round of the event loop.

    `_turns` gives the turns in the order of asking. It is held for one slice, so that 200 computations at once delay
    others no more than one does.
    """

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._turns = asyncio.Lock()

    async def turn(self) -> None:
        """Returns when it is the caller's turn. What it does before it waits again is its slice. Safe to cancel.

        For work of milliseconds without pieces that hundreds come to at the same moment.
        """
        await self._turns.acquire()
        asyncio.get_running_loop().call_soon(self._turns.release)

    async def run(self, work: Sliced[T]) -> T:
        """Returns the result of a computation. Cancelling this ends it."""
        try:
            while True:
                async with self._turns:
                    end = time.perf_counter() + SLICE_SECONDS
                    while time.perf_counter() < end:
                        next(work)
                    await asyncio.sleep(0)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            work.close()
