"""The single writer: all waiting commits in one transaction (group commit).

Work that belongs to no session is an `Other` among the commits: it shares their transactions and their rules. Units of
a session are stored in their order, and so are those of none.

A transaction costs one wait for the disk, whatever its size, so commits that wait together share it. When one of them
cannot be written, the transaction is repeated with a savepoint for each commit, so that the others succeed.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import structlog

from turnwire.domain.errors import DomainError, SessionMoving, ShuttingDown, StorageError
from turnwire.ports.commit import Commit, Committed, PutMessage
from turnwire.ports.store import FileIdentity, Follower, Publisher, StoredEvent
from turnwire.ports.telemetry.observer import BatchEnd, Observer
from turnwire.storage.accounts import Accounts, Delta, Ledger, TotalsMoved
from turnwire.storage.cache import SessionCache
from turnwire.storage.sql.accounts import add_to_totals
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.engine import SqlEngine, last_position
from turnwire.storage.units import CommitWriter, Spoiled, Transaction

log = structlog.get_logger()

MAX_BATCH = 512
"""Maximum commits in one transaction: bounds how long the first of them waits for the last."""

MAX_BATCH_BYTES = 16 * 2**20
"""Maximum size of a transaction: frames of events and words for the index, which it holds until its end, `PART_BYTES`
for each part of its messages, and `Other.size_bytes`. The commit that exceeds it is the last one; hundreds of answers
may end together."""

BATCH_SECONDS = 0.1
"""Maximum time of the work in a transaction, before the wait for the disk. The commit that exceeds it is the last one;
later ones wait for it."""

PART_BYTES = 1024
"""Size charged for the write of a part, whatever its text."""

RETRY_SECONDS = 1.0
"""Interval between attempts to write to a disk that rejected the last transaction, while callers check if it is
writable."""

STOP_SECONDS = 4.0
"""Maximum time in which a stop stores what waits; the next start ends what is left, as after a kill. Hundreds of
answers that end together may have hundreds of thousands of parts."""

T = TypeVar("T")


@dataclass(frozen=True)
class Other(Generic[T]):
    """A unit of work in no session."""

    apply: Callable[[Database, Ledger], T]
    """Called inside the transaction, on the writer's thread. Notes what it changes in the accounts."""
    size_bytes: int = 0
    """Number of bytes that it writes, if that is much."""
    is_step: bool = False
    """Whether it is the server's own work, for which no caller waits: it is not reported."""


Unit = Commit | Other[Any]

Outcome = Any
"""Result of one unit, `Committed` for a commit, or its exception. An exception that is no DomainError is a bug and
reaches the caller unchanged."""

Waiting = tuple[Unit, asyncio.Future[Any], float]
"""A unit, its future, and the time of its call by the loop's clock."""


class _Written(NamedTuple):
    """The result of a transaction: its first units are stored, one for each outcome."""

    outcomes: list[Outcome]
    events: list[StoredEvent]
    deltas: list[Delta]
    is_change: bool = False
    """Whether anything was written: a transaction without changes passes on a full disk."""


class Keeper(Protocol):
    """The keeper of the database: files, or a server. `loss` and `refusal` are called on the writer's thread."""

    def loss(self) -> StorageError | None:
        """Returns why nothing can be kept any more, whatever the database says; checked around each COMMIT."""
        ...

    def refusal(self, db: Database, error: Exception) -> tuple[DomainError, StorageError | None]:
        """Returns why a transaction failed for all of its units, and why nothing can be kept any more."""
        ...

    def warnings(self) -> Mapping[str, Mapping[str, object]]:
        """Returns the warnings for the operator: events of the log with their facts."""
        ...

    def own_files(self) -> frozenset[FileIdentity]:
        """Returns the files of the database that are on this machine."""
        ...

    def close(self) -> None:
        """Releases the database for another server. Called once all connections are closed."""
        ...


class NoFiles:
    """The keeper of a database without files on this machine."""

    def loss(self) -> StorageError | None:
        """Returns None: the database keeps what it has committed."""
        return None

    def warnings(self) -> Mapping[str, Mapping[str, object]]:
        """Returns nothing."""
        return {}

    def own_files(self) -> frozenset[FileIdentity]:
        """Returns nothing."""
        return frozenset()

    def close(self) -> None:
        """Does nothing: a lock ends with its connection."""


class GroupWriter:
    """Owns the writing connection's transactions.

    `_waiting` is filled by `commit` and drained by the one task that `start` creates; both run on the event loop, so no
    lock is needed. Its length is bounded by the calls in flight. `aclose` ends the task.
    """

    def __init__(
        self,
        connection: Connection[Database],
        keeper: Keeper,
        changes: CommitWriter,
        sessions: SessionCache,
        accounts: Accounts,
        *,
        publish: Publisher,
        on_loss: Callable[[StorageError], None],
        observer: Observer,
    ) -> None:
        """Takes the connection to write on, which the caller closes after `aclose`; see `open` of the stores."""
        self._keeper = keeper
        self._on_loss = on_loss
        self._loss: StorageError | None = None  # set once, on the writer's thread; read between its batches
        self._is_loss_reported = False
        self._sessions = sessions
        self._accounts = accounts
        self.connection = self._connection = connection
        """The writing connection."""
        self._changes = changes
        self._publish = publish
        self.owns: Callable[[str], bool] = _everything
        """Returns whether this server may write to a session. A commit that comes while it may not is never stored: it
        may have been decided on what another server has changed since."""
        self.followers: list[Follower] = []
        """Called for each commit that is durable, before its events are published."""
        self._observer = observer
        self._waiting = deque[Waiting]()
        self._wake = asyncio.Event()
        self._batch: asyncio.Future[None] | None = None  # done when the current batch is published
        self._published_to: frozenset[str] = frozenset()  # the sessions with events in the current batch
        self._closing = self._is_refusing = False
        self._is_refused = False  # whether the last transaction could not be written
        self._next_try = 0.0  # by the loop's clock
        self.published_position = 0
        """Position of the newest event that was published; of the newest in the log when none was yet."""
        self._start_position = 0
        self._next_position = 0  # of the next event; changed on the writer's thread, when a transaction is durable
        self._numbers: Iterator[int] = iter(())  # of new rows; those that a rollback has used are not used again
        self._published: dict[str, int] = {}  # newest position of each tenant with events in this run
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reads the end of the log and starts the writing task."""
        self._start_position = self.published_position = await self._connection.run(last_position)
        self._next_position = 1 + self.published_position
        self._numbers = await self._connection.run(lambda db: db.numbers())
        self._task = asyncio.create_task(self._write_batches(), name="storage writer")

    def note_position(self, position: int) -> None:
        """Notes the newest position stored by other servers, some of whose sessions this server owns from now on."""
        self._start_position = max(self._start_position, position)

    def begin_anew(self, position: int) -> None:
        """Continues in another history, whose newest position this is."""
        self._start_position = self.published_position = position
        self._published.clear()

    def commit(self, commit: Commit) -> asyncio.Future[Committed]:
        """Stores one unit of work; see `Store.commit`."""
        return self._enqueue(commit)

    def carry_out(self, work: Other[T]) -> asyncio.Future[T]:
        """Stores work that belongs to no session; the future has what it returned, or its error, as for `commit`."""
        return self._enqueue(work)

    def _enqueue(self, unit: Unit) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self._closing:
            future.set_exception(ShuttingDown())
            return future
        if isinstance(unit, Commit) and not self.owns(unit.session_id):
            future.set_exception(SessionMoving())
            return future
        self._waiting.append((unit, future, loop.time()))
        self._wake.set()
        return future

    def is_writable(self) -> bool:
        """Returns whether the last transaction was written. If not, retries once a second, so that later calls know."""
        now = asyncio.get_running_loop().time()
        if self._is_refused and now >= self._next_try and not self._waiting:
            self._next_try = now + RETRY_SECONDS
            self.carry_out(Other(_rewrite, is_step=True)).add_done_callback(asyncio.Future.exception)
        return not self._is_refused

    def published_of(self, tenant: str) -> int:
        """Returns the position of a tenant's newest event that was published; that of the start when none was yet."""
        return max(self._published.get(tenant, 0), self._start_position)

    async def published(self, session_id: str | None = None) -> None:
        """Returns when all events that a reader may have seen so far are published. Safe to cancel.

        A transaction without events is not awaited: growing text may take long to write, and no event reports it.

        Args:
            session_id: The session whose events the reader may have seen; None for all sessions.
        """
        sessions = self._published_to
        if self._batch is not None and (session_id in sessions if session_id is not None else sessions):
            await asyncio.shield(self._batch)

    def end_soon(self) -> None:
        """Stores what waits for `STOP_SECONDS` more; what waits then, and what comes later, fails with ShuttingDown.

        That is the newest work of each session, so the next start finds what it would find after a kill.
        """
        asyncio.get_running_loop().call_later(STOP_SECONDS, self._refuse)

    def _refuse(self) -> None:
        self._closing = self._is_refusing = True
        _fail(self._waiting, ShuttingDown())
        self._waiting.clear()

    async def aclose(self) -> None:
        """Writes the waiting commits, then ends the task. Idempotent."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task

    async def look(self) -> None:
        """Checks that the files are in place, between transactions; stores nothing more when one is not."""
        await self.connection.run(lambda _: self._look())
        self._tell_loss()

    def _look(self) -> None:
        if self._loss is None:
            self._loss = self._keeper.loss()

    def _tell_loss(self) -> None:
        if self._loss is not None and not self._is_loss_reported:
            self._is_loss_reported = True
            self._on_loss(self._loss)

    async def _write_batches(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
                self._published_to = frozenset(u.session_id for u, *_ in batch if isinstance(u, Commit) and u.events)
                self._batch = asyncio.get_running_loop().create_future()
                try:
                    await self._write_batch(batch)
                except Exception as error:  # else everything to be stored later would wait forever
                    self._lose(batch, error)
                self._batch.set_result(None)
                self._batch = None
                del batch  # perhaps megabytes, and the next one may be an hour away
                if self._is_refusing:
                    self._refuse()  # what did not fit in the batch
            if self._closing:
                return

    def _lose(self, batch: list[Waiting], error: Exception) -> None:
        """Stores nothing more: watchers may have missed what was stored, and callers do not learn of it."""
        log.error("commit_outcomes_unknown", exc_info=error)
        self._loss = self._loss or StorageError(f"the server could not determine what it had stored: {error!r}")
        self._tell_loss()
        _fail(batch, error)

    async def _write_batch(self, batch: list[Waiting]) -> None:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        try:
            written = await self._connection.run(self._transact, [unit for unit, *_ in batch])
        except Exception as error:  # the writer must outlive every failure: the whole server waits for it
            self._is_refused = True
            written = _Written([error] * len(batch), [], [])
        outcomes, stored, deltas, is_change = written
        if is_change:
            self._is_refused = False
        self._waiting.extendleft(reversed(batch[len(outcomes) :]))  # they did not fit, or there was no time
        del batch[len(outcomes) :]
        ended_at = loop.time()
        self._tell_loss()
        self._sessions.forget_changed([unit for unit, *_ in batch if isinstance(unit, Commit)])
        self._accounts.add(deltas)
        for (unit, *_), outcome in zip(batch, outcomes, strict=True):
            if isinstance(unit, Commit) and isinstance(outcome, Committed):
                for follower in self.followers:
                    follower(unit, outcome)
        if stored:
            self._publish(stored)
            self.published_position = stored[-1].event.position
            self._published.update((one.tenant, one.event.position) for one in stored)
        for (_, future, _), outcome in zip(batch, outcomes, strict=True):
            if future.done():  # its caller was cancelled
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        asked = [not (isinstance(unit, Other) and unit.is_step) for unit, *_ in batch]
        if not any(asked):
            return
        self._observer.batch_ended(
            BatchEnd(
                commits=sum(asked),
                failed=sum(
                    isinstance(one, Exception) and is_asked for one, is_asked in zip(outcomes, asked, strict=True)
                ),
                seconds=ended_at - started_at,
                longest_seconds=ended_at - min(called_at for *_, called_at in batch),
            )
        )

    def _transact(self, db: Database, units: list[Unit]) -> _Written:
        """Applies the units in one transaction, or the first ones if all are too large. Runs on the writer's thread.

        A unit that is rejected has written nothing. Rows that cannot be written are rare, so only a second attempt
        writes those of each unit by themselves, between savepoints.
        """
        if self._loss is not None:
            raise self._loss
        try:
            return self._try_both(db, units)
        except Exception as error:
            if not db.concerns_all(error):
                raise
            refusal, self._loss = self._keeper.refusal(db, error)
            raise refusal from error

    def _try_both(self, db: Database, units: list[Unit]) -> _Written:
        try:
            return self._try(db, units)
        except Spoiled as error:
            if error.__cause__ is not None and db.concerns_all(error.__cause__):
                raise error.__cause__ from None
        except Exception as error:
            if self._loss is not None or db.concerns_all(error):
                raise
        return self._try(db, units, alone=True)

    def _try(self, db: Database, units: list[Unit], *, alone: bool = False) -> _Written:
        while True:
            with contextlib.suppress(TotalsMoved):  # then it comes after what other servers have stored
                return self._try_once(db, units, alone=alone)

    def _try_once(self, db: Database, units: list[Unit], *, alone: bool) -> _Written:
        outcomes: list[Outcome] = []
        stored: list[StoredEvent] = []
        written_bytes, end = 0, time.perf_counter() + BATCH_SECONDS
        with db.transaction():
            first_position = db.first_position(self._next_position)
            transaction = Transaction(SqlEngine(db), self._numbers.__next__, first_position)
            if not alone:
                transaction.fetch(unit for unit in units if isinstance(unit, Commit))
            for unit in units:
                outcome, events = self._outcome(db, transaction, unit, alone=alone)
                outcomes.append(outcome)
                stored += events
                written_bytes += _written_bytes(unit)
                if written_bytes + transaction.size_bytes >= MAX_BATCH_BYTES or time.perf_counter() >= end:
                    break
            transaction.finish()
            ledger = transaction.ledger
            ledger.check_again(add_to_totals(db, ledger.deltas))  # last: who has a total waits for no other server
            is_change = db.has_changed()
            self._check_loss()
        self._check_loss()  # a commit written to a file that is now gone must not be confirmed
        self._next_position = transaction.next_position
        return _Written(outcomes, stored, ledger.deltas, is_change)

    def _check_loss(self) -> None:
        self._loss = self._keeper.loss()
        if self._loss is not None:
            raise self._loss

    def _outcome(
        self, db: Database, transaction: Transaction, unit: Unit, *, alone: bool
    ) -> tuple[Outcome, list[StoredEvent]]:
        """Applies a unit. If it is rejected, its effects are undone, and its error is the outcome."""
        position, deltas = transaction.next_position, len(transaction.ledger.deltas)
        try:
            result = self._apply(db, transaction, unit)
            if alone:
                transaction.written()
        except Spoiled:
            raise
        except Exception as error:
            if db.concerns_all(error):  # it concerns all units
                raise
            transaction.next_position = position
            del transaction.ledger.deltas[deltas:]
            transaction.undo()
            return db.translate(error) if isinstance(error, db.failures) else error, []
        transaction.keep()
        return result

    def _apply(self, db: Database, transaction: Transaction, unit: Unit) -> tuple[Outcome, list[StoredEvent]]:
        if isinstance(unit, Commit):
            if not db.owns(unit.session_id):
                raise SessionMoving
            return self._changes.apply(transaction, unit)
        transaction.written()
        try:
            return unit.apply(db, transaction.ledger), []
        finally:
            transaction.forget()


def _everything(_session_id: str) -> bool:
    return True


def _rewrite(db: Database, _ledger: Ledger) -> None:
    """Changes nothing, but makes the database write."""
    for change in (1, -1):  # SQLite leaves out what changes nothing
        db.run("UPDATE log_state SET pruned_through = pruned_through + ?", (change,))


def _fail(waiting: Iterable[Waiting], error: Exception) -> None:
    for _, future, _ in waiting:
        if not future.done():
            future.set_exception(error)


def _written_bytes(unit: Unit) -> int:
    """Returns the approximate bytes that a unit writes, besides its events and its words."""
    if isinstance(unit, Other):
        return unit.size_bytes
    return PART_BYTES * sum(len(one.message.parts) for one in unit.changes if isinstance(one, PutMessage))
