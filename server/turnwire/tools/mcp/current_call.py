"""The call for which a request goes to a server: what comes is read while it runs, and has its place until it ends.

The SDK leaves the answer to a call that was given up as it is, for as long as the server wants.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar, Token
from typing import Self

_CURRENT: ContextVar["CurrentCall | None"] = ContextVar("current_call", default=None)


class CallOverError(Exception):
    """The call has ended, so nobody wants what comes."""


class CurrentCall:
    """A call while it runs: a context manager, entered once. Used on the event loop only.

    What is sent within it belongs to it, also when a task of the SDK does so. `_reading` has the time limits of all
    that waits for the server, and `_places` what gives up the places of what came; both end with the call.
    """

    def __init__(self) -> None:
        """Has not begun."""
        self._reading: set[asyncio.Timeout] = set()
        self._places: list[Callable[[], None]] = []
        self._is_over = False
        self._before: Token[CurrentCall | None] | None = None

    @staticmethod
    def get() -> "CurrentCall | None":
        """Returns the call within which this is; None outside of one."""
        return _CURRENT.get()

    def __enter__(self) -> Self:
        """Begins."""
        self._before = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it, and with it all that is read for it."""
        if self._before is not None:
            _CURRENT.reset(self._before)
        self._is_over = True
        for limit in self._reading:
            limit.reschedule(0)
        for leave in self._places:
            leave()
        self._places.clear()

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[None]:
        """Bounds what is waited for within. Raises CallOverError when the call ends meanwhile, or has ended."""
        if self._is_over:
            raise CallOverError
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._reading.add(limit)
                try:
                    yield
                finally:
                    self._reading.discard(limit)
        except TimeoutError:
            if not limit.expired():
                raise
            raise CallOverError from None

    def keep(self, leave: Callable[[], None]) -> None:
        """Takes what gives up a place; it is called when the call ends, or now if it has ended."""
        if self._is_over:
            leave()
        else:
            self._places.append(leave)
