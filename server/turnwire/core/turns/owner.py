"""The turns of one session: the running turn and the queue."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from functools import partial

import msgspec
import structlog

from turnwire.core.ending.closing import Ending, end_turn, ended_turns
from turnwire.core.environment import Environment
from turnwire.core.spans.turns import note_turn_end, turn_span
from turnwire.core.turns.recovery import Resumption, end_stored_turn
from turnwire.core.turns.resuming import ResumePoint
from turnwire.core.turns.run import TurnRun
from turnwire.core.turns.waiting.changes import QueueChanges
from turnwire.core.turns.waiting.places import Place, dropping_work, leading_work
from turnwire.core.turns.waiting.queue import SessionQueue
from turnwire.core.turns.waiting.taking import WaitingPlaces
from turnwire.core.uncancelled import Uncancelled
from turnwire.core.work import Work
from turnwire.domain.conversation.events import (
    SessionStatusChanged,
    TurnStarted,
)
from turnwire.domain.conversation.messages import Failure, FinishReason, Message, MessageStatus
from turnwire.domain.conversation.turns import BusyPolicy, Turn, TurnStatus
from turnwire.domain.errors import (
    MessageNotFound,
    ShuttingDown,
    StorageError,
    TooManyTurns,
    TurnInProgress,
)
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.ports.commit import Committed, MarkArchived, NewEvent, PutMessage, PutTurn
from turnwire.ports.telemetry.tracing import Span, error_type, leave_trace

RETRY_SECONDS = (0.1, 0.5, 2.0, 5.0)
"""Pauses between attempts to store the end of a turn; the last one repeats."""

UNSAVED = Ending(FinishReason.ERROR, Failure("INTERNAL", "the server could not store the end of the turn"))

UNARCHIVING = Work((MarkArchived(False),))
"""Of a session in which nothing runs."""

_IDLE = Work((), (NewEvent(SessionStatusChanged(False)),))

log = structlog.get_logger()


class SessionTurns:
    """Owns the turns of one session.

    `run` is the turn that runs or is about to; it is set as soon as that is decided. `queue` holds the others in order.
    `_task` runs one turn after the other and ends when the queue is empty; `idle` awaits it. `_reserved` is a place
    that is neither started nor released yet. There is at most one, so that commits keep the order of places.
    `_is_announced` is true when the last status event, in commit order, was that the session runs.
    """

    def __init__(
        self,
        environment: Environment,
        tenant: str,
        session_id: str,
        slots: FairSemaphore,
        forget: Callable[[str], None],
        *,
        on_ended: Callable[[Turn], None],
    ) -> None:
        """Args:
        environment: Ports and settings.
        tenant: Whose session it is.
        session_id: The session.
        slots: Bounds the turns whose model is asked at the same time, on the whole server; tenants have turns.
        forget: Called when nothing runs or waits any more.
        on_ended: Called when the end of a turn is stored.
        """
        self._environment = environment
        self._tenant = tenant
        self._session_id = session_id
        self._slots = slots
        self._forget = forget
        self._on_ended = on_ended
        self._task: asyncio.Task[None] | None = None
        self._reserved: Place | None = None
        self._is_announced = False
        self._stopping = asyncio.Event()
        self._uncancelled = Uncancelled()
        self.queue = SessionQueue()
        self._waiting = WaitingPlaces(environment.store, self.queue, self._stopping, environment.reads)
        self.changes = QueueChanges(
            environment, tenant, session_id, self.queue, self._aim_of, interrupt=self._interrupt
        )
        self.run: TurnRun | None = None

    def reserve(self, turn: Turn, message: Message, when_busy: BusyPolicy) -> Place:
        """Reserves the next place for a message; see `Turns.reserve`. Call `start` or `release` next."""
        if self._reserved is not None:
            raise RuntimeError("another place is reserved: do not await before start or release")
        if self._must_wait(when_busy):
            place = Place(
                msgspec.structs.replace(
                    turn, status=TurnStatus.QUEUED, busy_policy=when_busy, aimed_at_turn_id=self._aim_of(when_busy)
                ),
                msgspec.structs.replace(message, status=MessageStatus.QUEUED),
            )
            place.queue_position = self.queue.add(place)
            is_last = place.queue_position == len(self.queue)
            place.work = (Work() if is_last else self.queue.ordered()) + self.queue.changed()
        else:
            place = Place(
                msgspec.structs.replace(turn, status=TurnStatus.RUNNING, started_at=turn.created_at),
                msgspec.structs.replace(message, status=MessageStatus.COMPLETE),
            )
            self.run = self._new_run(place.turn)
            place.work = Work((), self._start_events(place.turn))
        self._reserved = place
        return place

    def start(self, place: Place, work: Work) -> asyncio.Future[Committed]:
        """Stores a message in its place, and starts its turn or queues it; see `Turns.start`."""
        stored = self.unarchiving() + work
        place.durable = self._environment.commit(self._tenant, self._session_id, stored, place.turn.created_at)
        self._reserved = None
        if place.queue_position:
            place.durable.add_done_callback(partial(self._note_stored, place))
        else:
            self._run_from(place)
        return place.durable

    def unarchiving(self) -> Work:
        """Returns what takes the session out of the archive, if it is there; see `Turns.unarchiving`."""
        if self.run is None:
            return UNARCHIVING
        return Work((MarkArchived(False, self.run.turn.turn_id, self.queue.shown(), self.run.open_requests),))

    def release(self) -> None:
        """Gives up the reserved place. Does nothing when there is none."""
        place, self._reserved = self._reserved, None
        if place is None:
            return
        if place.queue_position:
            self.queue.remove(place)
        else:
            self.run = None
            self._forget(self._session_id)

    def resume(self, resumption: Resumption) -> None:
        """Continues a turn of an earlier process, which already announced that the session runs."""
        self._is_announced = True
        self.run = self._new_run(resumption.turn, resumption.point)
        self._run_from(Place(resumption.turn, resumption.user_message))

    async def start_next(self) -> None:
        """Starts the first waiting message of a session in which nothing runs."""
        place = await self._waiting.take_first()
        if place is None:
            self._forget(self._session_id)
            return
        self.run = self._new_run_of(place)
        self._run_from(place)

    async def drop(self, taken: list[Place]) -> tuple[str, ...]:
        """Removes messages taken out of the queue. Returns their ids when that is durable; none if the server stops."""
        async with self.queue.changing:
            pass  # a message that is being changed is dropped as it is stored
        stored = [place for place in taken if await place.settled()]
        late = [place for place in stored if place.turn.is_late]
        others = [place for place in stored if place not in late]
        dropped = others if others and await self._drop(others) else []  # else they stay stored for the next start
        for place in late:
            async with self._waiting.whole(place) as is_whole:
                dropped += [place] if is_whole and await self._drop([place]) else []
        return tuple(place.message.message_id for place in stored if place in dropped)

    async def _drop(self, places: list[Place]) -> bool:
        """Stores that messages do not wait any more; False if the server stops. One whose turn is late is whole."""
        now, work = self._environment.clock(), Work()
        for place in places:
            work += dropping_work(place, now)
        return await self._commit_surely(work + self.queue.changed())

    def suspend(self, ending: Ending) -> None:
        """Stops the running turn and starts no other. It continues at the next start, or else ends with `ending`."""
        self._stopping.set()
        if self.run is not None:
            self.run.suspend(ending)

    async def idle(self) -> None:
        """Returns when nothing runs any more. Safe to cancel."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    def _must_wait(self, when_busy: BusyPolicy) -> bool:
        """Returns whether a new message waits; False when its turn starts at once.

        Raises:
            TurnInProgress: a turn runs and the policy is REJECT.
            TooManyTurns: too many messages wait.
        """
        if self.run is None:
            return False
        if when_busy is BusyPolicy.REJECT:
            running = self.run.turn.turn_id
            raise TurnInProgress(f"turn {running!r} runs in the session", running)
        limit = self._environment.settings.limits.max_queued_messages
        if len(self.queue) >= limit:
            text = f"no more messages may wait in the session: limits.max_queued_messages is {limit}"
            raise TooManyTurns.of("limits.max_queued_messages", limit, text)
        return True

    def _aim_of(self, policy: BusyPolicy) -> str:
        """Returns the turn that a message with a policy acts on; "" when it only waits."""
        return self.run.turn.turn_id if self.run is not None and policy is not BusyPolicy.QUEUE else ""

    def _interrupt(self, place: Place) -> None:
        """Ends the turn that a stored message is to interrupt, if it still runs."""
        if place.turn.busy_policy is not BusyPolicy.INTERRUPT or self.run is None:
            return
        if self.run.turn.turn_id == place.turn.aimed_at_turn_id:
            self.run.stop(Ending(FinishReason.ABORTED, ended_by_message_id=place.turn.user_message_id))

    def _new_run(self, turn: Turn, resume: ResumePoint | None = None) -> TurnRun:
        return TurnRun(self._environment.of_now(), turn, resume, self._take_in)

    def _new_run_of(self, place: Place) -> TurnRun:
        """Returns a run of a place that was taken out of the queue; it keeps what of the turn is small."""
        run = self._new_run(place.turn)
        place.empty_turn()
        return run

    async def _take_in(self, run: TurnRun) -> None:
        """Lets messages join a turn before its next step. What has begun is completed when the turn is stopped."""
        turn_id = run.turn.turn_id
        if self.queue.joining(turn_id):
            await self._uncancelled.run(self.changes.join(turn_id, lambda: run.takes_messages))

    def _run_from(self, place: Place) -> None:
        """Starts the task that runs the turn of a place, then the queue."""
        if self.run is None:
            raise RuntimeError("`run` must be set before its task starts")
        self._task = asyncio.create_task(self._run_turns(place, self.run), name="session turns")

    def _note_stored(self, place: Place, storing: asyncio.Future[Committed]) -> None:
        if storing.cancelled() or storing.exception() is not None:
            self.queue.remove(place)
            return
        self._interrupt(place)
        if place in self.queue:
            place.empty_unless_held()

    async def _run_turns(self, place: Place | None, run: TurnRun) -> None:
        """Runs a turn, then the queue."""
        leave_trace()  # each turn has its own place in a trace, whichever call started this task
        while place is not None:
            with turn_span(self._environment.tracer, run.turn) as span:
                try:
                    if await self._start(place, run):
                        self._environment.observer.turn_started(run.turn)
                        await self._run_turn(run, span)
                except Exception as error:  # a bug in one turn must not block the queue
                    span.fail(error_type(error))
                    log.error("turn_not_ended", session_id=self._session_id, exc_info=error)
                    await self._end_unsaved(run)
            self._environment.forget_calls(run.turn.turn_id)
            run.ended.set()
            place = await self._next()
            if place is not None:
                self.run = run = self._new_run_of(place)
        self.run = None
        self._forget(self._session_id)

    async def _next(self) -> Place | None:
        """Takes the next waiting message out of the queue. When there is none, announces that the session is idle."""
        while True:
            async with self.queue.changing:
                place = await self._waiting.take_first()
            if place is not None or self.queue or not self._is_announced:
                return place
            self._is_announced = False
            await self._commit_surely(_IDLE)

    async def _start(self, place: Place, run: TurnRun) -> bool:
        """Makes a message part of the conversation. Returns False when it could not be stored."""
        durable = await place.settled()
        if place.turn.status is TurnStatus.RUNNING:  # it never waited
            place.empty()
            self._is_announced = self._is_announced and durable
            return durable
        if not durable:
            return False
        async with self._waiting.whole(place) as is_whole:
            begin = self._start_again if place.turn.regenerates else self._start_waiting
            has_begun = is_whole and await begin(place, run)
        run.is_left = self._stopping.is_set() and not has_begun
        return has_begun

    async def _start_waiting(self, place: Place, run: TurnRun) -> bool:
        now = self._environment.clock()
        place.turn = msgspec.structs.replace(place.turn, status=TurnStatus.RUNNING, started_at=now)
        run.begin(place.turn)
        message = msgspec.structs.replace(place.message, status=MessageStatus.COMPLETE, updated_at=now)
        work = Work((PutTurn(place.turn), PutMessage(message, ())), self._start_events(place.turn))
        place.empty()
        return await self._commit_surely(work + self.queue.changed())

    async def _start_again(self, place: Place, run: TurnRun) -> bool:
        """As `_start_waiting` for a turn that answers a message again; ends it when that waits or was taken back."""
        waiting, message_id = place.turn, place.message.message_id
        for _ in range(2):  # once more when the message began to wait between reading and storing
            try:
                question, now = await self._waiting.question(waiting), self._environment.clock()
            except StorageError as error:  # it waits for the next start
                log.error("turn_not_read", session_id=self._session_id, reason=error.reason)
                return False
            if question is None:
                await self._commit_surely(dropping_work(place, now) + self.queue.changed())
                return False
            turn = msgspec.structs.replace(
                waiting, status=TurnStatus.RUNNING, started_at=now, replaces_turn_id=question.turn_id
            )
            work = leading_work(turn, now, question, message_id)
            if turn.user_message_id == message_id:
                edited = msgspec.structs.replace(place.message, status=MessageStatus.COMPLETE, updated_at=now)
                work += Work((PutMessage(edited, ()),))
            announced = self._is_announced
            work += Work((PutTurn(turn),), self._start_events(turn)) + self.queue.changed()
            if await self._commit_surely(work):
                run.begin(turn)
                place.empty()
                return True
            self._is_announced = announced
        return False

    async def _run_turn(self, run: TurnRun, span: Span) -> None:
        work = await run.run(self._slots)
        if work is None:  # no status event: the session keeps running
            self._is_announced = False
            return
        note_turn_end(span, work)
        idle = Work() if self.queue and not self._stopping.is_set() else _IDLE
        if await self._commit_surely(work + idle):
            self._is_announced = self._is_announced and not idle.events
        elif self._stopping.is_set():
            run.is_left = True
        else:
            await self._end_unsaved(run)

    async def _end_unsaved(self, run: TurnRun) -> None:
        """Ends a turn whose last messages cannot be stored, so that nobody waits for it forever."""
        turn, is_outline = run.turn, run.is_outline
        attempts = [end_turn(turn, (), UNSAVED, self._environment.clock(), is_outline=is_outline)]
        try:
            attempts.insert(0, await end_stored_turn(self._environment, turn, UNSAVED, is_outline=is_outline))
        except Exception as error:  # end it without its messages; the next start closes them
            log.warning("turn_not_read", session_id=self._session_id, error=type(error).__name__)
        for work in attempts:
            if await self._commit_surely(work):
                return

    async def _commit_surely(self, work: Work) -> bool:
        """Commits work that must not be lost, and retries as long as the store is busy or the disk refuses.

        Returns False when the session is gone, the server stops, or the store failed in another way several
        times in a row, which suggests that the work itself is at fault. The next start ends a turn that is left open.
        """
        for attempt in itertools.count():
            try:
                await self._environment.commit(self._tenant, self._session_id, work, self._environment.clock())
                self._report_ended(work)
                return True
            except StorageError as error:
                if self._stopping.is_set() or not (error.may_pass or attempt < len(RETRY_SECONDS)):
                    log.error("turn_not_saved", session_id=self._session_id, reason=error.reason)
                    return False
                log.warning("turn_not_saved_yet", session_id=self._session_id, reason=error.reason)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]):
                        await self._stopping.wait()
            except (MessageNotFound, ShuttingDown):  # what a turn answers again; the store ends, see `end_soon`
                return False
            except Exception as error:
                log.error("turn_not_saved", session_id=self._session_id, exc_info=error)
                return False
        raise AssertionError("count never ends")

    def _report_ended(self, work: Work) -> None:
        for turn in ended_turns(work):
            run = self.run if self.run is not None and self.run.turn.turn_id == turn.turn_id else None
            self._environment.observer.turn_ended(turn, run.first_output_seconds if run is not None else None)
            self._on_ended(turn)

    def _start_events(self, turn: Turn) -> tuple[NewEvent, ...]:
        events = [NewEvent(TurnStarted(turn), turn.turn_id)]
        if not self._is_announced:
            self._is_announced = True
            events.insert(0, NewEvent(SessionStatusChanged(True)))
        return tuple(events)
