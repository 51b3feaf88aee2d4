"""The tool calls of one step: those of client tools wait for their results, those of the server's tools are run.

A call that needs a permission waits for it first. Nothing here is lost by a restart: what waits is stored with the
message, and the same object is made anew from it.
"""

import asyncio
from collections.abc import Iterable

from turnwire.core.environment import Environment
from turnwire.core.tools.client_calls import ClientCalls
from turnwire.core.tools.permission_requests import PermissionAnswers
from turnwire.core.tools.results import CallResult, StoredCalls
from turnwire.core.tools.server_calls import ServerCalls
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionRequest


class ToolCalls:
    """Settles the calls of one message. Used on the event loop only."""

    def __init__(
        self,
        environment: Environment,
        message: Message,
        client_tools: frozenset[str],
        permissions: Iterable[PermissionRequest] = (),
        agent: str = "",
    ) -> None:
        """Args:
        environment: Ports and settings.
        message: The ended message that holds the calls; those that cannot run have their result already.
        client_tools: Names of the tools that the client runs; all others are the server's.
        permissions: Open requests of these calls.
        agent: Agent of the turn; "" for the default one.
        """
        self._calls = calls = StoredCalls(environment, message)
        self._permissions = PermissionAnswers(calls, permissions, environment.clock)
        self._client = ClientCalls(calls, client_tools, environment.settings.limits.client_tool_timeout)
        self._server = ServerCalls(environment, calls, client_tools, agent)

    @property
    def message(self) -> Message:
        """The message with the results so far."""
        return self._calls.message

    @property
    def open_permissions(self) -> tuple[PermissionRequest, ...]:
        """The requests that nobody has answered, oldest first."""
        return self._permissions.open_requests

    async def settle(self) -> None:
        """Returns when every call has its result, durably. Cancelling it cancels the calls of the server's tools.

        Raises:
            StorageError: a result could not be stored.
        """
        tasks = [*self._server.start(), asyncio.create_task(self._client.wait_settled(), name="client tool calls")]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._server.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                task.result()  # raises what the store raised

    async def flush(self) -> None:
        """Makes durable what running tools have said so far; what cannot be stored is tried again. Safe to cancel."""
        await self._server.flush()

    async def wait_stored(self) -> None:
        """Returns when nothing is on its way to the disk. Safe to cancel."""
        await self._calls.wait_stored()

    def index_of(self, part_id: str) -> int | None:
        """Returns which part of the message is a call with this id; None when none is."""
        return next((part.index for part, _ in self.message.tool_calls() if part.part_id == part_id), None)

    async def submit(self, index: int, result: CallResult) -> int:
        """Stores a client's result for the call in one part; see `ClientCalls.submit`."""
        return await self._client.submit(index, result)

    def has_permission(self, permission_id: str) -> bool:
        """Tells whether a request is one of these calls'."""
        return self._permissions.has_request(permission_id)

    async def reply(self, permission_id: str, answer: PermissionAnswer) -> None:
        """Answers a permission request; see `PermissionAnswers.answer`."""
        await self._permissions.answer(permission_id, answer)
