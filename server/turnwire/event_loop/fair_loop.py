"""An event loop on which no client's callbacks wait for all those of another one.

An event loop calls what is ready in the order in which it became ready. A client that has a thousand calls or turns at
once so has a thousand callbacks before each one of its neighbour, who needs a dozen for one call; and until all that
was ready has been called, the loop does not look for what else has come. Here what is ready waits by owner.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVarTuple

from turnwire.event_loop.fair_queue import FairScheduler, Ready
from turnwire.event_loop.owner import OWNER, context_without_owner

Arguments = TypeVarTuple("Arguments")

ROUND_SECONDS = 0.002
"""Time that callbacks are called before the loop looks for what has come. It does so in less than a tenth of that."""


class FairCalls(asyncio.AbstractEventLoop):
    """Mixed into a class of event loops: the callbacks of owners wait in a fair queue.

    Callbacks without an owner, from other threads, sockets or timers run as in a plain loop. They must be short for
    each owner, such as giving a future its result. So callbacks of one owner keep their order among those of
    `call_soon`, in which tasks take their steps, and those without an owner may overtake them. Each round of the loop
    runs all without an owner, and waiting ones for `ROUND_SECONDS`: neither starves the other.

    A loop in debug mode is as it was: it checks and times its callbacks itself.
    """

    def __init__(self) -> None:
        """Nothing is ready."""
        self._is_fair = True
        super().__init__()
        self._owned = FairScheduler(self._report)
        self._is_round_planned = False
        self._of_rounds = Context()  # not that of a caller, which would be kept with all that it refers to
        self._call_next: Callable[..., asyncio.Handle] = super().call_soon

    def call_soon(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        """Calls a function as soon as it is its owner's turn; see `asyncio.loop.call_soon`."""
        owner = OWNER.get() if context is None else context.get(OWNER)
        if not owner or not self._is_fair:
            return self._call_next(callback, *args, context=context)
        ready = Ready((copy_context() if context is None else context).run, callback, *args)
        self._owned.add(owner, ready)
        if not self._is_round_planned:
            self._is_round_planned = True
            self._call_next(self._round, context=self._of_rounds)
        return ready  # type: ignore[return-value]  # uvloop's are no asyncio.Handle either

    def set_debug(self, enabled: bool) -> None:
        """Begins or ends debugging, without or with fairness."""
        self._is_fair = not enabled
        super().set_debug(enabled)

    def close(self) -> None:
        """Closes the loop. What still waits is never called. Idempotent."""
        super().close()
        self._is_fair = False  # the loop refuses further ones
        self._owned.clear()

    def _round(self) -> None:
        try:
            self._owned.run(ROUND_SECONDS)
        finally:
            self._is_round_planned = bool(self._owned)
            if self._is_round_planned:
                self._call_next(self._round, context=self._of_rounds)

    def _report(self, ready: Ready, error: BaseException) -> None:
        self.call_exception_handler(
            {"message": f"Exception in callback {ready!r}", "exception": error, "handle": ready}
        )


class FairSelectorLoop(FairCalls, asyncio.SelectorEventLoop):
    """The loop of the standard library."""


def fair_loop() -> asyncio.AbstractEventLoop:
    """Returns a new event loop: uvloop's where that is installed, which is faster."""
    try:
        import uvloop  # noqa: PLC0415 - an extra that may be missing
    except ImportError:
        return FairSelectorLoop()

    class FairUvLoop(FairCalls, uvloop.Loop):  # type: ignore[misc]  # uvloop types the methods of loops in its own way
        """That of uvloop."""

        async def create_connection(self, *args: Any, **options: Any) -> Any:
            """Connects; see `asyncio.loop.create_connection`.

            The steps of uvloop have no owner, so that none overtakes the callback that tells a protocol of its
            connection: when one that was cancelled did, the process ended with SIGSEGV, as the callback reads what is
            freed (uvloop 0.23, `TCPTransport._call_connection_made`).
            """
            steps: Coroutine[Any, Any, Any] = super().create_connection(*args, **options)
            connecting = self.create_task(steps, context=context_without_owner())
            try:
                return await connecting
            except asyncio.CancelledError:
                if connecting.done() and not connecting.cancelled() and connecting.exception() is None:
                    connecting.result()[0].abort()
                raise

    return FairUvLoop()
