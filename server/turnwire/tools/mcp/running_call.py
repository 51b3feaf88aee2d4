"""One running call of an MCP server: its time, which stops while it waits for a person, and its questions.

Reading for it over HTTP ends with it; the SDK would leave the answer to a cancelled call open, for as long as the
server wants.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from turnwire.domain.conversation.questions import QuestionReply
from turnwire.event_loop.tasks import retrieve
from turnwire.ports.tools import Ask, NewQuestion, QuestionRefused

T = TypeVar("T")

current_call: ContextVar["RunningCall | None"] = ContextVar("current_call", default=None)
"""The call for which a task runs. The SDK passes it on with everything that is sent for the call and arrives in its
stream."""


class CallOverError(Exception):
    """Raised when data arrives for a call that has ended."""


class RunningCall:
    """A call and its questions. Used on the event loop only.

    `_asking` has the questions that wait; they are withdrawn when the call ends. `_changed` is set when their number
    becomes zero or stops being zero. `_reading` has the time limits of all reads from the server; they end with the
    call. `is_over` is set when the call ends or is cancelled, even though the server may send further questions.
    """

    def __init__(self, ask: Ask) -> None:
        """Takes the function that asks a person for the call."""
        self._ask = ask
        self._asking: set[asyncio.Task[QuestionReply]] = set()
        self._changed = asyncio.Event()
        self._reading: set[asyncio.Timeout] = set()
        self.is_over = False
        """Whether the call has ended or was cancelled."""

    async def ask(self, question: NewQuestion) -> QuestionReply:
        """Asks a person; the call's time stops meanwhile. Cancelling this withdraws the question.

        Raises:
            QuestionRefused: the question cannot be asked.
        """
        if self.is_over:
            raise QuestionRefused("the call has ended")
        task = asyncio.create_task(self._answered(question), name="mcp question")
        self._asking.add(task)
        self._changed.set()
        try:
            await asyncio.wait((task,))
            # it ended with its call; the caller's own task is another one and must not appear cancelled
            if task.cancelled():
                raise QuestionRefused("the call has ended")
            return task.result()
        finally:
            task.cancel()
            self._asking.discard(task)
            self._changed.set()

    async def run(self, call: Coroutine[Any, Any, T], limit_seconds: float, name: str) -> T:
        """Runs the call within its time.

        Raises:
            TimeoutError: the time has passed, not counting that of its questions.
            CancelledError: this or the call was cancelled.
        """
        task = asyncio.create_task(call, name=name)
        loop, left = asyncio.get_running_loop(), limit_seconds
        try:
            while not task.done():
                self._changed.clear()
                changing = asyncio.ensure_future(self._changed.wait())
                began = loop.time()
                is_counted = not self._asking
                try:
                    await asyncio.wait(
                        (task, changing),
                        timeout=left if is_counted else None,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                finally:
                    changing.cancel()
                if is_counted:
                    left -= loop.time() - began
                if task.done():
                    break
                if left <= 0:
                    raise TimeoutError
            return task.result()
        finally:
            self._end()
            for waiting in (task, *self._asking):
                waiting.cancel()  # the call's cancellation notifies the server, which may take a moment
            task.add_done_callback(retrieve)

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[None]:
        """Limits the waiting in the context. Raises CallOverError when the call ends meanwhile, or has ended."""
        if self.is_over:
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

    def _end(self) -> None:
        self.is_over = True
        for limit in self._reading:
            limit.reschedule(0)

    async def _answered(self, question: NewQuestion) -> QuestionReply:
        return await self._ask(question)
