"""The store in a PostgreSQL database: opens it, and finds out what became of a transaction whose end was not heard."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Self

import psycopg

from turnwire.domain.errors import DomainError, OutcomeUnknown, StorageBusy, StorageError
from turnwire.ports.clock import Clock
from turnwire.ports.codec import Codec
from turnwire.ports.store import FileIdentity, Publisher, Watched
from turnwire.ports.telemetry.observer import Observer
from turnwire.storage.postgres.connection import PostgresDatabase, opened, translate
from turnwire.storage.postgres.schema import migrate
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.removal import give_up_imports
from turnwire.storage.sql.store import READERS, RetentionSettings, SqlStore, Surroundings
from turnwire.storage.sql.words import adopt_words

_LOCK = 0x7457_6973
"""Held by the writing connection of a server: one server writes to a database."""

LOCK_SECONDS = 2.0
"""How long a server waits for the lock: PostgreSQL ends a connection some time after its client has closed it."""

LOCK_PAUSE_SECONDS = 0.05
"""Between two attempts to get the lock."""

RESOLVE_SECONDS = 10.0
"""How long the writer looks for the outcome of a transaction whose end it did not hear, while all commits wait."""

RESOLVE_PAUSE_SECONDS = 0.2
"""Between two attempts to connect meanwhile."""


class PostgresSettings(RetentionSettings, frozen=True, kw_only=True):
    """Settings of the store."""

    url: str
    """The address of the database, as libpq takes it."""


class WritingDatabase(PostgresDatabase):
    """The connection that writes. It holds the lock of the server, and knows which transaction it has not ended.

    While the connection lives no other server can hold the lock, so no other one writes.
    """

    def __init__(self, url: str) -> None:
        """Connects and takes the lock. Raises an error of psycopg."""
        super().__init__(url, read_only=False)
        self.pending: str | None = None
        """The transaction whose end was not heard."""
        self._timeline: int | None = None
        """The newest timeline, once it is this server's."""
        self._lock()

    def remember(self) -> None:
        """Remembers that the newest timeline is this server's: another server would begin another one."""
        self._timeline = self._newest_timeline()

    def renew(self) -> None:
        """Connects again and takes the lock again, if no other server has had it meanwhile."""
        super().renew()
        self._lock()
        if self._timeline is not None and self._newest_timeline() != self._timeline:
            self.connection.close()
            raise psycopg.OperationalError("another server has written to the database")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Begins a transaction that writes."""
        with super().transaction():
            [(self.pending,)] = self.rows("SELECT CAST(pg_current_xact_id() AS text)")
            try:
                yield
            except BaseException:
                self.pending = None  # it will not be committed
                raise
        self.pending = None

    def is_aborted(self) -> bool:
        """Connects again, and returns whether nothing is stored of the transaction whose end was not heard."""
        self.renew()
        return self.row("SELECT pg_xact_status(CAST(? AS xid8))", (self.pending,)) == ("aborted",)

    def _lock(self) -> None:
        ends_at = time.monotonic() + LOCK_SECONDS
        while self.row("SELECT pg_try_advisory_lock(?)", (_LOCK,)) != (True,):
            if time.monotonic() >= ends_at:
                self.connection.close()
                raise psycopg.errors.ObjectInUse("another server has the database")
            time.sleep(LOCK_PAUSE_SECONDS)

    def _newest_timeline(self) -> int | None:
        row = self.row("SELECT max(id) FROM timelines")
        return None if row is None else row[0]


class PostgresKeeper:
    """The server of PostgreSQL. Implements `turnwire.storage.sql.writer.Keeper`; see there."""

    def loss(self) -> StorageError | None:
        """Returns None: what the database has committed, it keeps."""
        return None

    def refusal(self, db: Database, error: Exception) -> tuple[DomainError, StorageError | None]:
        """Returns what the server has against a transaction. Of a lost one, finds out whether it is stored."""
        refusal = db.translate(error)
        if not isinstance(db, WritingDatabase) or db.pending is None:
            return refusal, None
        ends_at = time.monotonic() + RESOLVE_SECONDS
        while time.monotonic() < ends_at:
            with contextlib.suppress(psycopg.Error):
                is_aborted = db.is_aborted()
                db.pending = None
                if is_aborted:
                    return refusal, None
                break
            time.sleep(RESOLVE_PAUSE_SECONDS)
        # what this process remembers is not what is stored, so the next start has to read it
        return OutcomeUnknown(), StorageError("the connection to the database was lost in a COMMIT; the server stops")

    def warnings(self) -> Mapping[str, Mapping[str, object]]:
        """Returns nothing."""
        return {}

    def own_files(self) -> frozenset[FileIdentity]:
        """Returns nothing: the files are the server's."""
        return frozenset()

    def close(self) -> None:
        """Does nothing: the lock went with its connection."""


class PostgresStore(SqlStore):
    """Implements `ports.store.Store` in a database of PostgreSQL."""

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
        """Connects, makes the tables if needed, and migrates them to the newest schema. Close with `aclose`.

        Args:
            settings: Where the database is.
            codec: Writes events and display messages.
            publish: Called with the events that were committed.
            on_loss: Called once, on the event loop, when it cannot be found out whether something is stored. Nothing
                can be stored from then on; the next start reads what is.
            observer: Receives a report of each transaction.
            is_watched: Says which sessions need frames of their events at once.
            clock: The time now, for the age of events; None is the real one.

        Raises:
            StorageBusy: another server has the database, or it cannot be reached.
            StorageSchemaTooNew: a newer version of Turnwire has written it.
            StorageCorrupt: it is damaged, or has other tables.
            StorageError: it cannot be opened.
        """
        surroundings = Surroundings(codec, publish, on_loss, observer, is_watched, clock)
        connections: list[Connection[PostgresDatabase]] = []

        async def another() -> Connection[PostgresDatabase]:
            return await Connection.open(partial(opened, settings.url, read_only=True), is_reader=True)

        try:
            connections.append(await Connection.open(partial(writing, settings.url), is_reader=False))
            await connections[0].run(_bring_up_to_date)
            for _ in range(READERS):
                connections.append(await another())
            store = await cls.begun(PostgresKeeper(), connections, another, settings, surroundings)
        except BaseException:
            for connection in connections:
                await connection.close()
            raise
        await store._writing.run(_remember)
        return store


def writing(url: str) -> PostgresDatabase:
    """Opens the connection of a server, with its lock.

    Raises:
        StorageBusy: another server has the lock, or the database cannot be reached.
        StorageError: it refuses the connection.
    """
    try:
        return WritingDatabase(url)
    except psycopg.errors.ObjectInUse as error:
        raise StorageBusy("the database is in use by another server") from error
    except psycopg.Error as error:
        raise translate(error) from error


def _remember(db: Database) -> None:
    if isinstance(db, WritingDatabase):
        db.remember()


def _bring_up_to_date(db: PostgresDatabase) -> None:
    migrate(db)
    give_up_imports(db)
    adopt_words(db)
