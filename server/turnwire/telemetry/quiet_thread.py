"""Work on a thread that imports large packages, while the event loop goes on.

An import is Python code, and only one thread runs Python code at a time. What the loop would notice is what holds the
interpreter for long: a thread that is not asked to give it up for five milliseconds, each time that the loop has
something to do, and full collections of garbage, which look at every object and take hundreds of milliseconds. So the
thread gives the interpreter up before each module, is asked for it sooner, and no garbage is collected meanwhile.
"""

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

PAUSE_SECONDS = 0.0001
"""Before each module: long enough that a thread that waits for the interpreter gets it."""

SWITCH_SECONDS = 0.0005
"""How soon a thread that wants the interpreter asks for it."""

MANY_MODULES = 100
"""So many new modules are worth to be left out of all later collections of garbage."""


async def quietly(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns what the function returns, or raises what it raises; like `asyncio.to_thread`, for work that imports.

    Cancelling this does not end the work, and neither the loop nor the process waits for it at the end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if future.done():  # its caller was cancelled
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            with _quiet:
                result = function(*args, **kwargs)
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(tell, result, error)
        except RuntimeError:  # the loop is closed
            return

    threading.Thread(target=run, name="imports", daemon=True).start()
    return await future


class _Quiet(MetaPathFinder):
    """What holds while threads import; a context manager of each of them, and asked before each module.

    `_lock` guards the set of these threads: the first one changes the interpreter, the last one changes it back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: set[int] = set()
        self._before = (0.0, False, 0)

    def __enter__(self) -> None:
        with self._lock:
            if not self._threads:
                self._before = (sys.getswitchinterval(), gc.isenabled(), len(sys.modules))
                sys.setswitchinterval(SWITCH_SECONDS)
                gc.disable()
                sys.meta_path.insert(0, self)
            self._threads.add(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._threads.discard(threading.get_ident())
            if self._threads:
                return
            sys.meta_path.remove(self)
            seconds, collects, modules = self._before
            sys.setswitchinterval(seconds)
            if len(sys.modules) - modules >= MANY_MODULES:
                gc.freeze()
            if collects:
                gc.enable()

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Finds nothing; the next finder does."""
        if threading.get_ident() in self._threads:
            time.sleep(PAUSE_SECONDS)


_quiet = _Quiet()
