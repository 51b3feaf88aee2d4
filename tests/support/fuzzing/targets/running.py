"""One event loop for all runs of a target, and what a target may not do there."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

MAX_SECONDS = 20.0
"""A run that takes longer hangs."""

T = TypeVar("T")

_loops: list[asyncio.AbstractEventLoop] = []
_endings: list[Callable[[], Coroutine[Any, Any, None]]] = []


def loop() -> asyncio.AbstractEventLoop:
    """Returns the loop of this process, which targets share."""
    if not _loops:
        _loops.append(asyncio.new_event_loop())
    return _loops[0]


def at_end(ending: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Notes what must be done before the loop ends."""
    _endings.append(ending)


def end() -> None:
    """Ends the loop, and what runs on it. The next run begins another one."""
    while _endings:
        run(_endings.pop()())
    while _loops:
        _loops.pop().close()


def run(action: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end.

    Raises:
        AssertionError: something else failed meanwhile, which nobody waited for.
    """
    failures: list[str] = []
    loop().set_exception_handler(lambda _, context: failures.append(str(context.get("exception", context["message"]))))
    result = loop().run_until_complete(asyncio.wait_for(action, MAX_SECONDS))
    assert not failures, failures
    return result


def pieces(data: bytes) -> list[bytes]:
    """Returns the rest of the data in pieces of the sizes that its first bytes choose; joined, they are the rest."""
    size = 1 + data[0] if data else 1
    rest = data[1:]
    return [rest[start : start + size] for start in range(0, len(rest), size)]
