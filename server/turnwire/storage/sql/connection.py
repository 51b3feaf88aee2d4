"""Running functions on a connection's thread."""

import asyncio
import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from turnwire.domain.errors import StorageBusy
from turnwire.event_loop.owner import NO_OWNER, OWNER
from turnwire.storage.sql.database import Database

P = ParamSpec("P")
T = TypeVar("T")
D_co = TypeVar("D_co", bound=Database, covariant=True)
D_contra = TypeVar("D_contra", bound=Database, contravariant=True)


class Connection(Generic[D_co]):
    """A connection and its thread, which carries out one function at a time. Used on the event loop only.

    Owners take turns with reads; writes run in their order. `_db` is used on the thread only.
    """

    def __init__(self, *, is_reader: bool) -> None:
        """Use `open`."""
        self._calls = _Calls()
        self._is_reader = is_reader
        self._db: D_co | None = None  # from `open` to `close`

    @classmethod
    async def open(
        cls, opening: Callable[[], D_co], *, is_reader: bool, idle: "IdleWork[D_co] | None" = None
    ) -> "Connection[D_co]":
        """Opens a connection on its thread. Close it with `close`.

        Args:
            opening: Called on the thread; its errors are raised as they are.
            is_reader: Whether owners take turns on it, and a waiting function is left out when its caller is cancelled.
            idle: Work of the thread while it is idle.
        """
        connection = cls(is_reader=is_reader)
        threading.Thread(target=_serve, args=(connection._calls,), name="database", daemon=True).start()
        try:
            connection._db = db = await connection._call(opening)
            if idle is not None:
                connection._calls.when_idle(idle.seconds, partial(idle.function, db))
        except BaseException:
            connection._calls.end()
            raise
        return connection

    async def run(self, function: Callable[Concatenate[D_co, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a function on the thread; no other use of the connection interrupts it.

        Cancelling the caller does not stop the function, unless it reads and has not begun.

        Raises:
            StorageError: the database reported an error; its subclass says which kind.
        """
        db = self._db
        if db is None:
            raise StorageBusy("the database is closed")  # of a server that stops: the next one answers
        try:
            return await self._call(partial(function, db, *args, **kwargs))
        except db.failures as error:
            raise db.translate(error) from error

    async def close(self) -> None:
        """Closes the connection after the functions that wait; later calls are rejected. Idempotent."""
        db, self._db = self._db, None
        if db is not None:
            result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._calls.end(partial(_answer, result, db.close))
            try:
                await result
            except db.failures as error:
                raise db.translate(error) from error

    async def _call(self, function: Callable[[], T]) -> T:
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._is_reader:
            self._calls.add(OWNER.get(), partial(_answer_unless_gone, result, function))
        else:
            self._calls.add(NO_OWNER, partial(_answer, result, function))
        return await result


class IdleWork(NamedTuple, Generic[D_contra]):
    """Work that the thread of a connection repeats while it is idle."""

    seconds: float
    """Idle time after which it does so."""
    function: Callable[[D_contra], None]
    """Must not raise."""


class _Calls:
    """The pending calls of a thread: owners take turns, and the calls of one run in order. Safe for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # for all below but `_ready`
        self._waiting = OrderedDict[str, deque[Callable[[], None]]]()
        """By owner, in the order of their turns."""
        self._last: Callable[[], None] | None = None
        self._ready = SimpleQueue[None]()
        """One item for each call, and one for the end."""
        self._idle: tuple[float, Callable[[], None]] | None = None

    def add(self, owner: str, call: Callable[[], None]) -> None:
        with self._lock:
            self._waiting.setdefault(owner, deque()).append(call)
        self._ready.put(None)

    def end(self, last: Callable[[], None] | None = None) -> None:
        """Ends the thread after the waiting calls and this last one."""
        with self._lock:
            self._last = last
        self._ready.put(None)
        self._ready.put(None)

    def when_idle(self, seconds: float, function: Callable[[], None]) -> None:
        """Makes the thread call a function whenever it has been idle for some time, from its next call on."""
        self._idle = (seconds, function)
        self.add(NO_OWNER, function)

    def take(self) -> Callable[[], None] | None:
        """Returns the next call once one waits; None at the end."""
        self._wait()
        with self._lock:
            if not self._waiting:
                last, self._last = self._last, None
                return last
            owner, calls = self._waiting.popitem(last=False)
            call = calls.popleft()
            if calls:
                self._waiting[owner] = calls  # after the others
            return call

    def _wait(self) -> None:
        if self._idle is None:
            self._ready.get()
            return
        seconds, function = self._idle
        while True:
            try:
                self._ready.get(timeout=seconds)
                return
            except Empty:
                function()


def _serve(calls: _Calls) -> None:
    """Runs on the thread of a connection. Keeps no reference to a call, because the next one may be an hour away."""
    while (call := calls.take()) is not None:
        call()
        del call


def _answer_unless_gone(result: "asyncio.Future[T]", function: Callable[[], T]) -> None:
    if not result.cancelled():
        _answer(result, function)


def _answer(result: "asyncio.Future[T]", function: Callable[[], T]) -> None:
    """Calls a function, and delivers its result or its error to the event loop."""
    try:
        deliver = partial(result.set_result, function())
    except BaseException as error:  # the thread must outlive every failure
        deliver = partial(result.set_exception, error)
    with contextlib.suppress(RuntimeError):  # the loop is closed: the result is not awaited
        result.get_loop().call_soon_threadsafe(_tell, result, deliver)


def _tell(result: "asyncio.Future[T]", deliver: Callable[[], None]) -> None:
    if not result.done():  # else its caller is gone
        deliver()
