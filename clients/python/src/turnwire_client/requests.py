"""Puts the open requests of a watch to functions of the caller, and answers them with what these return."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, Literal, Self

from opencode.question.question_pb2 import Question
from opencode.tool.tool_pb2 import PermissionRequest
from turnwire_client.errors import FailedPreconditionError, NotFoundError
from turnwire_client.watching import Update

Decision = bool | Literal["always"]
"""True: this call may run; "always": all such calls of the session; False: it may not."""

OnPermission = Callable[[PermissionRequest], Decision | Awaitable[Decision]]
Filled = Mapping[str, Any] | None
OnQuestion = Callable[[Question], Filled | Awaitable[Filled]]
"""Returns what was filled in, {} for a link that is opened; None to decline."""

_log = logging.getLogger("turnwire_client")


class Requests:
    """Asks about each request once, and ends what still asks when the request is closed. Owns a task for each."""

    def __init__(
        self,
        on_permission: OnPermission | None,
        on_question: OnQuestion | None,
        answer: Callable[[PermissionRequest | Question, Any], Awaitable[None]],
    ) -> None:
        """Args:
        on_permission: Decides about a call; None leaves that to somebody else.
        on_question: Answers a question of a tool; None leaves that to somebody else.
        answer: Tells the server what a function returned.
        """
        self._on_permission = on_permission
        self._on_question = on_question
        self._answer = answer
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        """Returns itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancels what still asks and waits for its end."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def notice(self, update: Update) -> None:
        """Asks what is open and was not asked; ends what is closed."""
        held = update.conversation
        open_requests: dict[str, tuple[Any, PermissionRequest | Question]] = {}
        if self._on_permission is not None:
            open_requests |= {one.id: (self._on_permission, one) for one in held.permissions.values()}
        if self._on_question is not None:
            open_requests |= {one.question_id: (self._on_question, one) for one in held.questions.values()}
        for request_id in self._tasks.keys() - open_requests.keys():
            self._tasks.pop(request_id).cancel()
        for request_id, (function, request) in open_requests.items():
            if request_id not in self._tasks:
                self._tasks[request_id] = asyncio.create_task(self._put(function, request))

    async def _put(self, function: Callable[[Any], Any], request: PermissionRequest | Question) -> None:
        """Asks and answers. A function that fails leaves the request open, for somebody else."""
        try:
            decided = function(request)
            await self._answer(request, await decided if isawaitable(decided) else decided)
        except (FailedPreconditionError, NotFoundError) as problem:
            _log.debug("a request was answered by somebody else: %s", problem.reason)
        except Exception:
            _log.exception("a request of a tool stays open")
