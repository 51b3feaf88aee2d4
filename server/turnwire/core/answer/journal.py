"""Saves an answer while it streams: growing text at intervals, ended parts soon. The stream waits for neither.

Most answers end a moment after their last part, and the commit that ends the answer then has that part too. A tool
call is checked before its part ends, concurrently with the stream, so that no client sees a call wait that will not
run.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import structlog

from turnwire.core.answer.message_stream import MessageStream
from turnwire.core.environment import Environment
from turnwire.core.work import Work
from turnwire.domain.conversation.events import PartFinished
from turnwire.domain.conversation.messages import Message, ToolUse
from turnwire.ports.commit import Committed, NewEvent, PutMessage

ENDED_SECONDS = 0.005
"""How long an ended part waits for the end of its answer, which mostly comes in the same packet or the next one."""

CallCheck = Callable[[ToolUse], Awaitable[str]]
"""Returns why a complete call cannot run; "" when it can."""

log = structlog.get_logger()

SAVES_IN_STEP = 4
"""At how many moments of an interval the growing texts of all streams are saved."""


class StepJournal:
    """Saves one message while it streams.

    `_in_flight` holds the unfinished commits; the store keeps their order. `_timer` is set while text is unsaved and no
    commit is under way, `_is_soon` while it waits for an ended part. `_unchecked` holds complete calls
    in the order in which they ended; one task at a time, `_checking`, checks them. `_ended` has the parts whose end is
    not on its way to the store. All are empty after `settle`, all but `_ended` after `finish`. Used on the event loop
    only.
    """

    def __init__(self, environment: Environment, tenant: str, stream: MessageStream, check: CallCheck) -> None:
        """Takes whose session it is, the stream to save and the check of its calls.

        Nothing is saved before `note_change`.
        """
        self._environment = environment
        self._tenant = tenant
        self._stream = stream
        self._check = check
        self._unchecked = deque[int]()
        self._checking: asyncio.Task[None] | None = None
        self._in_flight: set[asyncio.Future[Committed]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_soon = False
        self._ended: list[int] = []
        self._is_finishing = False
        self._is_over = False  # growing text is saved no more
        self._interval = environment.settings.limits.flush_interval.total_seconds()

    def note_change(self) -> None:
        """Schedules saving of what changed in the stream: ended parts soon, growing ones within the interval.

        A call is saved as ended once it is checked.
        """
        self._unchecked += self._stream.take_unchecked()
        if self._unchecked and self._checking is None:
            self._checking = asyncio.create_task(self._check_calls(), name=f"checks of {self._stream.message_id}")
        self._ended += self._stream.take_ended()
        if self._ended:
            # during a save with the next one, so a thousand calls in one packet take two saves
            if not self._in_flight and not self._is_soon:
                self._cancel_timer()
                self._is_soon = True
                self._timer = asyncio.get_running_loop().call_later(ENDED_SECONDS, self._save)
        else:
            self._plan_text()

    async def flush(self) -> None:
        """Saves unsaved changes and returns when all saves are durable. Safe to cancel."""
        if self._stream.has_unsaved:
            self._save()
        await self._wait()

    async def finish(self) -> None:
        """Returns when all complete calls are checked and all saves are done. When cancelled, call `settle` too.

        Ended parts that no save has are left to the end of the message, see `untold`.

        Raises:
            Exception: what a check raised.
        """
        if self._checking is not None:
            await self._checking
        self._is_finishing = self._is_over = True
        self._cancel_timer()
        await self._wait()

    def untold(self) -> Work:
        """Returns the events of the ended parts that no save has, for the commit that ends the message."""
        return Work((), self._endings(self._stream.snapshot(), self._ended))

    async def settle(self) -> None:
        """Stops checks and the timer and waits for all saves, also of ended parts that wait. Idempotent.

        What could not be saved counts as unsaved again. Unchecked calls stay open; the end of the message ends them.
        """
        self._is_finishing, self._is_over = False, True
        self._unchecked.clear()
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)
            self._checking = None
        self._cancel_timer()
        if self._ended and not self._in_flight:
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
        while self._in_flight:  # the end of one save starts the next while ended parts wait
            await asyncio.wait(tuple(self._in_flight))

    def _plan_text(self) -> None:
        """Begins the interval of growing text, if no save is under way.

        Where saves take long, those of one text leave the storage to others in between. The intervals of all streams
        end at common moments, up to a quarter early, so that one transaction has the saves of many.
        """
        if self._timer is None and not self._in_flight and not self._is_over and self._stream.has_unsaved:
            loop = asyncio.get_running_loop()
            due = loop.time() + self._interval
            self._timer = loop.call_at(due - due % (self._interval / SAVES_IN_STEP), self._save)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_soon = False

    @staticmethod
    def _endings(message: Message, ended: Iterable[int]) -> tuple[NewEvent, ...]:
        return tuple(
            NewEvent(PartFinished(message.message_id, message.parts[index]), message.turn_id) for index in ended
        )

    def _save(self) -> None:
        self._cancel_timer()
        now = self._environment.clock()
        self._stream.touch(now)
        unsaved, ended, self._ended = self._stream.take_unsaved(), tuple(self._ended), []
        message, growth = self._stream.take_growth(unsaved)
        work = Work((PutMessage(message, unsaved, growth=growth),), self._endings(message, ended))
        saving = self._environment.commit(self._tenant, message.session_id, work, now)
        self._in_flight.add(saving)
        saving.add_done_callback(partial(self._finish_save, unsaved, ended))

    def _finish_save(self, unsaved: tuple[int, ...], ended: tuple[int, ...], saving: asyncio.Future[Committed]) -> None:
        self._in_flight.discard(saving)
        error = saving.exception()
        if error is not None:
            # the end of the message writes all parts again, so nothing is lost unless that fails too
            log.warning("streaming_text_not_saved", message_id=self._stream.message_id, error=type(error).__name__)
            self._stream.give_back(unsaved, ended)
        if not self._ended or self._in_flight or self._is_finishing:
            self._plan_text()
        elif self._is_over:
            self._save()  # `settle` waits for it
        else:
            self._save()
