"""Saves an answer while it streams: growing text at intervals, ended parts soon. The stream waits for neither.

Each save is a draft: the changes since the previous one. Most answers end a moment after their last part, and the
commit that ends the answer then has that part. A tool call is checked before its part ends, concurrently with the
stream, so that no client sees a waiting call that will not run.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import structlog

from turnwire.core.answer.message_stream import MessageStream
from turnwire.core.environment import Environment
from turnwire.domain.conversation.events import PartFinished
from turnwire.domain.conversation.messages import Draft, ToolUse
from turnwire.ports.commit import Committed, NewEvent, PutDraft, Work

ENDED_SECONDS = 0.005
"""Time that an ended part waits for the end of its answer, which mostly comes in the same packet or the next one."""

SAVES_IN_STEP = 4
"""Number of moments in an interval at which the drafts of all streams are saved, so that one transaction has many
drafts."""

CallCheck = Callable[[ToolUse], Awaitable[str]]
"""Returns why a complete call cannot run; "" when it can."""

log = structlog.get_logger()


class StepJournal:
    """Saves one message while it streams.

    `_saving` is the commit being stored: the next draft continues it, so there is one at a time. `_timer` is set while
    a draft is due and none is being stored, `_is_soon` while an ended part waits for it. `_unchecked` holds complete
    calls in the order in which they ended; one task at a time, `_checking`, checks them. `_ended` has the ended parts
    whose end is not being stored yet. All are empty after `settle`, all but `_ended` after `finish`. Used on the event
    loop only.
    """

    def __init__(self, environment: Environment, tenant: str, stream: MessageStream, check: CallCheck) -> None:
        """Takes the tenant of the session, the stream to save and the check of its calls.

        Nothing is saved before `note_change`.
        """
        self._environment = environment
        self._tenant = tenant
        self._stream = stream
        self._check = check
        self._unchecked = deque[int]()
        self._checking: asyncio.Task[None] | None = None
        self._saving: asyncio.Future[Committed] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_soon = False
        self._ended: list[int] = []
        self._is_over = False  # no further draft is begun
        self._interval = environment.settings.limits.flush_interval.total_seconds()

    def note_change(self) -> None:
        """Schedules a draft of what changed in the stream: soon if a part ended, else within the interval.

        A call is saved as ended once it is checked.
        """
        self._unchecked += self._stream.take_unchecked()
        if self._unchecked and self._checking is None:
            self._checking = asyncio.create_task(self._check_calls(), name=f"checks of {self._stream.message_id}")
        self._ended += self._stream.take_ended()
        self._plan()

    async def flush(self) -> None:
        """Saves unsaved changes and returns when they are durable. Safe to cancel.

        After `finish`, the end of the message reports which parts have ended, so they are saved as open: no part may be
        seen as ended before its event.
        """
        await self._wait()
        if self._stream.has_unsaved and self._saving is None:
            self._save(tells=not self._is_over)
        await self._wait()

    async def finish(self) -> None:
        """Returns when all complete calls are checked and no save is under way. When cancelled, call `settle` too.

        Ended parts that no save has are left to the end of the message, see `unpublished`.

        Raises:
            Exception: raised by a check.
        """
        if self._checking is not None:
            await self._checking
        self._is_over = True
        self._cancel_timer()
        await self._wait()

    def unpublished(self) -> Work:
        """Returns the events of the ended parts that no save has, for the commit that ends the message."""
        return Work((), self._endings(self._ended))

    async def settle(self) -> None:
        """Stops checks and the timer, and saves ended parts that wait. Idempotent.

        Changes that could not be saved count as unsaved again. Unchecked calls stay open; the end of the message ends
        them.
        """
        self._is_over = True
        self._unchecked.clear()
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)
            self._checking = None
        self._cancel_timer()
        await self._wait()
        if self._ended:
            self._save()
            await self._wait()

    async def _check_calls(self) -> None:
        while self._unchecked:
            index = self._unchecked.popleft()
            call = self._stream.part(index).content
            problem = await self._check(call) if isinstance(call, ToolUse) else ""
            self._stream.end_call(index, problem, self._environment.clock())
            self.note_change()
        self._checking = None

    async def _wait(self) -> None:
        while self._saving is not None:
            await asyncio.wait((self._saving,))

    def _plan(self) -> None:
        """Sets the timer of the next draft. If saving takes long, the next draft begins after it."""
        if self._saving is not None or self._is_over:
            return
        loop = asyncio.get_running_loop()
        if self._ended and not self._is_soon:
            self._cancel_timer()
            self._is_soon = True
            self._timer = loop.call_later(ENDED_SECONDS, self._save)
        elif self._timer is None and self._stream.has_unsaved:
            due = loop.time() + self._interval
            self._timer = loop.call_at(due - due % (self._interval / SAVES_IN_STEP), self._save)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_soon = False

    def _endings(self, ended: Iterable[int]) -> tuple[NewEvent, ...]:
        message = self._stream.message
        return tuple(
            NewEvent(PartFinished(message.message_id, self._stream.part(index)), message.turn_id) for index in ended
        )

    def _save(self, *, tells: bool = True) -> None:
        self._cancel_timer()
        now = self._environment.clock()
        self._stream.touch(now)
        ended = tuple(self._ended) if tells else ()
        draft = self._stream.take_draft(() if tells else self._ended)
        self._ended = self._ended[len(ended) :]
        work = Work((PutDraft(draft),), self._endings(ended))
        saving = self._environment.commit(self._tenant, self._stream.session_id, work, now)
        self._saving = saving
        saving.add_done_callback(partial(self._finish_save, draft, ended))

    def _finish_save(self, draft: Draft, ended: tuple[int, ...], saving: asyncio.Future[Committed]) -> None:
        self._saving = None
        error = saving.exception()
        if error is not None:
            # the end of the message writes everything, so nothing is lost unless that fails too
            log.warning("streaming_text_not_saved", message_id=self._stream.message_id, error=type(error).__name__)
            self._stream.give_back(draft, ended)
        self._plan()
