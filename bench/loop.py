"""The event loop that every process here runs on: the one that `turnwire serve` uses."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on uvloop where it is installed, like the server, so that both sides of a ratio do."""
    try:
        import uvloop  # noqa: PLC0415 - an extra that may be missing
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
