"""The running turns of all sessions: each session with work has one owner, which runs its turns first in, first out.

Whether a session is busy is decided here, on the event loop, when a message is accepted. The store keeps the order of
commits, so memory and database agree. Sessions are independent of each other.
"""

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from msgspec import Struct

from turnwire.core.actor import Done
from turnwire.core.environment import Environment
from turnwire.core.quotas import SOON
from turnwire.core.spans import note_accepted
from turnwire.core.tools.calls import ToolCalls
from turnwire.core.turns.recovery import RESTARTED, Resumption, resume_or_end
from turnwire.core.turns.run import TurnRun
from turnwire.core.turns.schedule import (
    AcceptMessage,
    Asking,
    Between,
    Running,
    Schedule,
    Waiting,
    WhenIdle,
)
from turnwire.core.turns.session import Aborted, SessionTurns
from turnwire.domain.accounts import Account, QuotaName, check_count
from turnwire.domain.conversation.events import CompactionStarted, RetryScheduled, SessionView
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.questions import Question
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import BusyPolicy, Turn, TurnStatus
from turnwire.domain.errors import (
    MessageNotWaiting,
    SessionMoving,
    ShuttingDown,
    ToolCallNotReady,
)
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.ports.commit import Committed, Work
from turnwire.ports.store import TenantStore

NOTHING = Schedule()


class TurnCounts(Struct, frozen=True):
    """Turns and messages of all tenants at one moment."""

    running: int
    """Turns that run, including those that wait."""
    waiting: int
    """Running turns that wait for a person or for a tool of the client."""
    queued: int
    """Messages that wait for a running turn to end."""


class Turns:
    """All sessions that have a turn running or waiting. Used on the event loop only.

    `_owners` has one entry for each of these sessions, removed when it has no more work. `_tenants` has the same
    entries by tenant. `_is_recovering` selects sessions whose turns are being recovered: only `recover` makes their
    owners. An abort continues when its caller is gone: half an abort would leave messages waiting forever.
    """

    def __init__(self, environment: Environment) -> None:
        """Takes the ports and settings. Nothing runs before `recover` or `accept`."""
        self._environment = environment
        self._owners: dict[str, SessionTurns] = {}
        self._tenants: dict[str, dict[str, SessionTurns]] = {}
        max_running = environment.settings.limits.max_running_turns
        self._slots = FairSemaphore(max_running, tenant_limit=max_running)
        self._is_closing = False
        self._is_recovering: Callable[[str], bool] = lambda _: False
        self._on_ended: Callable[[Turn], None] = lambda _: None

    def when_ended(self, call: Callable[[Turn], None]) -> None:
        """Registers a function to call whenever the end of a turn is stored; it must not raise. Call before
        `recover`.
        """
        self._on_ended = call

    def accept(self, command: AcceptMessage, *, alone: bool = False) -> "Future[Done[Schedule]]":
        """Stores a message that is to be answered. Its turn starts at once, or after the turns before it.

        Args:
            command: The message and its turn.
            alone: See `Actor.ask`; for work that requires a head.

        Returns:
            The reply, with `Accepted`; it raises what `AcceptMessage.decide` and the commit raise. Shield it.

        Raises:
            ShuttingDown: the server stops.
            QuotaExceeded: the tenant has its maximum of running turns, or of waiting messages.
            SessionMoving: the turns of the session are being recovered.
        """
        if self._is_closing:
            raise ShuttingDown
        turn = command.turn
        self._check_quotas(turn, command.when_busy)
        accepting = self._known_owner(turn.tenant, turn.session_id).accept(command, alone=alone)
        note_accepted(turn)
        return accepting

    def waiting_in(self, session_id: str, message_id: str) -> SessionTurns:
        """Returns the turns of the session in which a message waits. Raises MessageNotWaiting and ShuttingDown."""
        if self._is_closing:
            raise ShuttingDown
        owner = self._owners.get(session_id)
        if owner is None:
            raise MessageNotWaiting(f"message {message_id!r} does not wait", message_id)
        return owner

    @contextmanager
    def held(self, tenant: str, session_id: str) -> Iterator[SessionTurns]:
        """Yields the owner of an existing session, and keeps it: for a read on which a later change depends.

        Raises SessionMoving: the turns of the session are being recovered.
        """
        owner = self._known_owner(tenant, session_id)
        with owner.held():
            yield owner

    async def change_idle(self, tenant: str, session_id: str, work: Work) -> Committed:
        """Stores a change that may not happen during a turn: none runs when it takes effect. Safe to cancel: it is
        stored.

        Raises:
            TurnInProgress: a turn runs in the session, or is about to.
            StorageError: it was not stored.
            SessionMoving: the turns of the session are being recovered.
        """
        done = await asyncio.shield(self._known_owner(tenant, session_id).ask(WhenIdle(work), alone=True))
        if done.committed is None:
            raise ValueError("there was nothing to store")
        return done.committed

    async def abort(self, session_id: str, expected_turn_id: str, *, keep_queue: bool) -> Aborted:
        """Ends the running turn and returns when its end is durable. Idempotent. Safe to cancel: the abort continues.

        Args:
            session_id: The session. Does nothing when it has no turns.
            expected_turn_id: Ends only this turn; "" ends any.
            keep_queue: Keep the waiting messages: the next one starts.

        Raises:
            StorageError: waiting messages could not be dropped, so nothing was ended.
            ShuttingDown: the server stops, and leaves the turn to its next start.
        """
        owner = self._owners.get(session_id)
        return Aborted() if owner is None else await owner.abort(expected_turn_id, keep_queue=keep_queue)

    async def recover(self, is_mine: Callable[[str], bool] = lambda _: True) -> None:
        """Resumes or ends the turns that an earlier process left, and starts the waiting ones.

        Of turns that wait for another one, only headers are read. Called before calls of their sessions are carried
        out; one that was begun before this node lost the session is refused meanwhile.

        Args:
            is_mine: Returns whether the turns of a session, given by its id, continue here.
        """
        self._is_recovering = is_mine
        try:
            await self._recover(is_mine)
        finally:
            self._is_recovering = lambda _: False

    async def _recover(self, is_mine: Callable[[str], bool]) -> None:
        for owner in [owner for session_id, owner in self._owners.items() if is_mine(session_id)]:
            owner.forget()  # made since by an early call: what it knows is not what is stored
        store = self._environment.store
        unfinished = [turn for turn in await store.unfinished_turns() if is_mine(turn.session_id)]
        running = [turn for turn in unfinished if turn.status is TurnStatus.RUNNING]
        waiting = {turn.turn_id: turn for turn in unfinished if turn.status is TurnStatus.QUEUED}
        newest = {turn.session_id: turn.turn_id for turn in running}
        interrupting = [turn for turn in waiting.values() if turn.busy_policy is BusyPolicy.INTERRUPT]
        ended_by = {turn.aimed_at_turn_id: turn.user_message_id for turn in interrupting}
        resumptions = dict[str, Resumption]()
        for turn in running:
            is_newest = newest[turn.session_id] == turn.turn_id
            interrupted_by = ended_by.get(turn.turn_id, "")
            whole = await store.of(turn.tenant).turn(turn.session_id, turn.turn_id)
            resumption = await resume_or_end(
                self._environment, whole, is_newest=is_newest, interrupted_by=interrupted_by
            )
            if resumption is not None:
                resumptions[turn.session_id] = resumption
        sessions = dict.fromkeys((turn.session_id, turn.tenant) for turn in (*running, *waiting.values()))
        for session_id, tenant in sessions:
            queue = await self._queue(tenant, session_id, waiting)
            if (resumed := resumptions.get(session_id)) is not None:
                owner = self._owner(tenant, session_id, Schedule(Asking(resumed.turn.header()), queue, True))
                owner.resume(resumed)
            elif queue:
                self._owner(tenant, session_id, Schedule(Between(""), queue)).start_next()

    async def _queue(self, tenant: str, session_id: str, waiting: Mapping[str, Turn]) -> tuple[Waiting, ...]:
        """Returns the messages that wait in a session, given all waiting turns by id."""
        entries = (await self._environment.store.of(tenant).queue_entries(session_id)).entries
        return tuple(
            Waiting(entry.message_id, waiting[entry.turn_id].header()) for entry in entries if entry.turn_id in waiting
        )

    async def leave(self, is_left: Callable[[str], bool]) -> None:
        """Stops the turns of sessions that move to another node, as `aclose` does, and forgets them.

        Returns when nothing of them is left. Changes that the store rejects meanwhile are abandoned, because this node
        has already lost the sessions.

        Args:
            is_left: Returns whether a session is one of them, by its id.
        """
        owners = [owner for session_id, owner in self._owners.items() if is_left(session_id)]
        for owner in owners:
            owner.suspend(RESTARTED)
        for owner in owners:
            await owner.idle()
            owner.forget()

    def is_idle(self, is_of: Callable[[str], bool]) -> bool:
        """Returns whether nothing runs or waits in the sessions that the function selects by their ids."""
        return not any(is_of(session_id) for session_id in self._owners)

    async def aclose(self) -> TurnCounts:
        """Stops all turns; returns, when all their content is durable, the counts of what the next start continues.

        A turn between two steps, or waiting for tools, permissions or the start of an answer, continues at the next
        start. A turn in the middle of an answer ends and keeps its text.
        """
        self._is_closing = True
        owners = list(self._owners.values())
        for owner in owners:
            owner.suspend(RESTARTED)
        for owner in owners:
            await owner.idle()
        return _counts(owners)  # some of them are forgotten by now

    def counts(self) -> TurnCounts:
        """Returns the numbers of turns that run and wait now."""
        return _counts(self._owners.values())

    def view(self, session: Session) -> SessionView:
        """Returns the session with its running turn and queue as they are now."""
        owner = self._owners.get(session.session_id)
        if owner is None:
            return SessionView(session)
        schedule = owner.schedule
        return SessionView(session, schedule.active_turn_id, schedule.entries, schedule.open_requests)

    def running(self, tenant: str) -> int:
        """Returns the number of running turns of a tenant, including those of other nodes."""
        here = sum(owner.is_busy for owner in self._tenants.get(tenant, {}).values())
        return here + self._account(tenant).running_elsewhere

    def queued(self, tenant: str) -> int:
        """Returns the number of messages of a tenant that wait for turns to end, including those of other nodes."""
        here = sum(owner.waiting for owner in self._tenants.get(tenant, {}).values())
        return here + self._account(tenant).waiting_elsewhere

    def live(self, session_id: str) -> TurnRun | None:
        """Returns the running turn of a session; None when no turn runs."""
        owner = self._owners.get(session_id)
        return owner.live if owner is not None else None

    def waiting_call(self, session_id: str, part_id: str) -> tuple[ToolCalls, int] | None:
        """Returns the calls that include a waiting call, and its part index; None when no running turn waits for it.

        Raises:
            ToolCallNotReady: the call is still being written.
        """
        run = self.live(session_id)
        calls = run.calls if run is not None else None
        if calls is not None and (index := calls.index_of(part_id)) is not None:
            return calls, index
        if run is not None and calls is None and _has_part(run.open_message(), part_id):
            raise ToolCallNotReady(f"tool call {part_id!r} is not complete: wait for its tool_call_updated", part_id)
        return None

    def open_permissions(self, tenant: str, session_id: str | None) -> tuple[PermissionRequest, ...]:
        """Returns the unanswered permission requests of a tenant's session, or of all its sessions for None."""
        return tuple(asked for calls in self._calls(tenant, session_id) for asked in calls.state.open_permissions)

    def open_questions(self, tenant: str, session_id: str | None) -> tuple[Question, ...]:
        """Returns the unanswered questions of a tenant's session, or of all its sessions for None."""
        return tuple(asked for calls in self._calls(tenant, session_id) for asked in calls.state.open_questions)

    def calls(self, session_id: str) -> ToolCalls | None:
        """Returns the tool calls of the running turn that wait for their results; None when there are none."""
        run = self.live(session_id)
        return run.calls if run is not None else None

    def pending_notices(
        self, tenant: str, session_id: str | None
    ) -> Iterator[tuple[str, CompactionStarted | RetryScheduled]]:
        """Yields session ids with their `TurnRun.pending_notice`, of a tenant's session, or of all for None."""
        for run in self._runs(tenant, session_id):
            if (notice := run.pending_notice) is not None:
                yield run.turn.session_id, notice

    def open_messages(self, tenant: str, session_id: str | None) -> Iterator[Message]:
        """Yields the open messages (`TurnRun.open_message`) of a tenant's session, or of all for None."""
        for run in self._runs(tenant, session_id):
            if (message := run.open_message()) is not None:
                yield message

    async def flush(self, session_id: str) -> None:
        """Makes durable what has streamed so far in a session. Safe to cancel."""
        run = self.live(session_id)
        if run is not None:
            await run.flush()

    def _runs(self, tenant: str, session_id: str | None) -> Iterator[TurnRun]:
        """Returns the running turn of a tenant's session, or all its running turns for None."""
        owners = self._owners.values() if session_id is None else filter(None, (self._owners.get(session_id),))
        runs = (owner.live for owner in owners)
        return (run for run in runs if run is not None and run.turn.tenant == tenant)

    def _calls(self, tenant: str, session_id: str | None) -> Iterator[ToolCalls]:
        """Returns the calls for which the running turn of a tenant's session waits, or all its running
        turns for None.
        """
        return (run.calls for run in self._runs(tenant, session_id) if run.calls is not None)

    def _reads(self, session: Session) -> TenantStore:
        return self._environment.store.of(session.tenant)

    def _account(self, tenant: str) -> Account:
        return self._environment.store.of(tenant).account(self._environment.clock())

    def _known_owner(self, tenant: str, session_id: str) -> SessionTurns:
        """Returns the session's owner, which knows its turns. Raises SessionMoving: they are being recovered."""
        if session_id not in self._owners and self._is_recovering(session_id):
            raise SessionMoving  # an owner of now would take the session for an idle one
        return self._owner(tenant, session_id)

    def _owner(self, tenant: str, session_id: str, schedule: Schedule = NOTHING) -> SessionTurns:
        """Returns the session's owner; creates one, with a schedule, if it has none."""
        owner = self._owners.get(session_id)
        if owner is None:
            owner = self._owners[session_id] = SessionTurns(
                self._environment,
                tenant,
                session_id,
                self._slots,
                partial(self._forget, tenant),
                on_ended=self._on_ended,
                schedule=schedule,
            )
            self._tenants.setdefault(tenant, {})[session_id] = owner
        return owner

    def _forget(self, tenant: str, session_id: str) -> None:
        if self._owners.pop(session_id, None) is not None:
            del self._tenants[tenant][session_id]
            if not self._tenants[tenant]:
                del self._tenants[tenant]

    def _check_quotas(self, turn: Turn, when_busy: BusyPolicy) -> None:
        """Rejects a message whose turn would start or wait beyond a quota. Raises QuotaExceeded."""
        limits, owner = self._environment.settings.quotas_of(turn.tenant), self._owners.get(turn.session_id)
        if owner is None or not owner.is_busy:
            quota, limit, count = QuotaName.RUNNING_TURNS, limits.max_running_turns, self.running
        elif when_busy is not BusyPolicy.REJECT:
            quota, limit, count = QuotaName.WAITING_MESSAGES, limits.max_waiting_messages, self.queued
        else:
            return
        if limit:
            check_count(turn.tenant, quota, limit, count(turn.tenant), retry_after=SOON)


def _counts(owners: Iterable[SessionTurns]) -> TurnCounts:
    schedules = [owner.schedule for owner in owners]
    waiting = sum(one.open_requests > 0 for one in schedules)
    running = sum(isinstance(one.phase, Running) for one in schedules)
    return TurnCounts(running, waiting, sum(len(one.waiting) for one in schedules))


def _has_part(message: Message | None, part_id: str) -> bool:
    return message is not None and any(part.part_id == part_id for part in message.parts)
