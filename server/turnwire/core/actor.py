"""Decides one command after the other: many callers change one state, and a change is durable before it is seen.

A command is decided on the stored state, never on one that may still fail. While a commit is being stored, commands
wait in the inbox; those that wait together are decided one after the other and stored in one commit. So nothing has to
be undone: a commit that fails leaves the state as it was, and every caller gets the error. What stores nothing, such as
the intention to stop a turn, is seen at once, and is gone with the process.
"""

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from turnwire.domain.errors import OutcomeUnknown, StorageError
from turnwire.ports.clock import Clock
from turnwire.ports.commit import Committed, Work, joined_work

RETRY_SECONDS = 0.5
"""Delay before something that must not be lost is stored again: a full disk stays full until somebody frees space."""

COMMANDS_AT_ONCE = 128
"""Maximum commands in one commit: each of them blocks the event loop for some microseconds."""

LARGE_BYTES = 2**20
"""A command that stores more should have its own commit: the store divides no commit, so others would wait for all of
it."""

S = TypeVar("S")


class Now(Struct, frozen=True):
    """The moment of a decision."""

    at: datetime
    """The time of day, which people may change."""
    seconds: float
    """The time of the loop's clock, which never jumps; for durations."""


class Decision(Struct, Generic[S], frozen=True):
    """The outcome of a command: the next state, and the work that stores it."""

    state: S
    work: Work = Work()
    """Empty when nothing is to be stored."""
    reply: Any = None
    """The reply to the caller."""


class Command(Protocol[S]):
    """A request to change a state."""

    def decide(self, state: S, now: Now) -> Decision[S]:
        """Returns the outcome of the command in a state. Pure; raises to reject the command."""
        ...


class Done(Struct, Generic[S], frozen=True):
    """A command that was carried out."""

    state: S
    """The state as the command left it."""
    has_changed: bool
    """False when nothing was to be stored: an earlier command had the same effect, or this one is about memory only."""
    committed: Committed | None
    """The commit that stored it, or else the newest one before; None when this actor has stored nothing yet."""
    before_sequence: int = 0
    """The session's head before the first event of the command."""
    reply: Any = None
    """See `Decision.reply`."""


class Owner(Protocol[S]):
    """Carries out the commands on a state: its actor, or the actor of a larger state."""

    @property
    def state(self) -> S:
        """The state as it is stored."""
        ...

    def ask(self, command: Command[S], *, alone: bool = False) -> "Future[Done[Any]]":
        """Queues a command to be decided and stored; see `Actor.ask`."""
        ...

    async def changed(self, *others: "Future[Any]") -> None:
        """Returns at the next change of the state, or when one of the others is done. Safe to cancel."""
        ...


async def carry_out(
    owner: Owner[S], command: Command[S], note: Callable[[StorageError], None] = lambda _: None
) -> None:
    """Carries out a command that must not be lost: retries for as long as the store may accept it later.

    Args:
        owner: Carries out the command.
        command: The command.
        note: Called with each error that a retry follows.

    Raises:
        StorageError: the store will not accept it later either.
    """
    while True:
        try:
            await asyncio.shield(owner.ask(command))
            return
        except StorageError as error:
            if not error.may_pass:
                raise
            note(error)
        await asyncio.sleep(RETRY_SECONDS)


class _Asked(NamedTuple, Generic[S]):
    command: Command[S]
    reply: "Future[Done[S]]"
    is_alone: bool


class _Batch(NamedTuple, Generic[S]):
    """Commands whose commit is being stored."""

    asked: list[_Asked[S]]
    decisions: list[Decision[S]]
    storing: "Future[Committed]"


class Actor(Generic[S]):
    """Owns one state. Used on the event loop only; it has no task of its own.

    At most one commit is being stored (`_batch`). `_alone` counts the commands at the head of the inbox that failed
    together and are now tried one by one, so that one that cannot be stored does not fail the others.

    A command that is rejected because of an earlier one waits until that is stored: if it never is, nothing rejects it.
    """

    def __init__(
        self,
        state: S,
        store: Callable[[Work, datetime], "Future[Committed]"],
        clock: Clock,
        on_changed: Callable[[S, S], None] | None = None,
    ) -> None:
        """Args:
        state: The state, which is stored.
        store: Begins to store work, and returns its commit. Called in the order of the decisions.
        clock: The time of day.
        on_changed: Called with the state before and after a change, at the moment when readers see it; must not raise.
        """
        self._state = state
        self._store = store
        self._clock = clock
        self._on_changed = on_changed
        self._inbox: deque[_Asked[S]] = deque()
        self._batch: _Batch[S] | None = None
        self._alone = 0
        self._last: Committed | None = None
        self._changed = asyncio.Event()

    @property
    def state(self) -> S:
        """The stored state. It changes at the moment when the commit's events are published."""
        self._end_batch()
        return self._state

    def ask(self, command: Command[S], *, alone: bool = False) -> "Future[Done[S]]":
        """Queues a command to be decided and stored. It is carried out even if nothing waits for the reply.

        Args:
            command: The command.
            alone: Whether it has its own commit, because its caller needs the commit's result, or because it is large.

        Returns:
            The reply. It raises what `decide` raised, or the error of the commit. Cancelling it has no effect on the
                command.
        """
        reply: Future[Done[S]] = asyncio.get_running_loop().create_future()
        self._inbox.append(_Asked(command, reply, alone))
        self._end_batch()
        self._advance()
        return reply

    async def changed(self, *others: "Future[Any]") -> None:
        """Returns at the next change of the state, or when one of the others is done. Safe to cancel."""
        if not others:
            await self._changed.wait()
            return
        changed = asyncio.create_task(self._changed.wait(), name="change of a state")
        try:
            await asyncio.wait((changed, *others), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()

    async def idle(self) -> None:
        """Returns when every command has been carried out or refused. Safe to cancel."""
        while self._batch is not None:
            await asyncio.wait((self._batch.storing,))
            self._end_batch()

    def _advance(self) -> None:
        while self._inbox and self._batch is None:
            self._decide_waiting()

    def _decide_waiting(self) -> None:
        """Decides the waiting commands, and begins to store their work."""
        now = Now(self._clock(), asyncio.get_running_loop().time())
        state, asked, decisions = self._state, list[_Asked[S]](), list[Decision[S]]()
        taken = self._take()
        while taken:
            one = taken.popleft()
            try:
                decision = one.command.decide(state, now)
            except Exception as error:  # even a fault of ours is for this caller alone
                if state is self._state:
                    _fail(one.reply, error)
                    continue
                self._inbox.extendleft((*reversed(taken), one))
                break
            asked.append(one)
            decisions.append(decision)
            state = decision.state
        work = joined_work(decision.work for decision in decisions)
        if not work.changes and not work.events:
            self._finish(asked, decisions)
            return
        storing = self._store(work, now.at)
        self._batch = _Batch(asked, decisions, storing)
        storing.add_done_callback(lambda _: self._end_batch())

    def _take(self) -> deque[_Asked[S]]:
        """Takes the commands that are decided together out of the inbox; at least one."""
        taken = deque((self._inbox.popleft(),))
        most = 1 if self._alone or taken[0].is_alone else COMMANDS_AT_ONCE
        self._alone = max(self._alone - 1, 0)
        while self._inbox and len(taken) < most and not self._inbox[0].is_alone:
            taken.append(self._inbox.popleft())
        return taken

    @property
    def is_at_rest(self) -> bool:
        """Whether no command waits or is being stored."""
        self._end_batch()
        return self._batch is None and not self._inbox

    def _end_batch(self) -> None:
        """Adopts what was decided once it is durable. Does nothing before that."""
        batch = self._batch
        if batch is None or not batch.storing.done():
            return
        self._batch = None
        error = asyncio.CancelledError() if batch.storing.cancelled() else batch.storing.exception()
        if error is None:
            self._last = batch.storing.result()
            self._finish(batch.asked, batch.decisions)
        elif len(batch.asked) > 1 and not isinstance(error, OutcomeUnknown):
            self._alone += len(batch.asked)
            self._inbox.extendleft(reversed(batch.asked))
        else:  # a change that may be stored must not be tried again
            for one in batch.asked:
                _fail(one.reply, error)
        self._advance()

    def _finish(self, asked: list[_Asked[S]], decisions: list[Decision[S]]) -> None:
        if not decisions:
            return
        before, self._state = self._state, decisions[-1].state
        if before is not self._state:
            if self._on_changed is not None:
                self._on_changed(before, self._state)
            self._changed.set()
            self._changed = asyncio.Event()
        sequence = 0 if self._last is None else self._last.before_sequence
        for one, decision in zip(asked, decisions, strict=True):
            if not one.reply.done():
                has_changed = decision.work != Work()
                one.reply.set_result(Done(decision.state, has_changed, self._last, sequence, decision.reply))
            sequence += len(decision.work.events)


def _fail(reply: "Future[Done[S]]", error: BaseException) -> None:
    if not reply.done():
        reply.set_exception(error)
        reply.exception()  # retrieved, so that asyncio does not log it when the caller is gone
