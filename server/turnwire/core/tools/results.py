"""Results of tool calls, as values and as stored in the message with the calls."""

import asyncio
import sys
from asyncio import Future
from collections.abc import Mapping
from datetime import datetime
from functools import partial

import msgspec

from turnwire.core.ending.closing import settle_calls
from turnwire.core.environment import Environment
from turnwire.core.rooms.waiting import result_bytes
from turnwire.core.work import Work
from turnwire.domain.conversation.limits import MAX_LOG_CHARACTERS, MAX_LOG_LINES
from turnwire.domain.conversation.messages import File, Message, Part, ToolStatus, ToolUse
from turnwire.domain.errors import MemoryShort
from turnwire.domain.text import join_surrogates
from turnwire.ports.commit import Committed, FileChange, PutFile


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool answered."""

    output: str
    is_error: bool = False
    metadata_json: str = ""
    files: tuple[File, ...] = ()
    full_output: File | None = None
    """The complete output as a file, when `output` was cut."""
    contents: tuple[FileChange, ...] = ()
    """What stores all these files."""

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes with its call; its files are in no message."""
        return sys.getsizeof(self.output) + sys.getsizeof(self.metadata_json)

    @property
    def content_bytes(self) -> int:
        """Of the files, which are in memory until they are stored."""
        return sum(len(file.content) for file in self.contents if isinstance(file, PutFile))

    def apply_to(self, call: ToolUse, now: datetime | None = None) -> ToolUse:
        """Returns the call with this result.

        Args:
            call: The call.
            now: When the result arrived; None keeps the call's time.
        """
        return msgspec.structs.replace(
            call,
            status=ToolStatus.ERROR if self.is_error else ToolStatus.SUCCESS,
            output=None if self.is_error else self.output,
            error=self.output if self.is_error else None,
            metadata_json=self.metadata_json,
            files=self.files,
            full_output=self.full_output,
            permission_id="",
            lease=None,
            finished_at=call.finished_at if now is None else now,
        )

    def is_of(self, call: ToolUse) -> bool:
        """Returns whether the call has exactly this result."""
        return call.status.settled and self.apply_to(call) == call


def with_log_line(call: ToolUse, line: str) -> ToolUse | None:
    """Returns the call with one more line in its log, cut if it is too long; None when the log is full."""
    number = len(call.logs)
    if number >= MAX_LOG_LINES:
        return None
    text = join_surrogates(line[:MAX_LOG_CHARACTERS]) if number < MAX_LOG_LINES - 1 else "further lines are not kept"
    return msgspec.structs.replace(call, logs=(*call.logs, text))


class StoredCalls:
    """The tool calls of one message, and the commits that store their changes.

    A change takes effect in memory first and is stored after that, so the first of several concurrent changes wins.
    `_storing` holds the last commit of each call by part index; if it fails, the change is undone. `_asking` holds a
    call as it waited for its permission, while the answer is being stored. `_changed` wakes all waiters and is replaced
    each time. Used on the event loop only.
    """

    def __init__(self, environment: Environment, tenant: str, message: Message) -> None:
        """Takes whose session it is, and the ended message with the calls."""
        self._environment = environment
        self._tenant = tenant
        self._storing: dict[int, Future[Committed]] = {}
        self._asking: dict[int, ToolUse] = {}
        self._changed = asyncio.Event()
        self.message = message
        """The message with the results so far."""

    @property
    def told_message(self) -> Message:
        """The message for readers, who may act on it: a call waits for its permission until the answer is durable."""
        asking = {index: call for index, call in self._asking.items() if not self.is_stored(index)}
        return settle_calls(self.message, asking, self.message.updated_at)[0] if asking else self.message

    def told_part(self, index: int) -> Part:
        """Returns one part of the message for readers; see `told_message`."""
        part, asking = self.message.parts[index], self._asking.get(index)
        return part if asking is None or self.is_stored(index) else msgspec.structs.replace(part, content=asking)

    def call(self, index: int) -> ToolUse:
        """Returns the current state of the call in one part."""
        call = self.message.parts[index].content
        if not isinstance(call, ToolUse):
            raise TypeError(f"part {index} of {self.message.message_id} is not a tool call")
        return call

    def has_room(self, more: int) -> bool:
        """Counts so many bytes more in memory. Returns False when there is no room for them."""
        return self._environment.waiting_calls.grow(self.message.turn_id, more)

    def full(self) -> MemoryShort:
        """Returns the error for what finds no room."""
        return self._environment.waiting_calls.full()

    def settle(self, results: Mapping[int, CallResult], further: Work | None = None) -> "Future[Committed]":
        """Stores results of calls, by part index, in one commit with any further work. Shield it when awaiting it."""
        now = self._environment.clock()
        contents: tuple[FileChange, ...] = tuple(file for result in results.values() for file in result.contents)
        settled = {index: result.apply_to(self.call(index), now) for index, result in results.items()}
        return self.replace(settled, Work(contents) + (further or Work()))

    def replace(self, calls: Mapping[int, ToolUse], further: Work | None = None) -> "Future[Committed]":
        """Replaces calls, by part index, in one commit with any further work. Shield the commit when awaiting it."""
        before = {index: self.call(index) for index in calls}
        now = self._environment.clock()
        self.message, work = settle_calls(self.message, calls, now)
        storing = self._environment.commit(self._tenant, self.message.session_id, (further or Work()) + work, now)
        self._storing.update(dict.fromkeys(calls, storing))
        for index, call in before.items():
            self._asking.pop(index, None)
            if call.permission_id:
                self._asking[index] = call
        storing.add_done_callback(partial(self._finish_storing, before))
        self._wake()
        return storing

    def amend(self, index: int, call: ToolUse) -> None:
        """Replaces a call in memory only; the caller must store it later."""
        self.message, _ = settle_calls(self.message, {index: call}, self.message.updated_at)

    def last_commit(self, index: int) -> "Future[Committed] | None":
        """Returns the last commit that changed a call, pending or successful; None when there is none."""
        return self._storing.get(index)

    def is_stored(self, index: int) -> bool:
        """Returns whether the current state of a call is stored."""
        storing = self._storing.get(index)
        return storing is None or (storing.done() and storing.exception() is None)

    async def wait_call_stored(self, index: int) -> bool:
        """Waits for the pending commit of a call. Returns False when it failed and its change was undone."""
        storing = self._storing.get(index)
        if storing is None:
            return True
        await asyncio.wait((storing,))
        return not storing.cancelled() and storing.exception() is None

    async def wait_stored(self) -> None:
        """Returns when no commit is pending. Safe to cancel."""
        while pending := [storing for storing in self._storing.values() if not storing.done()]:
            await asyncio.wait(pending)

    @property
    def is_all_stored(self) -> bool:
        """True when no commit is pending."""
        return all(storing.done() for storing in self._storing.values())

    async def wait_changed(self) -> None:
        """Returns at the next change of a call or end of a commit. Safe to cancel."""
        await self._changed.wait()

    def _finish_storing(self, before: Mapping[int, ToolUse], storing: "Future[Committed]") -> None:
        for index in before:
            if self._storing.get(index) is storing:
                self._asking.pop(index, None)
        if storing.cancelled() or storing.exception() is not None:
            taken_back = {index: call for index, call in before.items() if self._storing.get(index) is storing}
            for index in taken_back:
                del self._storing[index]
            self.has_room(
                sum(result_bytes(call) - result_bytes(self.call(index)) for index, call in taken_back.items())
            )
            self.message, _ = settle_calls(self.message, taken_back, self._environment.clock())
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
