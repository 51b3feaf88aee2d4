"""The tool calls of one step: those of client tools wait for their results, those of the server's tools are run.

A call that needs a permission waits for it first. Nothing here is lost by a restart: what waits is stored with the
message, and the same object is made anew from it.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from functools import partial

import msgspec
import structlog

from turnwire.core.ending.closing import settle_calls
from turnwire.core.environment import Environment
from turnwire.core.tools.permission_requests import closing_work, denial, refusal
from turnwire.core.tools.results import CallResult, server_result
from turnwire.core.work import Work
from turnwire.domain.conversation.events import ToolLog
from turnwire.domain.conversation.messages import Message, ToolStatus, ToolUse
from turnwire.domain.conversation.permissions import (
    PermissionAction,
    PermissionAnswer,
    PermissionChoice,
    PermissionRequest,
    matches_glob,
)
from turnwire.domain.errors import (
    PermissionAlreadyAnswered,
    StorageBusy,
    StorageFull,
    ToolCallAlreadySettled,
    ToolCallNotReady,
)
from turnwire.domain.text import join_surrogates
from turnwire.ports.commit import Committed, PutFile, PutMessage

MAX_LOG_LINES = 200
"""Lines that are kept of one call; a tool may report its progress a thousand times a second."""

MAX_LOG_CHARS = 500
"""Characters of one line."""

RESULT_RETRY_SECONDS = 0.5
"""Pause before a result is written again: a full disk gets room when people make some."""

log = structlog.get_logger()

INTERRUPTED_RUN = "the server was restarted while the tool ran; it may have had its effect or not"


class ToolCalls:
    """Settles the calls of one message.

    A result, or the answer to a permission request, counts in memory first and is then stored, so the first one wins
    however many come at once. `_storing` holds the last commit of each call by part index; one that fails takes the
    change back. `_changed` wakes all who wait for something here, and is replaced each time. `_unsaved_logs` are the
    parts with lines that are not stored yet. `_settling` ends with `settle`: a tool that was cancelled may still speak.
    Used on the event loop only.
    """

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
        self._environment = environment
        self._client_tools = client_tools
        self._agent = agent
        self._permissions = {permission.permission_id: permission for permission in permissions}
        self._replies: dict[str, asyncio.Future[Committed]] = {}
        self._storing: dict[int, asyncio.Future[Committed]] = {}
        self._unsaved_logs: set[int] = set()
        self._settling = True
        self._changed = asyncio.Event()
        now = asyncio.get_running_loop().time()
        self._ready_since = {part.index: now for part, _ in message.tool_calls()}
        self.message = message
        """The message with the results so far."""

    @property
    def open_permissions(self) -> tuple[PermissionRequest, ...]:
        """The requests that nobody has answered, oldest first."""
        return tuple(permission for permission in self._permissions.values() if permission.answer is None)

    async def settle(self) -> None:
        """Returns when every call has its result, durably. Cancelling it cancels the calls of the server's tools.

        A client that does not answer within the limit is answered for, with an error that the model reads. So is a tool
        of the server that ran when a dead process ended: nobody knows what became of it, and it is not run twice.
        """
        slots = asyncio.Semaphore(self._environment.settings.limits.max_parallel_tool_calls)
        tasks = [
            asyncio.create_task(self._run(part.index, slots), name=f"tool call {part.part_id}")
            for part, call in self.message.tool_calls()
            if not call.status.settled and call.name not in self._client_tools
        ]
        tasks.append(asyncio.create_task(self._await_client(), name="client tool calls"))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._settling = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                task.result()  # raises what the store raised

    async def flush(self) -> None:
        """Makes durable what running tools have said so far; what cannot be stored is tried again. Safe to cancel."""
        if self._unsaved_logs:
            indexes, now = tuple(sorted(self._unsaved_logs)), self._environment.clock()
            self._unsaved_logs.clear()
            work = Work((PutMessage(self.message, indexes),))
            saving = self._environment.commit(self.message.session_id, work, now)
            saving.add_done_callback(partial(self._flushed, indexes))
            await asyncio.wait((saving,))

    async def submit(self, index: int, result: CallResult) -> int:
        """Stores a client's result for the call in one part. Safe to cancel: the result is stored all the same.

        Returns:
            The session's sequence after that; 0 when the call held this result before this object was made.

        Raises:
            ToolCallAlreadySettled: the call holds another result, or is not the client's.
            ToolCallNotReady: the call waits for a permission.
        """
        call, part_id = self._call(index), self.message.parts[index].part_id
        if not call.status.settled and call.name in self._client_tools:
            if not self._is_ready(index):
                missing = f"permission {call.permission_id!r}" if call.permission_id else "the answer to be stored"
                raise ToolCallNotReady(f"tool call {part_id!r} waits for {missing}", part_id)
            return (await asyncio.shield(self._store({index: result}))).sequence
        if not result.is_of(call):
            raise ToolCallAlreadySettled(
                f"tool call {part_id!r} is not the client's, or has another result already", part_id
            )
        storing = self._storing.get(index)
        return 0 if storing is None else (await asyncio.shield(storing)).sequence

    def index_of(self, part_id: str) -> int | None:
        """Returns which part of the message is a call with this id; None when none is."""
        return next((part.index for part, _ in self.message.tool_calls() if part.part_id == part_id), None)

    def has_permission(self, permission_id: str) -> bool:
        """Tells whether a request is one of these calls'."""
        return permission_id in self._permissions

    async def reply(self, permission_id: str, answer: PermissionAnswer) -> None:
        """Answers a permission request. Safe to cancel: the answer is stored all the same.

        "Always" answers the other open requests that its patterns match as well.

        Raises:
            PermissionAlreadyAnswered: it has another answer.
        """
        permission = self._permissions[permission_id]
        if permission.answer is None:
            asked = [permission]
            if answer.response is PermissionChoice.ALWAYS:
                asked = [other for other in self.open_permissions if matches_glob(permission.patterns, other.tool)]
            await asyncio.shield(self._answer(asked, answer))
        elif permission.answer.response is not answer.response:
            raise already_answered(permission)
        elif permission_id in self._replies:
            await asyncio.shield(self._replies[permission_id])

    async def wait_stored(self) -> None:
        """Returns when nothing is on its way to the disk. Safe to cancel."""
        while pending := [storing for storing in self._storing.values() if not storing.done()]:
            await asyncio.wait(pending)

    async def _await_client(self) -> None:
        """Waits for the client's results, and answers for it when one is late."""
        limit = self._environment.settings.limits.client_tool_timeout.total_seconds()
        late = CallResult(output=f"the client did not answer within {limit:g} seconds", is_error=True)
        loop = asyncio.get_running_loop()
        while True:
            waiting = self._unsettled_client_calls()
            if not waiting and all(storing.done() for storing in self._storing.values()):
                return
            ready = [index for index in waiting if self._is_ready(index)]
            left = {index: self._ready_since[index] + limit - loop.time() for index in ready}
            if overdue := [index for index in ready if left[index] <= 0]:
                await asyncio.shield(self._store(dict.fromkeys(overdue, late)))
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left.values(), default=None)):
                    await self._changed.wait()  # a result that could not be stored counts as missing again

    async def _run(self, index: int, slots: asyncio.Semaphore) -> None:
        """Runs one call of a server's tool, once it is allowed."""
        if self._call(index).status is ToolStatus.RUNNING:
            await asyncio.shield(self._store({index: CallResult(output=INTERRUPTED_RUN, is_error=True)}))
            return
        while self._call(index).permission_id or not await self._is_stored(index):
            await self._changed.wait()
        if self._call(index).status.settled:  # it was refused
            return
        if self._is_denied(name := self._call(index).name):  # since a restart with other rules: the call is older
            denied = CallResult(output=denial(name), is_error=True)
            await asyncio.shield(self._store({index: denied}))
            return
        await self._environment.tools.discovered()
        async with slots:
            call, now = self._call(index), self._environment.clock()
            running = msgspec.structs.replace(call, status=ToolStatus.RUNNING, started_at=now)
            # durable before it runs: after a crash, a call that is not marked has not been run
            await asyncio.shield(self._replace({index: running}))
            outcome = await self._environment.tools.call(call.name, call.input_json or "{}", partial(self._log, index))
            settings = self._environment.settings
            result = server_result(outcome, settings.limits.max_tool_output_bytes, settings.files.max_bytes)
            await self._store_surely(index, result)

    async def _store_surely(self, index: int, result: CallResult) -> None:
        """Stores the result of a tool that has had its effect, again and again while the store is busy or full."""
        while True:
            try:
                await asyncio.shield(self._store({index: result}))
                return
            except (StorageBusy, StorageFull) as error:
                log.warning("tool_result_not_saved_yet", session_id=self.message.session_id, reason=error.reason)
                await asyncio.sleep(RESULT_RETRY_SECONDS)

    def _is_denied(self, tool: str) -> bool:
        settings = self._environment.settings
        may_use = settings.agent(self._agent).may_use(tool)
        return not may_use or settings.permission(self._agent, tool) is PermissionAction.DENY

    def _is_ready(self, index: int) -> bool:
        """Tells whether a client may answer an open call: nobody is asked, or the permission is durable.

        A result on top of an answer that fails to be stored would leave the request open behind it.
        """
        storing = self._storing.get(index)
        stored = storing is None or (storing.done() and storing.exception() is None)
        return stored and not self._call(index).permission_id

    async def _is_stored(self, index: int) -> bool:
        """Waits for what is on its way to the disk for a call. Returns False when that failed and was taken back."""
        storing = self._storing.get(index)
        if storing is None:
            return True
        await asyncio.wait((storing,))
        return not storing.cancelled() and storing.exception() is None

    def _log(self, index: int, line: str) -> None:
        """Keeps a line that a tool says, and tells watchers; lines beyond the limit are dropped."""
        call = self._call(index)
        number = len(call.logs)
        if not self._settling or call.status.settled or number >= MAX_LOG_LINES:
            return
        text = join_surrogates(line[:MAX_LOG_CHARS]) if number < MAX_LOG_LINES - 1 else "further lines are not kept"
        logged = msgspec.structs.replace(call, logs=(*call.logs, text))
        self.message, _ = settle_calls(self.message, {index: logged}, self.message.updated_at)
        self._unsaved_logs.add(index)
        self._environment.publish(self.message.session_id, ToolLog(self.message.message_id, index, number, text))

    def _flushed(self, indexes: tuple[int, ...], saving: asyncio.Future[Committed]) -> None:
        if saving.cancelled() or saving.exception() is not None:
            self._unsaved_logs.update(indexes)

    def _call(self, index: int) -> ToolUse:
        call = self.message.parts[index].content
        if not isinstance(call, ToolUse):
            raise TypeError(f"part {index} of {self.message.message_id} is no tool call")
        return call

    def _unsettled_client_calls(self) -> list[int]:
        calls = self.message.tool_calls()
        return [p.index for p, call in calls if call.name in self._client_tools and not call.status.settled]

    def _store(self, results: Mapping[int, CallResult]) -> asyncio.Future[Committed]:
        """Stores results by the index of their part, all in one commit."""
        now = self._environment.clock()
        contents: tuple[PutFile, ...] = tuple(file for result in results.values() for file in result.contents)
        self._unsaved_logs -= results.keys()
        settled = {index: result.apply_to(self._call(index), now) for index, result in results.items()}
        return self._replace(settled, Work(contents))

    def _answer(self, asked: list[PermissionRequest], answer: PermissionAnswer) -> asyncio.Future[Committed]:
        """Stores an answer to open requests, with what it means for their calls."""
        now = self._environment.clock()
        refused = CallResult(output=refusal(answer), is_error=True)
        calls = {}
        for permission in asked:
            call = self._call(permission.part_index)
            allowed = msgspec.structs.replace(call, permission_id="", started_at=now)
            calls[permission.part_index] = allowed if answer.response.allows else refused.apply_to(call, now)
            self._permissions[permission.permission_id] = msgspec.structs.replace(permission, answer=answer)
            self._ready_since[permission.part_index] = asyncio.get_running_loop().time()
        storing = self._replace(calls, closing_work(asked, answer))
        self._replies.update(dict.fromkeys((permission.permission_id for permission in asked), storing))
        storing.add_done_callback(partial(self._answered, asked))
        return storing

    def _answered(self, asked: list[PermissionRequest], storing: asyncio.Future[Committed]) -> None:
        if storing.cancelled() or storing.exception() is not None:
            for permission in asked:
                self._permissions[permission.permission_id] = permission

    def _replace(self, calls: Mapping[int, ToolUse], further: Work | None = None) -> asyncio.Future[Committed]:
        """Replaces calls by the index of their part, all in one commit with what else belongs to it."""
        before = {index: self._call(index) for index in calls}
        now = self._environment.clock()
        self.message, work = settle_calls(self.message, calls, now)
        storing = self._environment.commit(self.message.session_id, (further or Work()) + work, now)
        self._storing.update(dict.fromkeys(calls, storing))
        storing.add_done_callback(partial(self._stored, before))
        self._wake()
        return storing

    def _stored(self, before: Mapping[int, ToolUse], storing: asyncio.Future[Committed]) -> None:
        if storing.cancelled() or storing.exception() is not None:
            taken_back = {index: call for index, call in before.items() if self._storing.get(index) is storing}
            for index in taken_back:
                del self._storing[index]
            self.message, _ = settle_calls(self.message, taken_back, self._environment.clock())
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def already_answered(permission: PermissionRequest) -> PermissionAlreadyAnswered:
    """Returns the error for a second, other answer."""
    response = permission.answer.response if permission.answer is not None else PermissionChoice.CANCELLED
    return PermissionAlreadyAnswered(
        f"permission request {permission.permission_id!r} was answered: {response.value}", permission.permission_id
    )
