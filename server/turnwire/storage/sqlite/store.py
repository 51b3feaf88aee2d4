"""The store in one SQLite file: opens it, and hands each call to the writer or the reader."""

from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from msgspec import Struct

from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import StorageError
from turnwire.domain.principal import Principal
from turnwire.ports.clock import Clock
from turnwire.ports.codec import Codec
from turnwire.ports.commit import Commit, Committed, RemoveSession
from turnwire.ports.store import (
    FileIdentity,
    Follower,
    Moment,
    Publisher,
    Standing,
    StoredRequest,
    Watched,
)
from turnwire.ports.telemetry.observer import Observer
from turnwire.storage.accounts import Accounts, Delta
from turnwire.storage.cache import SessionCache
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.displays import DisplayForms
from turnwire.storage.sql.messages import turn_messages
from turnwire.storage.sql.searching import Searches
from turnwire.storage.sql.sessions import request
from turnwire.storage.sql.tenant_reads import Reads, TenantReads
from turnwire.storage.sql.turns import unfinished_turns
from turnwire.storage.sql.words import adopt_words, renew_some
from turnwire.storage.sqlite.accounts import stored_accounts
from turnwire.storage.sqlite.care.damaged_log import refuse_damaged_log
from turnwire.storage.sqlite.care.shrinking import shrink_some
from turnwire.storage.sqlite.connection import ProcessLock, empty_log, opened
from turnwire.storage.sqlite.database import SqliteDatabase
from turnwire.storage.sqlite.files import DatabaseFiles
from turnwire.storage.sqlite.housekeeping import Housekeeping, stored
from turnwire.storage.sqlite.log.retention import Retention
from turnwire.storage.sqlite.removal import Removal, give_up_imports
from turnwire.storage.sqlite.schema import migrate
from turnwire.storage.sqlite.timelines import Timelines, token_key
from turnwire.storage.sqlite.uploads.store import SqliteUploads, remove_some
from turnwire.storage.sqlite.writing.writer import GroupWriter
from turnwire.storage.units import CommitWriter

P = ParamSpec("P")
T = TypeVar("T")


class StorageSettings(Struct, frozen=True, kw_only=True):
    """Settings of the store."""

    path: Path
    """The database file; its folder must exist."""
    retained_events_per_session: int = 10_000
    """How many of its newest events a session keeps for watchers that reconnect."""
    retained_events_days: int = 30
    """How many days events are kept, whatever their number."""


class SqliteStore:
    """Implements `ports.store.Store`; see there for every method.

    There is one reading connection because several reading threads would take the interpreter from the writing thread.
    One more is for reads that may take long, and one for searches alone, which may take longer.
    """

    def __init__(  # noqa: PLR0917 - the parts, which `open` makes
        self,
        files: DatabaseFiles,
        lock: ProcessLock,
        connections: Sequence[Connection[SqliteDatabase]],
        housekeeping: Housekeeping,
        reads: Reads,
        writer: GroupWriter,
        *,
        removal: Removal,
        uploads: SqliteUploads,
        timelines: Timelines,
        token_key: bytes,
    ) -> None:
        """Use `open`."""
        self._removal = removal
        self._files = files
        self._lock = lock
        self._connections = connections  # the writing one first
        self._writing = connections[0]
        self._housekeeping = housekeeping
        self._reading = reads.connection
        self._reads = reads
        self._writer = writer
        self._timelines = timelines
        self.uploads = uploads
        self._token_key = token_key
        self._closed = False

    @classmethod
    async def open(
        cls,
        settings: StorageSettings,
        codec: Codec,
        publish: Publisher,
        on_loss: Callable[[StorageError], None] = lambda _: None,
        observer: Observer = Observer(),  # noqa: B008 - has no state
        *,
        is_watched: Watched = lambda *_: True,
        clock: Clock | None = None,
    ) -> "SqliteStore":
        """Opens the file, creates it if needed, and migrates it to the newest schema. Close with `aclose`.

        Args:
            settings: Where the file is.
            codec: Writes events and display messages.
            publish: Called with the events that were committed.
            on_loss: Called once, on the event loop, when a file of the database was deleted or replaced. Nothing can be
                stored from then on; closing saves what can be saved.
            observer: Receives a report of each transaction.
            is_watched: Says which sessions need frames of their events at once.
            clock: The time now, for the age of events; None is the real one.

        Raises:
            StorageBusy: another server has the file open.
            StorageSchemaTooNew: a newer version of Turnwire has written it.
            StorageCorrupt: it is damaged or not a database.
            StorageError: it cannot be opened.
        """
        files, lock = _locked(settings.path)
        connections: list[Connection[SqliteDatabase]] = []
        try:
            connections.append(writing := await _connection(settings.path, is_reader=False))
            await writing.run(_bring_up_to_date)
            for _ in range(3):
                connections.append(await _connection(settings.path, is_reader=True))
            reading, long, searching = connections[1:]
            files.remember()
            accounts = Accounts(await writing.run(stored_accounts))
            sessions, changes = SessionCache(), CommitWriter(codec, settings.retained_events_per_session, is_watched)
            writer = GroupWriter(
                writing, files, changes, sessions, accounts, publish=publish, on_loss=on_loss, observer=observer
            )
            await writer.start()
            timelines = await writing.run(Timelines.begin, writer.published_position)
            key = await writing.run(token_key)
        except BaseException:
            for connection in connections:
                await connection.close()
            files.close()
            lock.release()
            raise
        removal = Removal(writer, reading)
        housekeeping = _housekeeping(settings, writer, removal, clock)
        housekeeping.start()
        another = partial(_connection, settings.path, is_reader=True)
        uploads, searches = SqliteUploads(writer, reading, housekeeping.wake), Searches(searching)
        reads = Reads(reading, long, writer, sessions, accounts, searches, codec, DisplayForms(codec), another)
        return cls(
            files,
            lock,
            connections,
            housekeeping,
            reads,
            writer,
            removal=removal,
            uploads=uploads,
            timelines=timelines,
            token_key=key,
        )

    def commit(self, commit: Commit) -> Future[Committed]:
        """Stores one unit of work."""
        storing = self._writer.commit(commit)
        if any(isinstance(change, RemoveSession) for change in commit.changes):
            storing.add_done_callback(lambda _: self._housekeeping.wake())
        return storing

    def follow(self, follower: Follower) -> None:
        """Calls a function for each further commit."""
        self._writer.followers.append(follower)

    def of(self, tenant: str) -> TenantReads:
        """Returns the reads of what a tenant has."""
        return TenantReads(self._reads, tenant)

    async def removals(self) -> None:
        """Returns when nothing is left of the sessions that were removed before."""
        await self._removal.settled()

    async def unfinished_turns(self) -> tuple[Turn, ...]:
        """Returns headers of the turns that have not ended."""
        return await self._reading.run(unfinished_turns)

    async def turn_messages(self, turn_id: str) -> tuple[Message, ...]:
        """Returns the messages of a turn."""
        return await self._reading.run(turn_messages, turn_id)

    async def request(self, principal: Principal, request_id: str) -> StoredRequest | None:
        """Returns the remembered answer to a request."""
        return await self._reading.run(request, principal, request_id)

    @property
    def token_key(self) -> bytes:
        """The key of this database."""
        return self._token_key

    def moment(self, tenant: str) -> Moment:
        """Returns the moment of the tenant's newest event; that of the start when it had none in this run."""
        return Moment(self._timelines.current, self._writer.published_of(tenant))

    async def moment_after_reads(self, tenant: str, session_id: str) -> Moment:
        """Returns a moment that no read of the session was after."""
        await self._writer.published(session_id)
        return self.moment(tenant)

    def standing(self, moment: Moment) -> Standing:
        """Returns what a moment is to the log."""
        return self._timelines.standing(moment)

    def warnings(self) -> Mapping[str, Mapping[str, object]]:
        """Returns what an operator should know of the files: events of the log with their facts."""
        found: dict[str, Mapping[str, object]] = {}
        if modes := self._files.open_to_others():
            found["database_open_to_others"] = {"files": [f"{mode:04o} {path}" for path, mode in modes.items()]}
        if (names := self._files.names()) > 1:
            found["database_has_other_names"] = {"path": str(self._files.beside("")), "names": names}
        return found

    def is_writable(self) -> bool:
        """Returns whether the last transaction was written. If not, tries once a second, so that later calls know."""
        return self._writer.is_writable()

    def own_files(self) -> frozenset[FileIdentity]:
        """Returns the database and the files beside it."""
        return self._files.identities()

    def end_soon(self) -> None:
        """Bounds how long a stop waits for what is to be stored; see `GroupWriter.end_soon`."""
        self._writer.end_soon()

    async def aclose(self) -> None:
        """Closes the database; see `Store.aclose`."""
        if self._closed:
            return
        self._closed = True
        await self._housekeeping.aclose()
        await self._writer.aclose()
        for connection in reversed(self._connections):
            await connection.close()
        self._files.close()
        self._lock.release()


async def _connection(path: Path, *, is_reader: bool) -> Connection[SqliteDatabase]:
    return await Connection.open(partial(opened, path, read_only=is_reader), is_reader=is_reader)


def _locked(path: Path) -> tuple[DatabaseFiles, ProcessLock]:
    files = DatabaseFiles(path)
    lock = ProcessLock(files)
    lock.acquire(create=True)
    try:
        refuse_damaged_log(files.beside(""))
    except BaseException:
        lock.release()
        raise
    return files, lock


def _housekeeping(
    settings: StorageSettings, writer: GroupWriter, removal: Removal, clock: Clock | None
) -> Housekeeping:
    age = timedelta(days=settings.retained_events_days)
    retention = Retention(settings.retained_events_per_session, age, clock)
    steps = (retention.step, *map(_uncounted, _UNCOUNTED))
    return Housekeeping(writer, (*(stored(writer, step) for step in steps), removal.step))


_UNCOUNTED: tuple[Callable[[SqliteDatabase], bool], ...] = (renew_some, remove_some, shrink_some)
"""Steps that change nothing in the accounts."""


def _uncounted(step: Callable[[SqliteDatabase], bool]) -> Callable[[SqliteDatabase, list[Delta]], bool]:
    return lambda db, _: step(db)


def _bring_up_to_date(db: SqliteDatabase) -> None:
    """Makes the file one of this version."""
    migrate(db)
    empty_log(db)
    give_up_imports(db)
    adopt_words(db)
