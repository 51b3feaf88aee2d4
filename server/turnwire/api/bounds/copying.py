"""What gRPC copies on the event loop: requests when they are there, and answers when they are given to it.

A megabyte takes a millisecond, and gRPC copies in the step in which whoever waits goes on. Many large requests that are
complete at the same moment would so hold the loop together. So all copies of a round of the loop are counted; with too
much the next one waits, in the order of asking.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

COPIED_BYTES = 2**20
"""Copied before the event loop goes on with others; one request or answer alone may be larger."""

PAUSE_SECONDS = 0.001
"""How long the others have then for each such amount: half of the time. A call takes several rounds of the loop, so one
round alone would be too little: each would meet a copy."""

SMALL_CALL_BYTES = 8 * 1024
"""What a request counts at least, and an answer: hundreds of calls may come in one moment, or end with one read of the
store, and each takes tenths of a millisecond."""

LARGE_BYTES = 65_536
"""A connection that has sent a request of this size has its turns behind others."""

_MAX_LARGE = 10_000
"""Connections that are known for large requests; further ones replace the oldest."""


class Copying:
    """Counts what gRPC copies. Belongs to the event loop.

    How large a request is, is known when it is copied. So connections that have sent large ones have turns of their
    own, and those of others go on meanwhile: a round has one large copy of each at most.
    """

    def __init__(self) -> None:
        """Nothing is copied yet."""
        self._large, self._others = _Turns(), _Turns()
        self._sent_large: dict[str, None] = {}
        self._complete = set[asyncio.Task[Any] | None]()
        self._late = set[asyncio.Task[None]]()
        """Copies of messages for which nobody waits any more."""
        self._late_turns = _Turns()

    async def pace(self, size: int) -> None:
        """Returns when an answer of so many bytes may be given to gRPC, at once if little was copied lately.

        Safe to cancel.
        """
        turns = self._large if size >= LARGE_BYTES else self._others
        await turns.turn()
        turns.count(max(size, SMALL_CALL_BYTES))

    @property
    def late(self) -> int:
        """How many messages are there for which nobody waits any more. They are copied one after the other."""
        return len(self._late)

    def has(self, task: asyncio.Task[Any] | None) -> bool:
        """Returns whether the message that a task reads is there and waits to be copied."""
        return task in self._complete

    async def read(self, reading: Coroutine[Any, Any, T], connection: str = "") -> T:
        """Returns what a coroutine returns that waits for a message and copies it in its last step.

        Safe to cancel. gRPC frees a message only when it is copied, so that is done nevertheless, also when the message
        comes later.

        Args:
            reading: The coroutine.
            connection: Whose message it is.
        """
        left: asyncio.CancelledError | None = None
        is_left = False
        try:
            waiter = reading.send(None)
            while True:
                try:
                    await (asyncio.sleep(0) if waiter is None else asyncio.shield(waiter))
                except BaseException as error:
                    if not isinstance(error, asyncio.CancelledError) or waiter is None or waiter.cancelled():
                        waiter = reading.throw(error)
                        continue
                    if not waiter.done():
                        is_left = True
                        waiter.add_done_callback(partial(self._has_come_late, reading, connection))
                        raise
                    if waiter.exception() is not None:
                        raise
                    left = error
                turns = self._large if connection in self._sent_large else self._others
                left = await self._certain_turn(turns) or left
                # in the turns that it had: the next one there waits for that, also if its connection is large by now
                waiter = self._counted(reading.send, turns, connection)
        except StopIteration as done:
            if left is None:
                result: T = done.value
                return result
        except Exception:
            if left is None:
                raise
        finally:
            if not is_left:
                reading.close()
        raise left

    def _has_come_late(
        self, reading: Coroutine[Any, Any, Any], connection: str, message: "asyncio.Future[Any]"
    ) -> None:
        """Copies a message for which nobody waits any more."""
        if message.cancelled() or message.exception() is not None:
            reading.close()
            return
        task = asyncio.create_task(self._copy(reading, connection), name="late request")
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _copy(self, reading: Coroutine[Any, Any, Any], connection: str) -> None:
        with contextlib.closing(reading), contextlib.suppress(Exception):
            await self._late_turns.turn()
            with contextlib.suppress(StopIteration):
                self._counted(reading.send, self._late_turns, connection)

    def _counted(self, step: Callable[[None], Any], turns: "_Turns", connection: str) -> Any:
        """Takes a step of a coroutine, and counts what it has copied if that was its last."""
        size = 0
        try:
            return step(None)
        except StopIteration as done:
            size = len(done.value) if isinstance(done.value, bytes) else 0
            raise
        finally:
            turns.count(max(size, SMALL_CALL_BYTES))
            if size >= LARGE_BYTES:
                self._sent_large.pop(connection, None)  # behind the others
                self._sent_large[connection] = None
                if len(self._sent_large) > _MAX_LARGE:
                    del self._sent_large[next(iter(self._sent_large))]

    async def _certain_turn(self, turns: "_Turns") -> asyncio.CancelledError | None:
        """Returns when it is the caller's turn, also when it is cancelled; then what it is cancelled with."""
        if turns.has_room():
            return None
        left, task = None, asyncio.current_task()
        self._complete.add(task)
        try:
            while True:
                try:
                    await turns.turn()
                    return left
                except asyncio.CancelledError as error:
                    left = error
        finally:
            self._complete.discard(task)


class _Turns:
    """Counts copies, and lets them wait in order.

    `_waiting` has whose turn comes. The first one stays in it until it goes on, so that nobody overtakes it.
    """

    def __init__(self) -> None:
        self._copied = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def has_room(self) -> bool:
        """Returns whether a turn is there at once."""
        return self._copied < COPIED_BYTES and not self._waiting

    async def turn(self) -> None:
        """Returns when it is the caller's turn. It must then count what it copies before it waits again."""
        if self.has_room():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.remove(turn)
            self._wake()
            raise
        self._waiting.popleft()

    def count(self, size: int) -> None:
        """Counts what was copied in a turn, and lets the next one go on, at once or after a pause."""
        had_room = self._copied < COPIED_BYTES
        self._copied += size
        if self._copied < COPIED_BYTES:
            self._wake()
        elif had_room:
            asyncio.get_running_loop().call_later(PAUSE_SECONDS * self._copied / COPIED_BYTES, self._go_on)

    def _go_on(self) -> None:
        self._copied = 0
        self._wake()

    def _wake(self) -> None:
        """Lets the next one go on if there is room; it does so in a later round."""
        if self._copied < COPIED_BYTES and self._waiting and not self._waiting[0].done():
            self._waiting[0].set_result(None)
