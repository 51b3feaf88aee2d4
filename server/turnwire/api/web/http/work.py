"""Shares the event loop between connections that have sent much and everything else."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from contextvars import Context
from typing import TypeVar

T = TypeVar("T")

TURN_SECONDS = 0.002
"""How long all connections together work before everything else has its turn."""

PAUSE_SECONDS = 0.001
"""How long everything else has. A call takes several turns of the loop, so one of them alone would be too little."""

_FEW = 32
"""Connections or requests that are ended together."""


async def a_few_at_a_time(items: Collection[T]) -> AsyncIterator[T]:
    """Yields the items, for work on thousands of them. Everything else has its turn between."""
    for number, item in enumerate(items, 1):
        yield item
        if not number % _FEW:
            await asyncio.sleep(0)


class Work:
    """What connections have still to read, a piece at a time and in turns. Belongs to the event loop."""

    def __init__(self) -> None:
        """There is nothing to read yet."""
        self._steps: deque[Callable[[], bool]] = deque()

    def add(self, step: Callable[[], bool]) -> None:
        """Runs a step again and again until it returns False. It must take a millisecond or two, and not raise."""
        self._steps.append(step)
        if len(self._steps) == 1:
            asyncio.get_running_loop().call_soon(self._run, context=Context())  # nobody's: for all connections

    def _run(self) -> None:
        until = time.perf_counter() + TURN_SECONDS
        while self._steps:
            step = self._steps[0]
            again = step()
            self._steps.popleft()
            if again:
                self._steps.append(step)
            if time.perf_counter() >= until:
                break
        if self._steps:
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._run)
