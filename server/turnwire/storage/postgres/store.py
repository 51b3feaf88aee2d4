"""The store in a PostgreSQL database. Opens it, and finds the outcome of a transaction whose COMMIT was not
answered.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Self, TypeVar, cast

import psycopg
import structlog

from turnwire.domain.errors import DomainError, OutcomeUnknown, StorageBusy, StorageError
from turnwire.event_loop.tasks import end
from turnwire.ports.clock import Clock
from turnwire.ports.codec import Codec
from turnwire.ports.store import Publisher, Watched
from turnwire.ports.telemetry.observer import Observer
from turnwire.storage.accounts import Delta
from turnwire.storage.postgres.connection import PostgresDatabase, opened, translate
from turnwire.storage.postgres.nodes import BEAT, NodeDatabase, NodeKeeper, NodeReader, PostgresLocks
from turnwire.storage.postgres.schema import migrate
from turnwire.storage.postgres.writing_database import Replaced, WritingDatabase
from turnwire.storage.sql.accounts import stored_accounts
from turnwire.storage.sql.connection import Connection, IdleWork
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.engine import last_position
from turnwire.storage.sql.removal import give_up_imports
from turnwire.storage.sql.store import READERS, RetentionSettings, SqlStore, Surroundings
from turnwire.storage.sql.timelines import Timelines
from turnwire.storage.sql.turns import busy_sessions
from turnwire.storage.sql.words import adopt_words
from turnwire.storage.sql.writer import NoFiles

RESOLVE_SECONDS = 10.0
"""Maximum time in which the writer looks for the outcome of a transaction without an answer, while all commits wait."""

RESOLVE_PAUSE_SECONDS = 0.2
"""Time between two attempts to connect meanwhile."""


ACCOUNTS_SECONDS = 1.0
"""Minimum time between two reads of what other nodes have added to the accounts of tenants."""

ACCOUNTS_SHARE = 50.0
"""Minimum time between two such reads, as a multiple of the duration of the last one."""

D = TypeVar("D", bound=PostgresDatabase)

log = structlog.get_logger()


class PostgresSettings(RetentionSettings, frozen=True, kw_only=True):
    """Settings of the store."""

    url: str
    """The address of the database, in the form that libpq takes."""
    node: str | None = None
    """The address where other servers reach this one; None for a server that uses the database alone."""


class PostgresKeeper(NoFiles):
    """The PostgreSQL server. Implements `turnwire.storage.sql.writer.Keeper`; see there."""

    def refusal(self, db: Database, error: Exception) -> tuple[DomainError, StorageError | None]:
        """Returns why the server rejected a transaction. For one without an answer, finds out whether it is stored."""
        refusal = db.translate(error)
        if isinstance(error, Replaced):
            return refusal, StorageError(f"{error}; the server stops, because its memory differs from the database")
        if not isinstance(db, WritingDatabase) or db.pending is None:
            return refusal, None
        ends_at = time.monotonic() + RESOLVE_SECONDS
        while time.monotonic() < ends_at:
            try:
                is_aborted = db.is_aborted()
            except Replaced:
                break
            except psycopg.Error:
                time.sleep(RESOLVE_PAUSE_SECONDS)
                continue
            db.pending = None
            if is_aborted:
                return refusal, None
            break
        # the memory of this process differs from the database, so the next start has to read it
        return OutcomeUnknown(), StorageError("the connection to the database was lost in a COMMIT; the server stops")


class PostgresStore(SqlStore):
    """Implements `ports.store.Store` in a PostgreSQL database."""

    _renewing: "asyncio.Task[None] | None" = None

    @classmethod
    async def open(
        cls,
        settings: PostgresSettings,
        codec: Codec,
        publish: Publisher,
        on_loss: Callable[[StorageError], None] = lambda _: None,
        observer: Observer = Observer(),  # noqa: B008 - has no state
        *,
        is_watched: Watched = lambda *_: True,
        clock: Clock | None = None,
    ) -> Self:
        """Connects, creates the tables if needed, and migrates them to the newest schema. Close with `aclose`.

        `Surroundings` describes the arguments.

        Raises:
            StorageBusy: another server uses the database, or it cannot be reached.
            StorageSchemaTooNew: a newer version of Turnwire has written it.
            StorageCorrupt: it is damaged, or has other tables.
            StorageError: it cannot be opened.
        """
        surroundings = Surroundings(codec, publish, on_loss, observer, is_watched, clock)
        connections: list[Connection[PostgresDatabase]] = []
        kind = PostgresDatabase if settings.node is None else NodeReader

        async def another() -> Connection[PostgresDatabase]:
            return await Connection.open(partial(opened, settings.url, read_only=True, kind=kind), is_reader=True)

        try:
            connections.append(await _writing(settings))
            await connections[0].run(_bring_up_to_date)
            for _ in range(READERS):
                connections.append(await another())
            keeper = PostgresKeeper() if settings.node is None else NodeKeeper()
            store = await cls(keeper, connections, another, settings, surroundings).begin()
            await connections[0].run(_begin)
        except BaseException:
            for connection in connections:
                await connection.close()
            raise
        return store

    async def locks(self) -> PostgresLocks:
        """Returns the locks of this node, without which it cannot write to sessions. Call it once."""
        writing = cast(Connection[NodeDatabase], self._writing)
        db = await writing.run(lambda db: db)
        locks = PostgresLocks(writing, db, self._writer.note_position, self._housekeeping.wake, self._begin_history)
        self._writer.owns = locks.owns
        self._renewing = asyncio.create_task(self._renew_accounts(), name="accounts of all nodes")
        return locks

    async def busy_sessions(self, session_ids: Sequence[str]) -> frozenset[str]:
        """Returns those of some sessions, on any node, that have a turn that has not ended."""
        return await self._reading.run(busy_sessions, session_ids)

    async def aclose(self) -> None:
        """Closes the connections."""
        await end([self._renewing])
        await super().aclose()

    async def _renew_accounts(self) -> None:
        """Reads repeatedly what other nodes add to the accounts. There may be many tenants."""
        while True:
            began = time.monotonic()
            with contextlib.suppress(StorageError):  # the connection is lost: another one is opened soon
                # on the writer's thread, so that each commit is added either before or after it
                self._reads.accounts.renew(*await self._writing.run(_accounts_of_all))
            await asyncio.sleep(max(ACCOUNTS_SECONDS, ACCOUNTS_SHARE * (time.monotonic() - began)))

    async def _begin_history(self) -> None:
        """Continues with the present state of the database, which may have lost commits."""
        before, position = self._timelines.current, await self._writing.run(last_position)
        self._timelines = await self._writing.run(Timelines.begin, position)
        if self._timelines.current != before:
            lost = self._writer.published_position > position  # more may be lost of what others have stored
            log.warning("history_begun", position=position, commits_lost=lost)
            self._writer.begin_anew(position)


async def _writing(settings: PostgresSettings) -> Connection[PostgresDatabase]:
    if settings.node is None:
        return await Connection.open(partial(writing, settings.url), is_reader=False)
    opening = partial(NodeDatabase, settings.url, settings.node)
    beats = IdleWork(BEAT.total_seconds(), NodeDatabase.beat)
    return await Connection.open(partial(_opened, opening), is_reader=False, idle=beats)


def writing(url: str) -> PostgresDatabase:
    """Opens the connection of a server that writes alone, with its lock.

    Raises:
        StorageBusy: another server has the lock, or the database cannot be reached.
        StorageError: it rejects the connection.
    """
    return _opened(partial(WritingDatabase, url))


def _opened(open_: Callable[[], D]) -> D:
    try:
        return open_()
    except psycopg.errors.ObjectInUse as error:
        raise StorageBusy(f"the database is in use by {error}") from error
    except psycopg.Error as error:
        raise translate(error) from error


def _begin(db: PostgresDatabase) -> None:
    assert isinstance(db, WritingDatabase)
    db.begin()


def _accounts_of_all(db: Database) -> tuple[Iterable[Delta], Mapping[str, tuple[int, int]]]:
    assert isinstance(db, NodeDatabase)
    return stored_accounts(db), db.work_elsewhere()


def _bring_up_to_date(db: PostgresDatabase) -> None:
    migrate(db)
    if isinstance(db, NodeDatabase):
        db.join()
        db.claim_address()
    else:  # nodes remove the imports of a shard when they take it
        give_up_imports(db)
    adopt_words(db)
