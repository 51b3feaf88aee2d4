"""The event loop of every benchmark process: the one that `turnwire serve` uses."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on uvloop if it is installed, as the server does, so that both sides of a ratio use it."""
    try:
        import uvloop  # noqa: PLC0415 - an extra that may be missing
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
