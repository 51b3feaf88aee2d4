"""One running call of an MCP server: its time, which stops while it asks a person, and the questions that it asks."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from turnwire.domain.conversation.questions import QuestionReply
from turnwire.ports.tools import Ask, NewQuestion, QuestionRefused

MAX_REFUSALS = 20
"""Questions that a call may ask in vain before it ends: a wild server would ask for ever."""

T = TypeVar("T")


class TooManyQuestionsError(Exception):
    """The server goes on to ask what it may not ask."""


class RunningCall:
    """A call and its questions. Used on the event loop only.

    `_asking` holds the questions that wait; they are withdrawn when the call ends. `_changed` is set when their number
    becomes zero or more than that. `is_over` is set when the call ends or is given up: the server may ask on.
    """

    def __init__(self, ask: Ask) -> None:
        """Takes what asks a person on behalf of the call."""
        self._ask = ask
        self._asking: set[asyncio.Task[QuestionReply]] = set()
        self._changed = asyncio.Event()
        self._refusals = 0
        self.is_over = False
        """True once the call has ended or was given up."""
        self._wild: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def ask(self, question: NewQuestion) -> QuestionReply:
        """Asks a person; the call's time stands still meanwhile. Cancelling this withdraws the question.

        Raises:
            QuestionRefused: the question cannot be asked.
        """
        if self.is_over or self._wild.done():
            raise QuestionRefused("the call has ended, or asked too many questions")
        task = asyncio.create_task(self._answered(question), name="mcp question")
        self._asking.add(task)
        self._changed.set()
        try:
            await asyncio.wait((task,))
            if task.cancelled():  # with its call; the task that asks is another one and must not seem cancelled
                raise QuestionRefused("the call has ended")
            return task.result()
        except QuestionRefused:
            self._refusals += 1
            if self._refusals >= MAX_REFUSALS and not self._wild.done():
                self._wild.set_result(None)
            raise
        finally:
            task.cancel()
            self._asking.discard(task)
            self._changed.set()

    async def run(self, call: Coroutine[Any, Any, T], limit_seconds: float, name: str) -> T:
        """Runs the call within its time.

        Raises:
            TimeoutError: the time is over, without that of its questions.
            TooManyQuestionsError: it goes on to ask questions that it may not ask.
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
                        (task, changing, self._wild),
                        timeout=left if is_counted else None,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                finally:
                    changing.cancel()
                if is_counted:
                    left -= loop.time() - began
                if task.done():
                    break
                if self._wild.done():
                    raise TooManyQuestionsError
                if left <= 0:
                    raise TimeoutError
            return task.result()
        finally:
            self.is_over = True
            for waiting in (task, *self._asking):
                waiting.cancel()  # the call's cancellation notifies the server, which may take a moment
            task.add_done_callback(_forget)

    async def _answered(self, question: NewQuestion) -> QuestionReply:
        return await self._ask(question)


def _forget(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()
