"""The turns of one session: decides which turn runs and which messages wait, and runs one after the other."""

import asyncio
import contextlib
import itertools
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import TypeVar

import msgspec
import structlog
from msgspec import Struct

from turnwire.core.actor import Actor, Command, Done
from turnwire.core.ending import Ending, end_turn, ended_turns
from turnwire.core.environment import Environment
from turnwire.core.spans import note_turn_end, turn_span
from turnwire.core.tools.calls import count_requests
from turnwire.core.turns.recovery import ResumePoint, Resumption, end_stored_turn
from turnwire.core.turns.run import TurnRun
from turnwire.core.turns.schedule import (
    Aborting,
    AbortTurn,
    AcceptMessage,
    BecomeIdle,
    BeginTurn,
    Changed,
    DropMessage,
    EditWaiting,
    EndTurn,
    GiveUpTurn,
    Idle,
    JoinTurn,
    LeaveOut,
    MoveWaiting,
    NoteDeletion,
    RemoveWaiting,
    ReturnMessage,
    Running,
    Schedule,
    Waiting,
    WhenIdle,
    leading_work,
)
from turnwire.core.turns.wholes import Whole, read_whole
from turnwire.domain.conversation.events import SessionDeleted
from turnwire.domain.conversation.messages import Failure, FinishReason, Message, MessageStatus
from turnwire.domain.conversation.turns import QueueEntry, Turn, TurnStatus
from turnwire.domain.errors import (
    MessageNotFound,
    MessageNotWaiting,
    NotFound,
    SessionMoving,
    ShuttingDown,
    StorageError,
)
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.event_loop.owner import own_if_unowned
from turnwire.ports.commit import Committed, NewEvent, PutMessage, RemoveSession, Work
from turnwire.ports.conversations import AlternativesOf
from turnwire.ports.pages import Page
from turnwire.ports.telemetry.tracing import Span, error_type, leave_trace

RETRY_SECONDS = (0.1, 0.5, 2.0, 5.0)
"""Delays between attempts to store the end of a turn; the last one repeats."""

READ_PAUSES_SECONDS = (0.1, 0.5, 2.0)
"""Delays before each further attempt to read a message."""

MAX_JOINING_BYTES = 8 * 2**20
"""Maximum size of the messages that join a turn in one commit; one alone may be larger."""

UNSAVED = Ending(FinishReason.ERROR, Failure("INTERNAL", "the server could not store the end of the turn"))

T = TypeVar("T")

log = structlog.get_logger()


class Aborted(Struct, frozen=True):
    """The effect of an abort."""

    turn_id: str = ""
    """The turn that was ended; "" when none ran."""
    dropped_message_ids: tuple[str, ...] = ()
    """Waiting messages that were dropped, in queue order."""


class SessionTurns:
    """Owns the turns of one session. Used on the event loop only.

    The running turn and the waiting messages are the `schedule`, which commands change one after the other. `_task`
    runs the turns, from when one begins until nothing waits; `run` is the turn that it runs, or ran last. `_beginning`
    has the turns whose beginning is being stored, with their tools and their system prompts, by id. `_held` counts the
    readers of something on which a command depends: an owner made later would not know that it changed meanwhile.
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
        schedule: Schedule = Schedule(),  # noqa: B008 - immutable
    ) -> None:
        """Args:
        environment: Ports and settings.
        tenant: The tenant of the session.
        session_id: The session.
        slots: Bounds the concurrent model calls on the whole server; tenants take turns.
        forget: Called when nothing runs or waits any more.
        on_ended: Called when the end of a turn is stored.
        schedule: The schedule that an earlier process left.
        """
        self._environment = environment
        self._tenant = tenant
        self._session_id = session_id
        self._slots = slots
        self._forget = forget
        self._on_ended = on_ended
        self._task: asyncio.Task[None] | None = None
        self._is_forgotten = False
        self._is_left = False
        self._held = 0
        self._stopping = asyncio.Event()
        self._beginning: dict[str, Turn] = {}
        self._returning: set[asyncio.Task[set[str]]] = set()
        self._actor = Actor(schedule, self._store, environment.clock, self._follow)
        self.run: TurnRun | None = None

    @property
    def schedule(self) -> Schedule:
        """The running turn and the waiting messages, as they are stored."""
        return self._actor.state

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs, or is about to."""
        return not isinstance(self.schedule.phase, Idle) or bool(self._beginning)

    @property
    def live(self) -> TurnRun | None:
        """The turn that runs, or has ended while others wait; None when nothing runs."""
        return None if isinstance(self.schedule.phase, Idle) else self.run

    @property
    def waiting(self) -> int:
        """Number of waiting messages, including those being stored."""
        starts_at_once = isinstance(self.schedule.phase, Idle) and bool(self._beginning)
        return len(self.schedule.waiting) + len(self._beginning) - starts_at_once

    def accept(self, command: AcceptMessage, *, alone: bool = False) -> "Future[Done[Schedule]]":
        """Stores a message; its turn starts at once or waits. Shield the reply when awaiting it."""
        turn_id = command.turn.turn_id
        if self._is_left:
            return self._moving()
        self._beginning[turn_id] = command.turn
        accepting = self._actor.ask(command, alone=alone)
        accepting.add_done_callback(lambda _: self._note_accepted(turn_id))
        return accepting

    def ask(self, command: Command[Schedule], *, alone: bool = False) -> "Future[Done[Schedule]]":
        """Carries out a command; see `Actor.ask`. A command after `forget` fails with SessionMoving."""
        if self._is_left:
            return self._moving()
        asked = self._actor.ask(command, alone=alone)
        asked.add_done_callback(lambda _: self._forget_if_idle())
        return asked

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps the owner during a read on which a command depends; see `Changed`."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self._forget_if_idle()

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing runs or waits, and no command is being carried out."""
        return self._task is None and not self._returning and not self.is_busy and self._actor.is_at_rest

    def resume(self, left: Resumption) -> None:
        """Continues or ends the running turn of an earlier process, which already announced that the session runs."""
        if left.point is None:
            self._task = asyncio.create_task(self._end_left(left.turn, left.ending), name="session turns")
        else:
            self.run = self._new_run(left.turn, left.point)
            self._start_task()

    def start_next(self) -> None:
        """Starts the first waiting message of a session in which nothing runs."""
        self._start_task()

    async def abort(self, expected_turn_id: str, *, keep_queue: bool) -> Aborted:
        """Ends the running turn; returns when its end is durable. Safe to cancel: the abort continues.

        Raises:
            StorageError: messages that wait could not be dropped, so nothing was ended.
            ShuttingDown: the server stops, and leaves the turn to its next start.
        """
        asked = self.ask(AbortTurn(expected_turn_id, keep_queue))
        return await self._environment.detached.run(self._finish_abort(asked))

    async def _finish_abort(self, asked: "Future[Done[Schedule]]") -> Aborted:
        aborting: Aborting = (await asked).reply
        late = [one for one in aborting.taken if one.turn.is_late]
        lost: set[str] = set()
        if late:
            returning = asyncio.create_task(self._return(late), name="late turns")
            self._returning.add(returning)
            returning.add_done_callback(self._note_returned)
            lost = await asyncio.shield(returning)
        await self._until_over(aborting.turn_id)
        if aborting.turn_id and self.schedule.active_turn_id == aborting.turn_id:
            raise ShuttingDown
        ids = (one.message_id for one in aborting.taken)
        return Aborted(aborting.turn_id, tuple(one for one in ids if one not in lost))

    async def _until_over(self, turn_id: str) -> None:
        """Returns when a turn is no longer active, or is left to the next start. Safe to cancel."""
        while turn_id and self.schedule.active_turn_id == turn_id and self._task is not None:
            await self._actor.changed(self._task)

    async def _return(self, late: list[Waiting]) -> set[str]:
        """Puts the messages of late turns back into the conversation; returns the ids of those that could not be put
        back.
        """
        lost = set[str]()
        for waiting in late:  # one after the other: each may be large
            async with contextlib.AsyncExitStack() as held:
                whole = await self._surely_read(lambda one=waiting: self._whole(one, held))  # type: ignore[misc]
                returned = whole and await self._carry_out_surely(ReturnMessage(waiting, whole.message))
            if not returned:
                lost.add(waiting.message_id)
        return lost

    async def edit(self, message_id: str, change: Callable[[Whole], EditWaiting]) -> tuple[Message, int]:
        """Changes a waiting message; returns it and the revision of the queue, when that is durable.

        Args:
            message_id: The message.
            change: Returns the change to it; raises to reject.

        Raises:
            MessageNotWaiting: the message does not wait.
            TooManyTurns: memory to read it was not available in time.
            StorageError: it could not be read. Also raises what `change` and the commit raise.
        """
        while True:
            waiting = self.schedule.find(message_id)
            acquire = self._environment.reads.acquire_soon
            try:
                async with read_whole(self._environment, (waiting,), acquire=acquire) as [whole]:
                    done = await asyncio.shield(self.ask(change(whole), alone=True))
            except Changed:
                continue
            except MessageNotFound:
                raise MessageNotWaiting(f"message {message_id!r} does not wait", message_id) from None
            return done.reply, _revision(done)

    async def move(self, message_id: str, before_message_id: str, further: Work) -> tuple[tuple[QueueEntry, ...], int]:
        """Moves a message before another one; "" moves it to the end. Returns the queue and its revision."""
        done = await asyncio.shield(self.ask(MoveWaiting(message_id, before_message_id, further), alone=True))
        return done.state.entries, _revision(done)

    async def remove(self, message_id: str, further: Work) -> int:
        """Removes a waiting message and ends its turn. Returns the revision of the queue."""
        while True:
            waiting = self.schedule.find(message_id)
            async with contextlib.AsyncExitStack() as held:
                message = None
                if waiting.turn.is_late:  # it goes back into the conversation
                    message = (await self._whole(waiting, held, self._environment.reads.acquire_soon)).message
                try:
                    removing = self.ask(RemoveWaiting(waiting, message, further), alone=True)
                    return _revision(await asyncio.shield(removing))
                except Changed:
                    continue

    async def delete(self, before_removal: Callable[[str], Awaitable[None]]) -> None:
        """Ends all turns, then removes the session, which accepts no message meanwhile. Must not be cancelled.

        Args:
            before_removal: Ends everything else that happens in the session.

        Raises:
            StorageError: it was not removed, or waiting messages could not be dropped.
            ShuttingDown: the server stops, and leaves what runs and waits to its next start.
        """
        await self.ask(NoteDeletion(has_begun=True))
        try:
            while not self.is_at_rest:
                await self.abort("", keep_queue=False)
                await self.idle()
                await asyncio.sleep(0)  # a turn ends in callbacks of its last command
            await before_removal(self._session_id)
            await self.ask(WhenIdle(Work((RemoveSession(),), (NewEvent(SessionDeleted()),))), alone=True)
        finally:
            await self.ask(NoteDeletion(has_begun=False))

    def suspend(self, ending: Ending) -> None:
        """Stops the running turn and starts no other. It continues at the next start, or else ends with `ending`."""
        self._stopping.set()
        if self.run is not None:
            self.run.suspend(ending)

    def forget(self) -> None:
        """Drops the session from memory, even if a turn of it is stored as running. Call when it is `idle`."""
        count_requests(self._environment, self._tenant, self.schedule.calls, None)
        self._is_forgotten = self._is_left = True
        self._forget(self._session_id)

    @staticmethod
    def _moving() -> "Future[Done[Schedule]]":
        refused: Future[Done[Schedule]] = asyncio.get_running_loop().create_future()
        refused.set_exception(SessionMoving())
        return refused

    async def idle(self) -> None:
        """Returns when nothing runs any more. Safe to cancel."""
        await self._actor.idle()
        while waiting := [task for task in (self._task, *self._returning) if task is not None and not task.done()]:
            await asyncio.wait(waiting)

    def _follow(self, before: Schedule, after: Schedule) -> None:
        """Applies what is stored: a turn begins to run, or is stopped."""
        count_requests(self._environment, self._tenant, before.calls, after.calls)
        if not isinstance(after.phase, Running) or self._stopping.is_set():
            return
        turn = after.phase.turn
        # one commit may end a turn and begin another
        if not isinstance(before.phase, Running) or before.phase.turn.turn_id != turn.turn_id:
            self.run = self._new_run(self._beginning.pop(turn.turn_id, turn))
            if self._task is None:  # else it has yet to see that the previous turn has ended
                self._start_task()
        if after.phase.stop is not None and self.run is not None and self.run.turn.turn_id == turn.turn_id:
            self.run.stop(after.phase.stop)

    def _new_run(self, turn: Turn, resume: ResumePoint | None = None) -> TurnRun:
        begun = msgspec.structs.replace(turn, status=TurnStatus.RUNNING, started_at=turn.started_at or turn.created_at)
        return TurnRun(self._environment.of_now(), begun, self._actor, resume, self._take_in)

    def _start_task(self) -> None:
        self._task = asyncio.create_task(self._run_turns(), name="session turns")

    async def _run_turns(self) -> None:
        """Runs the turn that has begun, then those that wait."""
        leave_trace()  # each turn has its own position in a trace, whichever call started this task
        while isinstance(self.schedule.phase, Running) or await self._begin_next():
            run = self.run
            if run is None or self.schedule.running(run.turn.turn_id) is None:  # else it would be run again and again
                raise RuntimeError("a turn begins together with its run")
            own_if_unowned(f"turns of {self._tenant}")  # those that resume after a restart
            with turn_span(self._environment.tracer, run.turn) as span:
                try:
                    self._environment.observer.turn_started(run.turn)
                    await self._run_turn(run, span)
                except Exception as error:  # a bug in one turn must not block the queue
                    span.fail(error_type(error))
                    log.error("turn_not_ended", session_id=self._session_id, exc_info=error)
                    await self._end_unsaved(run.turn, UNSAVED)
            self._environment.waiting_calls.forget(run.turn.turn_id)
            if self._stopping.is_set():
                break
        self._task = None
        self._forget_if_idle()

    async def _end_left(self, turn: Turn, ending: Ending) -> None:
        """Ends the running turn of an earlier process, then runs those that wait."""
        await self._end_unsaved(turn, ending)
        await self._run_turns()

    async def _run_turn(self, run: TurnRun, span: Span) -> None:
        end = await run.run(self._slots)
        done = await self._carry_out_surely(EndTurn(run.turn.turn_id, end.close, self._stopping.is_set()))
        if done is not None:
            if done.reply is not None:
                note_turn_end(span, done.reply)
            return
        if not self._stopping.is_set():  # else the next start ends it, or goes on with it
            await self._end_unsaved(run.turn, UNSAVED)

    async def _end_unsaved(self, turn: Turn, ending: Ending) -> None:
        """Ends a turn whose last messages cannot be stored, unless it has ended. Otherwise others would
        wait forever.
        """
        if self.schedule.running(turn.turn_id) is None:
            return
        attempts = [end_turn(turn, (), ending, self._environment.clock())]
        try:
            attempts.insert(0, await end_stored_turn(self._environment, turn, ending))
        except Exception as error:  # end it without its messages; the next start closes them
            log.warning("turn_not_read", session_id=self._session_id, error=type(error).__name__)
        for work in attempts:
            storing = EndTurn(turn.turn_id, lambda *_, work=work: work, is_stopping=False)
            if await self._carry_out_surely(storing):
                return
        await self.ask(GiveUpTurn(turn.turn_id))

    async def _begin_next(self) -> bool:
        """Begins the turn of the next waiting message. Returns False when there is none, and when the server stops."""
        while not self._stopping.is_set() and not isinstance(self.schedule.phase, Idle):
            if self.schedule.waiting:
                await self._begin(self.schedule.waiting[0])
            elif not await self._carry_out_surely(BecomeIdle()):
                await self.ask(BecomeIdle(is_stored=False))
            if isinstance(self.schedule.phase, Running):
                return not self._stopping.is_set()
        return False

    async def _begin(self, waiting: Waiting) -> None:
        """Begins the turn of a message, unless it changed meanwhile. A turn that cannot begin waits for the
        next start.
        """
        begin = self._begin_again if waiting.turn.regenerates else self._begin_waiting
        async with contextlib.AsyncExitStack() as held:
            whole = await self._surely_read(lambda: self._whole(waiting, held))
            try:
                if self._stopping.is_set() or (whole is not None and await begin(whole)):
                    return
            except Changed:
                return
        if not self._stopping.is_set():
            await self.ask(LeaveOut(waiting.message_id))

    async def _begin_waiting(self, whole: Whole) -> bool:
        """Stores the beginning of a turn. Returns False when it could not be stored. Raises Changed."""
        now = self._environment.clock()
        turn = msgspec.structs.replace(whole.turn, status=TurnStatus.RUNNING, started_at=now)
        message = msgspec.structs.replace(whole.message, status=MessageStatus.COMPLETE, updated_at=now)
        return await self._store_beginning(whole, turn, Work((PutMessage(message),)))

    async def _begin_again(self, whole: Whole) -> bool:
        """Like `_begin_waiting`, for a turn that answers a message again; ends it when that message waits or was taken
        back.
        """
        waiting, message_id = whole.turn, whole.message.message_id
        for _ in range(2):  # once more when the message began to wait between reading and storing
            question = await self._surely_read(lambda: self._question(waiting))
            if question is None:
                return await self._carry_out_surely(DropMessage(message_id)) is not None
            now = self._environment.clock()
            turn = msgspec.structs.replace(
                waiting, status=TurnStatus.RUNNING, started_at=now, replaces_turn_id=question.turn_id
            )
            work = leading_work(turn, now, question, message_id)
            if turn.user_message_id == message_id:
                edited = msgspec.structs.replace(whole.message, status=MessageStatus.COMPLETE, updated_at=now)
                work += Work((PutMessage(edited),))
            if await self._store_beginning(whole, turn, work):
                return True
        return False

    async def _store_beginning(self, whole: Whole, turn: Turn, work: Work) -> bool:
        self._beginning[turn.turn_id] = turn
        try:
            return await self._carry_out_surely(BeginTurn(whole.waiting, turn, work)) is not None
        finally:
            self._beginning.pop(turn.turn_id, None)

    async def _question(self, turn: Turn) -> Message | None:
        """Returns the message that a turn answers again; None when it waits or was taken back. Raises StorageError."""
        store = self._environment.store.of(turn.tenant)
        try:
            await store.alternatives(turn.session_id, AlternativesOf(turn.regenerates), Page(size=1))
            return await store.message(turn.session_id, turn.regenerates)
        except MessageNotFound:
            return None

    async def _whole(
        self,
        waiting: Waiting,
        held: contextlib.AsyncExitStack,
        acquire: Callable[[str, int], Awaitable[None]] | None = None,
    ) -> Whole:
        """Reads a waiting message, and holds memory for it while `held` lasts; see `read_whole`."""
        [whole] = await held.enter_async_context(read_whole(self._environment, (waiting,), acquire=acquire))
        return whole

    async def _take_in(self, run: TurnRun) -> None:
        """Lets messages join a turn before its next step; returns when that is durable.

        Messages that are large together join in several commits, so that few of them are in memory. If that cannot be
        stored, they keep waiting: for the next step, or for their own turns.
        """
        turn_id = run.turn.turn_id
        try:
            while (running := self.schedule.running(turn_id)) and running.stop is None:
                if not (joining := self.schedule.joining(turn_id)):
                    return
                acquire = self._environment.reads.acquire_soon
                async with read_whole(
                    self._environment, joining, max_bytes=MAX_JOINING_BYTES, acquire=acquire
                ) as wholes:
                    taken = tuple((one.waiting, one.turn, one.message) for one in wholes)
                    await asyncio.shield(self.ask(JoinTurn(turn_id, taken)))
        except Exception as error:
            log.warning("turn_not_steered", session_id=self._session_id, error=type(error).__name__)

    async def _surely_read(self, read: Callable[[], Awaitable[T]]) -> T | None:
        """Returns what was read, after some attempts; None when it could not be read, is gone, or the server stops."""
        for pause in (*READ_PAUSES_SECONDS, None):
            try:
                return await read()
            except (StorageError, NotFound) as error:
                if pause is None or self._stopping.is_set() or isinstance(error, NotFound):
                    log.error("turn_not_read", session_id=self._session_id, reason=error.reason)
                    return None
            await self._pause(pause)
        raise AssertionError("the last pause is None")

    async def _carry_out_surely(self, command: Command[Schedule]) -> Done[Schedule] | None:
        """Carries out what must not be lost; retries as long as the store is busy or the disk full.

        Returns None when the session is gone or another server has it, the server stops, or the store failed in another
        way several times in a row, which suggests that the work itself is at fault. The next start ends a turn that is
        left open. Raises Changed.
        """
        for attempt in itertools.count():
            try:
                # the store may drop an event of the beginning of another answer, so no events may be counted after it
                return await asyncio.shield(self.ask(command, alone=isinstance(command, BeginTurn)))
            except StorageError as error:
                if self._stopping.is_set() or not (error.may_pass or attempt < len(RETRY_SECONDS)):
                    log.error("turn_not_saved", session_id=self._session_id, reason=error.reason)
                    return None
                log.warning("turn_not_saved_yet", session_id=self._session_id, reason=error.reason)
                await self._pause(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
            # the message to answer again is gone; another server has the session, and goes on; or the store is closing,
            # see `end_soon`
            except (MessageNotFound, SessionMoving, ShuttingDown):
                return None
            except Changed:
                raise
            except Exception as error:
                log.error("turn_not_saved", session_id=self._session_id, exc_info=error)
                return None
        raise AssertionError("count never ends")

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _store(self, work: Work, at: datetime) -> "Future[Committed]":
        storing = self._environment.commit(self._tenant, self._session_id, work, at)
        if ended := ended_turns(work):
            storing.add_done_callback(lambda stored: self._report(ended, stored))
        return storing

    def _report(self, ended: tuple[Turn, ...], stored: "Future[Committed]") -> None:
        if stored.cancelled() or stored.exception() is not None:
            return
        for turn in ended:
            run = self.run if self.run is not None and self.run.turn.turn_id == turn.turn_id else None
            self._environment.observer.turn_ended(turn, run.first_output_seconds if run is not None else None)
            self._on_ended(turn)

    def _note_accepted(self, turn_id: str) -> None:
        self._beginning.pop(turn_id, None)
        self._forget_if_idle()

    def _note_returned(self, returning: asyncio.Task[set[str]]) -> None:
        self._returning.discard(returning)
        self._forget_if_idle()

    def _forget_if_idle(self) -> None:
        if self.is_at_rest and not self._held and not self._is_forgotten:
            self._is_forgotten = True
            self.run = None  # it refers to this object, and an answer of megabytes is to be freed with its turn
            self._forget(self._session_id)


def _revision(done: Done[Schedule]) -> int:
    return 0 if done.committed is None else done.committed.queue_revision
