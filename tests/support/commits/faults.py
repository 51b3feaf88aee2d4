"""A server's store that fails at a commit, or is copied after each one as a kill would leave it.

What counts is what callers and turns have stored, in the order in which they asked for it: commits of sessions and
changes of uploads. The store's own housekeeping does not count, nor does the look for uploads that have expired.
"""

import contextlib
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from turnwire.app import Server
from turnwire.core.turns.registry import TurnCounts
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.storage.accounts import Accounts
from turnwire.storage.sql import uploads as rows
from turnwire.storage.sql.accounts import stored_accounts
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.writer import Other, Unit
from turnwire.storage.sqlite.database import SqliteDatabase
from turnwire.storage.units import Transaction

DATABASE = "turnwire.db"


def counts(unit: Unit) -> bool:
    """Returns whether a unit of work is counted."""
    if not isinstance(unit, Other):
        return True
    return not unit.is_step and not (isinstance(unit.apply, partial) and unit.apply.func is rows.remove_expired)


def database_full() -> sqlite3.OperationalError:
    """Returns what SQLite raises when the disk is full."""
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    error.sqlite_errorname = "SQLITE_FULL"
    return error


class Faults:
    """Faults in the commits of one server. Its methods are called on the event loop.

    A commit that fails does so on the writer's thread, after all of it was written and before its transaction ends, by
    the error that SQLite raises on a full disk: the transaction is rolled back, and with it all that shares it.

    A kill after a commit is a copy of the database, made on the writer's thread by SQLite's backup when the transaction
    has ended and before the event loop hears of it: nothing was published, no future is done, and no later commit is
    stored. So that there is such a moment after each commit, each one has a transaction of its own while copies are
    made; commits that share one differ from that in that some of these moments do not exist.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        assert server._store is not None
        self._writer = writer = server._store._writer
        self._enqueue, self._apply, self._transact = writer._enqueue, writer._apply, writer._transact
        self._number = 0
        self._fails: Callable[[int], bool] = lambda _: False
        self._failing: list[Unit] = []
        self.failed = 0
        """Number of commits that have failed."""
        self.durable = 0
        """Number of commits stored since `copy_each`; grows before anybody can hear of one."""
        self._copies: Path | None = None
        writer._enqueue, writer._apply, writer._transact = self._note, self._apply_or_fail, self._transact_and_copy  # type: ignore[method-assign]

    def counted(self) -> dict[str, Any]:
        """Returns what the server counts; see there."""
        return counted(self._server)

    def fail(self, first: int, count: int) -> None:
        """Lets commits fail from now on: so many in a row, of which the first has a number, counted from 1."""
        self._number, self.failed = 0, 0
        self._fails = lambda number: first <= number < first + count

    def heal(self) -> None:
        """Lets no further commit fail."""
        self._fails = lambda _: False
        self._failing.clear()

    def copy_each(self, folder: Path) -> None:
        """Copies the database as it is now, and after each further commit, to a folder `folder/NUMBER`."""
        self.durable, self._copies = 0, folder
        with contextlib.closing(sqlite3.connect(self._writer._keeper.files.beside(""))) as db:
            self._copy(db)

    def copy_no_more(self) -> None:
        """Ends what `copy_each` has begun."""
        self._copies = None

    def _note(self, unit: Unit) -> Any:
        if counts(unit):
            self._number += 1
            if self._fails(self._number):
                self._failing.append(unit)
        return self._enqueue(unit)

    def _apply_or_fail(self, db: Database, transaction: Transaction, unit: Unit) -> Any:
        applied = self._apply(db, transaction, unit)
        if any(one is unit for one in self._failing):
            self.failed += 1
            raise database_full()
        return applied

    def _transact_and_copy(self, db: sqlite3.Connection, units: list[Unit]) -> Any:
        if self._copies is None:
            return self._transact(db, units)
        written = self._transact(db, units[:1])  # the others wait for their own transactions
        if counts(units[0]) and not isinstance(written.outcomes[0], Exception):
            self.durable += 1
            self._copy(db)
        return written

    def _copy(self, db: sqlite3.Connection) -> None:
        assert self._copies is not None
        target = self._copies / str(self.durable)
        target.mkdir(parents=True)
        with contextlib.closing(sqlite3.connect(target / DATABASE)) as copy:
            db.backup(copy)


def counted(server: Server) -> dict[str, Any]:
    """Returns what a server counts of what runs and waits, and the account of its tenant."""
    environment, turns, store = server._environment, server._turns, server._store
    assert environment is not None
    assert turns is not None
    assert store is not None
    return {
        "turns": turns.counts(),
        "owners": len(turns._owners),
        "answers whose calls wait": dict(environment.waiting_calls._turns),
        "bytes of their results": environment.waiting_calls.bytes,
        "permission requests": environment.permissions.total(),
        "questions": environment.open_questions.total(),
        "bytes of prompts": environment.prompts.in_use,
        "bytes of messages that are read": environment.reads.in_use,
        "account": store.of(DEFAULT_TENANT).account(environment.clock()),
    }


def counted_at_rest(server: Server) -> dict[str, Any]:
    """Returns what `counted` has to be when no turn runs or waits, with the account as it is stored."""
    assert server._environment is not None
    assert server._store is not None
    with contextlib.closing(sqlite3.connect(server._store._keeper.files.beside(""), factory=SqliteDatabase)) as db:
        stored = Accounts(stored_accounts(db)).account(DEFAULT_TENANT, server._environment.clock())
    nothing: dict[str, Any] = {"answers whose calls wait": {}, "turns": TurnCounts(0, 0, 0)}
    zeros = dict.fromkeys(counted(server), 0)
    return {**zeros, **nothing, "account": stored}


def short_pauses(patch: pytest.MonkeyPatch) -> None:
    """Lets the server try again at once where it waits before it stores something once more."""
    patch.setattr("turnwire.core.turns.session.RETRY_SECONDS", (0.002,) * 4)
    patch.setattr("turnwire.core.actor.RETRY_SECONDS", 0.002)
