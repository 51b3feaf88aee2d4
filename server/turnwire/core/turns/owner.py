"""The turns of one session: the running one and those that wait."""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import structlog

from turnwire.core.ending.closing import Ending, end_turn
from turnwire.core.environment import Environment
from turnwire.core.intake.receipts import Receipt
from turnwire.core.turns.recovery import Resumption, end_stored_turn
from turnwire.core.turns.resuming import ResumePoint
from turnwire.core.turns.run import TurnRun
from turnwire.core.work import Work
from turnwire.domain.conversation.events import (
    MessageAdded,
    MessageRemoved,
    QueueChanged,
    SessionStatusChanged,
    TurnStarted,
)
from turnwire.domain.conversation.messages import Failure, FinishReason, Message, MessageStatus
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.errors import StorageBusy, StorageError, StorageFull
from turnwire.ports.commit import Committed, NewEvent, PutMessage, PutTurn, RemoveMessage

RETRY_SECONDS = (0.1, 0.5, 2.0, 5.0)
"""Pauses before the end of a turn is written again after the store failed; the last one repeats."""

UNSAVED = Ending(FinishReason.ERROR, Failure("INTERNAL", "the server could not store the end of the turn"))

_IDLE = Work((), (NewEvent(SessionStatusChanged(False)),))

log = structlog.get_logger()


@dataclass
class Waiting:
    """A message that was accepted; its turn has not started."""

    turn: Turn
    message: Message
    durable: asyncio.Future[Committed] | None = None
    """The commit that stores it; None when it is stored."""


class SessionTurns:
    """Owns the turns of one session.

    `run` is the turn that runs or is about to; it is set in the same moment in which it is decided. `queue` holds the
    others in order. `_task` runs one turn after the other and ends when the queue is empty; it is awaited by `idle`.
    `_is_announced` is true when the last status event, in the order of commits, said that the session runs.
    """

    def __init__(
        self, environment: Environment, session_id: str, slots: asyncio.Semaphore, forget: Callable[[str], None]
    ) -> None:
        """Args:
        environment: Ports and settings.
        session_id: The session.
        slots: Bounds the turns that run at once on the server.
        forget: Called when nothing runs or waits any more.
        """
        self._environment = environment
        self._session_id = session_id
        self._slots = slots
        self._forget = forget
        self._task: asyncio.Task[None] | None = None
        self._is_announced = False
        self._stopping = asyncio.Event()
        self.queue: deque[Waiting] = deque()
        self.run: TurnRun | None = None

    def queued_message_ids(self) -> tuple[str, ...]:
        """Returns the waiting messages, next first."""
        return tuple(waiting.message.message_id for waiting in self.queue)

    async def accept(self, turn: Turn, message: Message, extra: Callable[[Receipt], Work]) -> Receipt:
        """Stores a message and starts its turn, or lets it wait; see `Turns.submit`."""
        queued = self.run is not None
        turn = msgspec.structs.replace(turn, status=TurnStatus.QUEUED if queued else TurnStatus.RUNNING)
        message = msgspec.structs.replace(message, status=MessageStatus.QUEUED if queued else MessageStatus.COMPLETE)
        waiting = Waiting(turn, message)
        added = NewEvent(MessageAdded(message), turn.turn_id)
        rows = (PutTurn(turn), PutMessage.whole(message))
        if queued:
            self.queue.append(waiting)
            work = Work(rows, (added, self._queue_event()))
        else:
            work = Work(rows, (added, *self._start_events(turn)))
        receipt = Receipt(
            session_id=self._session_id,
            message_id=message.message_id,
            turn_id=turn.turn_id,
            queued=queued,
            queue_position=len(self.queue),
        )
        waiting.durable = self._environment.commit(self._session_id, extra(receipt) + work, message.created_at)
        if not queued:
            self._begin(waiting)
        try:
            committed = await asyncio.shield(waiting.durable)
        except Exception:
            if waiting in self.queue:
                self.queue.remove(waiting)
            raise
        return msgspec.structs.replace(receipt, sequence=committed.before_sequence)

    def resume(self, resumption: Resumption) -> None:
        """Goes on with a turn of a dead process. Watchers were told then that the session runs."""
        self._is_announced = True
        self._begin(Waiting(resumption.turn, resumption.user_message), resumption.point)

    def start_next(self) -> None:
        """Starts the first waiting message of a session in which nothing runs."""
        self._begin(self.queue.popleft())

    def take_queue(self) -> list[Waiting]:
        """Takes all waiting messages out of the queue, for `drop`."""
        taken = list(self.queue)
        self.queue.clear()
        return taken

    async def drop(self, taken: list[Waiting]) -> tuple[str, ...]:
        """Removes messages that were taken out of the queue. Returns their ids when that is durable."""
        stored = [waiting for waiting in taken if await self._is_durable(waiting)]
        if not stored:
            return ()
        now = self._environment.clock()
        work = Work()
        for waiting in stored:
            message_id = waiting.message.message_id
            work += Work((RemoveMessage(message_id),), (NewEvent(MessageRemoved(message_id), waiting.turn.turn_id),))
            work += end_turn(waiting.turn, (), Ending(FinishReason.ABORTED), now)
        if not await self._commit_surely(work + Work((), (self._queue_event(),))):
            return ()  # the server stops: they are still there at the next start
        return tuple(waiting.message.message_id for waiting in stored)

    def suspend(self, ending: Ending) -> None:
        """Stops the running turn, which goes on at the next start or else ends in this way; starts no other."""
        self._stopping.set()
        if self.run is not None:
            self.run.suspend(ending)

    async def idle(self) -> None:
        """Returns when nothing runs any more. Safe to cancel."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    def _begin(self, waiting: Waiting, point: ResumePoint | None = None) -> None:
        self.run = TurnRun(self._environment, waiting.turn, point)
        self._task = asyncio.create_task(self._run_turns(waiting, self.run), name="session turns")

    async def _run_turns(self, waiting: Waiting | None, run: TurnRun) -> None:
        """Runs a turn, then those that wait."""
        while waiting is not None:
            try:
                if await self._start(waiting):
                    await self._run_turn(run)
            except Exception as error:  # a bug in one turn must not strand those that wait
                log.error("turn_not_ended", session_id=self._session_id, exc_info=error)
                await self._end_unsaved(run.turn)
            run.ended.set()
            waiting = await self._next()
            if waiting is not None:
                self.run = run = TurnRun(self._environment, waiting.turn)
        self.run = None
        self._forget(self._session_id)

    async def _next(self) -> Waiting | None:
        """Takes the next waiting message. When there is none, watchers are told that the session is idle."""
        if not self.queue and self._is_announced:
            self._is_announced = False
            await self._commit_surely(_IDLE)
        return self.queue.popleft() if self.queue and not self._stopping.is_set() else None

    async def _start(self, waiting: Waiting) -> bool:
        """Makes a message part of the conversation. Returns False when it could not be stored."""
        durable = await self._is_durable(waiting)
        if waiting.turn.status is TurnStatus.RUNNING:  # it was started when it was accepted
            self._is_announced = self._is_announced and durable
            return durable
        if not durable:
            return False
        waiting.turn = msgspec.structs.replace(waiting.turn, status=TurnStatus.RUNNING)
        now = self._environment.clock()
        message = msgspec.structs.replace(waiting.message, status=MessageStatus.COMPLETE, updated_at=now)
        work = Work(
            (PutTurn(waiting.turn), PutMessage(message, ())),
            (*self._start_events(waiting.turn), self._queue_event()),
        )
        return await self._commit_surely(work)

    async def _run_turn(self, run: TurnRun) -> None:
        work = await run.run(self._slots)
        if work is None:  # for watchers the session runs on
            self._is_announced = False
            return
        idle = Work() if self.queue and not self._stopping.is_set() else _IDLE
        if await self._commit_surely(work + idle):
            self._is_announced = self._is_announced and not idle.events
        elif not self._stopping.is_set():
            await self._end_unsaved(run.turn)

    async def _end_unsaved(self, turn: Turn) -> None:
        """Ends a turn whose answer cannot be stored with what was stored of it: nobody may wait for ever."""
        attempts = [end_turn(turn, (), UNSAVED, self._environment.clock())]
        try:
            attempts.insert(0, await end_stored_turn(self._environment, turn, UNSAVED))
        except Exception as error:  # then without its messages, which the next start closes
            log.warning("turn_not_read", session_id=self._session_id, error=type(error).__name__)
        for work in attempts:
            if await self._commit_surely(work):
                return

    async def _commit_surely(self, work: Work) -> bool:
        """Commits what must not be lost, again and again while the store is busy or full (a full disk may get room).

        Returns False when the work itself is at fault, which a store that fails in another way a few times in a row
        suggests, when the session is gone or the server stops. A turn that is left open is ended at the next start.
        """
        for attempt in itertools.count():
            try:
                await self._environment.commit(self._session_id, work, self._environment.clock())
                return True
            except StorageError as error:
                passes = isinstance(error, StorageBusy | StorageFull) or attempt < len(RETRY_SECONDS)
                if self._stopping.is_set() or not passes:
                    log.error("turn_not_saved", session_id=self._session_id, reason=error.reason)
                    return False
                log.warning("turn_not_saved_yet", session_id=self._session_id, reason=error.reason)
                with contextlib.suppress(TimeoutError):
                    pause = RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]
                    await asyncio.wait_for(self._stopping.wait(), pause)
            except Exception as error:
                log.error("turn_not_saved", session_id=self._session_id, exc_info=error)
                return False
        raise AssertionError("count never ends")

    async def _is_durable(self, waiting: Waiting) -> bool:
        if waiting.durable is None:
            return True
        await asyncio.wait((waiting.durable,))
        return waiting.durable.exception() is None

    def _start_events(self, turn: Turn) -> tuple[NewEvent, ...]:
        events = [NewEvent(TurnStarted(turn.user_message_id), turn.turn_id)]
        if not self._is_announced:
            self._is_announced = True
            events.insert(0, NewEvent(SessionStatusChanged(True)))
        return tuple(events)

    def _queue_event(self) -> NewEvent:
        return NewEvent(QueueChanged(self.queued_message_ids()))
