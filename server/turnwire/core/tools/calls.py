"""The tool calls of one step: calls of client tools wait for their results, calls of the server's tools run here.

A call that needs a permission waits for it first. A restart loses nothing: waiting calls are stored with the message,
and this object can be rebuilt from it.
"""

import asyncio
from collections.abc import Iterable

from turnwire.core.environment import Environment
from turnwire.core.tools.client_calls import ClientCalls
from turnwire.core.tools.permission_requests import PermissionAnswers
from turnwire.core.tools.questions.asking import Questions
from turnwire.core.tools.results import CallResult, StoredCalls
from turnwire.core.tools.server_calls import ServerCalls
from turnwire.domain.conversation.messages import Message, Part
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionRequest
from turnwire.domain.conversation.questions import HeldQuestion
from turnwire.domain.conversation.turns import Turn


class ToolCalls:
    """Gives each call of one message a result. Used on the event loop only."""

    def __init__(
        self,
        environment: Environment,
        turn: Turn,
        message: Message,
        client_tools: frozenset[str],
        permissions: Iterable[PermissionRequest] = (),
        *,
        questions: Iterable[HeldQuestion] = (),
    ) -> None:
        """Args:
        environment: Ports and settings.
        turn: The turn of the message.
        message: The ended message with the calls; calls that cannot run already have a result.
        client_tools: Names of the tools that the client runs; all others are the server's.
        permissions: Open requests of these calls.
        questions: Questions of these calls that an earlier process left.
        """
        self._client_tools = client_tools
        self._calls = calls = StoredCalls(environment, turn.tenant, message)
        self._permissions = PermissionAnswers(calls, permissions, environment.clock)
        self.client = ClientCalls(environment, calls, client_tools)
        """Those that a client answers, and may claim before."""
        self.questions = Questions(environment, turn, calls, questions)
        """What the calls ask people while they run."""
        self._server = ServerCalls(environment, turn, calls, client_tools, self.questions)

    @property
    def message(self) -> Message:
        """The message with the results so far."""
        return self._calls.message

    @property
    def told_message(self) -> Message:
        """The message for readers; see `StoredCalls.told_message`."""
        return self._calls.told_message

    def told_part(self, index: int) -> Part:
        """Returns one part of the message for readers, which costs less than the message."""
        return self._calls.told_part(index)

    @property
    def open_permissions(self) -> tuple[PermissionRequest, ...]:
        """The unanswered permission requests, oldest first."""
        return self._permissions.open_requests

    @property
    def open_requests(self) -> int:
        """How many calls wait for the answer to a permission request or for the client's result, and open questions."""
        waiting = sum(
            bool(call.permission_id) or call.name in self._client_tools
            for _, call in self.message.tool_calls()
            if not call.status.settled
        )
        return waiting + len(self.questions.open_questions)

    async def settle(self) -> None:
        """Returns when every call has a durable result. Cancelling this cancels running calls of the server's tools.

        Raises:
            StorageError: a result could not be stored.
        """
        tasks = [*self._server.start(), asyncio.create_task(self.client.wait_results(), name="client tool calls")]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._server.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                task.result()  # raises the store's error

    async def flush(self) -> None:
        """Makes the log lines of running tools durable; the next flush retries lines that failed. Safe to cancel."""
        await self._server.flush()

    async def wait_stored(self) -> None:
        """Returns when no commit is pending. Safe to cancel."""
        await self._calls.wait_stored()
        await self.questions.wait_stored()

    def index_of(self, part_id: str) -> int | None:
        """Returns the index of the call with this part id; None when the message has no such call."""
        return next((part.index for part, _ in self.message.tool_calls() if part.part_id == part_id), None)

    async def submit(self, index: int, result: CallResult, lease_id: str = "") -> int:
        """Stores a client's result for the call in one part; see `ClientCalls.submit`."""
        return await self.client.submit(index, result, lease_id)

    def has_permission(self, permission_id: str) -> bool:
        """Returns whether one of these calls has this permission request."""
        return self._permissions.has_request(permission_id)

    async def reply(self, permission_id: str, answer: PermissionAnswer) -> None:
        """Answers a permission request; see `PermissionAnswers.answer`."""
        await self._permissions.answer(permission_id, answer)
