"""The store in one SQLite file: opens it, and hands each call to the writer or the reader."""

import sqlite3
from asyncio import Future
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import aiosqlite
from msgspec import Struct

from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.errors import StorageError
from turnwire.domain.principal import Principal
from turnwire.ports.codec import Codec
from turnwire.ports.commit import Commit, Committed
from turnwire.ports.observer import NoObserver, Observer
from turnwire.ports.store import (
    Bounds,
    DisplayPage,
    EventPage,
    FileIdentity,
    MessagePage,
    Moment,
    Page,
    Publisher,
    SessionPage,
    Spent,
    Standing,
    StoredRequest,
    TurnPage,
)
from turnwire.storage.cache import SessionCache
from turnwire.storage.sqlite.changes import CommitWriter
from turnwire.storage.sqlite.connection import ProcessLock, open_connection, run
from turnwire.storage.sqlite.files import DatabaseFiles
from turnwire.storage.sqlite.reading import displays, queries
from turnwire.storage.sqlite.renewal import Renewal, adopt_codec
from turnwire.storage.sqlite.schema import migrate
from turnwire.storage.sqlite.timelines import Timelines
from turnwire.storage.sqlite.writer import GroupWriter

P = ParamSpec("P")
T = TypeVar("T")


class StorageSettings(Struct, frozen=True, kw_only=True):
    """Settings of the store."""

    path: Path
    """The database file; its folder must exist."""
    retained_events_per_session: int = 10_000
    """How many of its newest events a session keeps for watchers that reconnect."""


class SqliteStore:
    """Implements `ports.store.Store`; see there for every method.

    There is one reading connection because several reading threads would take the interpreter from the writing thread.
    """

    def __init__(
        self,
        files: DatabaseFiles,
        lock: ProcessLock,
        writing: aiosqlite.Connection,
        reading: aiosqlite.Connection,
        *,
        writer: GroupWriter,
        sessions: SessionCache,
        timelines: Timelines,
        renewal: Renewal,
        codec: Codec,
    ) -> None:
        """Use `open`."""
        self._files = files
        self._lock = lock
        self._writing = writing
        self._reading = reading
        self._writer = writer
        self._sessions = sessions
        self._timelines = timelines
        self._renewal = renewal
        self._codec = codec
        self._closed = False

    @classmethod
    async def open(
        cls,
        settings: StorageSettings,
        codec: Codec,
        publish: Publisher,
        on_loss: Callable[[StorageError], None] = lambda _: None,
        observer: Observer = NoObserver(),  # noqa: B008 - has no state
    ) -> "SqliteStore":
        """Opens the file, creates it if needed, and migrates it to the newest schema. Close with `aclose`.

        Args:
            settings: Where the file is.
            codec: Writes events and display messages.
            publish: Called with the events that were committed.
            on_loss: Called once, on the event loop, when a file of the database was deleted or replaced. Nothing can be
                stored from then on; closing saves what can be saved.
            observer: Receives a report of each transaction.

        Raises:
            StorageBusy: another server has the file open.
            StorageSchemaTooNew: a newer version of Turnwire has written it.
            StorageCorrupt: it is damaged or not a database.
            StorageError: it cannot be opened.
        """
        files = DatabaseFiles(settings.path)
        lock = ProcessLock(files)
        lock.acquire()
        opened: list[aiosqlite.Connection] = []
        try:
            opened.append(writing := await open_connection(settings.path, read_only=False))
            await run(writing, migrate)
            await run(writing, adopt_codec, codec.version)
            opened.append(reading := await open_connection(settings.path, read_only=True))
            files.remember()
            sessions, changes = SessionCache(), CommitWriter(codec, settings.retained_events_per_session)
            writer = GroupWriter(writing, files, changes, sessions, publish=publish, on_loss=on_loss, observer=observer)
            await writer.start()
            timelines = await run(writing, Timelines.begin, writer.published_position)
            renewal = Renewal(writing, codec)
            await renewal.start()
        except BaseException:
            for connection in opened:
                await connection.close()
            lock.release()
            raise
        return cls(
            files,
            lock,
            writing,
            reading,
            writer=writer,
            sessions=sessions,
            timelines=timelines,
            renewal=renewal,
            codec=codec,
        )

    def commit(self, commit: Commit) -> Future[Committed]:
        """Stores one unit of work."""
        return self._writer.commit(commit)

    async def session(self, session_id: str) -> Session:
        """Returns a session."""
        return await run(self._reading, queries.session, session_id)

    async def cached_session(self, session_id: str) -> Session:
        """Returns a session's settings."""
        session = self._sessions.get(session_id)
        if session is None:
            mark = self._sessions.mark()
            session = await self.session(session_id)
            self._sessions.keep(session, mark)
        return session

    async def sessions(self, page: Page) -> SessionPage:
        """Returns a page of sessions."""
        return await run(self._reading, queries.sessions, page)

    async def message(self, session_id: str, message_id: str) -> Message:
        """Returns one message."""
        return await run(self._reading, queries.message, session_id, message_id)

    async def message_of_call(self, session_id: str, part_id: str) -> Message:
        """Returns the message of a tool call."""
        return await run(self._reading, queries.message_of_call, session_id, part_id)

    async def messages(self, session_id: str, page: Page) -> MessagePage:
        """Returns a page of messages."""
        return await run(self._reading, queries.messages, session_id, page)

    async def history(self, session_id: str) -> tuple[Message, ...]:
        """Returns the conversation."""
        return await run(self._reading, queries.history, session_id)

    async def turn_messages(self, turn_id: str) -> tuple[Message, ...]:
        """Returns the messages of a turn."""
        return await run(self._reading, queries.turn_messages, turn_id)

    async def display(self, session_id: str, page: Page) -> DisplayPage:
        """Returns a page of display forms."""
        renewing = None if self._renewal.is_done else self._codec
        return await run(self._reading, displays.display, session_id, page, renewing)

    async def turn(self, session_id: str, turn_id: str) -> Turn:
        """Returns one turn."""
        return await run(self._reading, queries.turn, session_id, turn_id)

    async def turns(self, session_id: str, page: Page, statuses: frozenset[TurnStatus]) -> TurnPage:
        """Returns a page of turns."""
        return await run(self._reading, queries.turns, session_id, page, statuses)

    async def unfinished_turns(self) -> tuple[Turn, ...]:
        """Returns the turns that have not ended."""
        return await run(self._reading, queries.unfinished_turns)

    async def request(self, principal: Principal, request_id: str) -> StoredRequest | None:
        """Returns the remembered answer to a request."""
        return await run(self._reading, queries.request, principal, request_id)

    async def spent(self, session_id: str) -> Spent:
        """Returns what the ended turns have used."""
        return await run(self._reading, queries.spent, session_id)

    async def permission(self, session_id: str, permission_id: str) -> PermissionRequest:
        """Returns a permission request."""
        return await run(self._reading, queries.permission, session_id, permission_id)

    async def open_permissions(self, session_id: str | None) -> tuple[PermissionRequest, ...]:
        """Returns the open permission requests."""
        return await run(self._reading, queries.open_permissions, session_id)

    async def always_allowed(self, session_id: str) -> frozenset[str]:
        """Returns the patterns that were allowed."""
        return await run(self._reading, queries.always_allowed, session_id)

    async def session_file(self, session_id: str, sha256: str) -> bytes | None:
        """Returns the bytes of a session's file."""
        return await run(self._reading, queries.session_file, session_id, sha256)

    async def files(self, hashes: Iterable[str]) -> Mapping[str, bytes]:
        """Returns the bytes of files."""
        return await run(self._reading, queries.files, tuple(hashes))

    async def session_bounds(self, session_id: str) -> Bounds:
        """Returns which sequences are kept."""
        return await self._published(queries.session_bounds, session_id)

    async def log_bounds(self) -> Bounds:
        """Returns which positions are kept."""
        return await self._published(queries.log_bounds)

    def moment(self) -> Moment:
        """Returns the newest moment."""
        return Moment(self._timelines.current, self._writer.published_position)

    async def moment_after_reads(self) -> Moment:
        """Returns a moment that no read was after."""
        await self._writer.published()
        return self.moment()

    def standing(self, moment: Moment) -> Standing:
        """Returns what a moment is to the log."""
        return self._timelines.standing(moment)

    async def session_events(self, session_id: str, after: int, kinds: frozenset[str] | None) -> EventPage:
        """Returns a page of a session's events."""
        return await self._published(queries.session_events, session_id, after, kinds)

    async def log_events(self, after: int, kinds: frozenset[str] | None) -> EventPage:
        """Returns a page of all events."""
        return await self._published(queries.log_events, after, kinds)

    async def _published(
        self, query: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs a query on the log and returns once everything it saw is published."""
        result = await run(self._reading, query, *args, **kwargs)
        await self._writer.published()
        return result

    def own_files(self) -> frozenset[FileIdentity]:
        """Returns the database and the files beside it."""
        return self._files.identities()

    async def aclose(self) -> None:
        """Closes the database; see `Store.aclose`."""
        if self._closed:
            return
        self._closed = True
        await self._renewal.aclose()
        await self._writer.aclose()
        await self._reading.close()
        await self._writing.close()
        self._lock.release()
