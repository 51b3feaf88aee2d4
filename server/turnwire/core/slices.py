"""Runs long computations on the event loop without holding it."""

import asyncio
import time
from typing import TypeVar
from weakref import WeakValueDictionary

from turnwire.domain.incremental.slices import Sliced
from turnwire.event_loop.owner import OWNER

T = TypeVar("T")

SLICE_SECONDS = 0.002
"""The loop is everybody's: a delta of another session waits at most this long, and once more for what it meets."""


class Slices:
    """Lets the computations of an owner work in turns, one slice of one of them between two looks at its other work.

    `_turns` has a lock for each owner that has computations, which gives the turns in the order of asking. It is held
    for one slice, so that 200 computations at once delay others no more than one does. Owners share the event loop
    (`event_loop/`): a lock of all would be held by one that waits behind all the work of its owner.
    """

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def turn(self) -> None:
        """Returns when it is the caller's turn. What it does before it waits again is its slice. Safe to cancel.

        For work of milliseconds without pieces that hundreds come to at the same moment.
        """
        turn = self._turn()
        await turn.acquire()
        asyncio.get_running_loop().call_soon(turn.release)

    async def run(self, work: Sliced[T]) -> T:
        """Returns the result of a computation. Cancelling this ends it."""
        turn = self._turn()
        try:
            while True:
                async with turn:
                    end = time.perf_counter() + SLICE_SECONDS
                    while time.perf_counter() < end:
                        next(work)
                    await asyncio.sleep(0)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            work.close()

    def _turn(self) -> asyncio.Lock:
        """Returns the lock of the current task's owner."""
        return self._turns.setdefault(OWNER.get(), asyncio.Lock())
