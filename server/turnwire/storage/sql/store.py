"""The store on the connections of an engine: passes each call to the writer or to a reader."""

from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple, Self

from msgspec import Struct

from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import StorageError
from turnwire.domain.principal import Principal
from turnwire.ports.clock import Clock
from turnwire.ports.codec import Codec
from turnwire.ports.commit import Commit, Committed, RemoveSession
from turnwire.ports.store import FileIdentity, Follower, Moment, Publisher, Standing, StoredRequest, Watched
from turnwire.ports.telemetry.observer import Observer
from turnwire.storage.accounts import Accounts, Ledger
from turnwire.storage.cache import SessionCache
from turnwire.storage.sql.accounts import stored_accounts
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.displays import DisplayForms
from turnwire.storage.sql.housekeeping import Housekeeping, stored
from turnwire.storage.sql.messages import turn_messages
from turnwire.storage.sql.removal import Removal
from turnwire.storage.sql.retention import Retention
from turnwire.storage.sql.searching import Searches
from turnwire.storage.sql.sessions import request
from turnwire.storage.sql.tenant_reads import ReadDependencies, TenantReads
from turnwire.storage.sql.timelines import Timelines, token_key
from turnwire.storage.sql.turns import unfinished_turns
from turnwire.storage.sql.upload_store import SqlUploads, remove_some
from turnwire.storage.sql.words import renew_some
from turnwire.storage.sql.writer import GroupWriter, Keeper
from turnwire.storage.units import CommitWriter

READERS = 3
"""Number of connections that read: one, because several reading threads would take the interpreter from the writing
thread, one more for reads that may take long, and one for searches alone, which may take longer."""


class RetentionSettings(Struct, frozen=True, kw_only=True):
    """The retention of events."""

    retained_events_per_session: int = 10_000
    """Number of its newest events that a session keeps for watchers that reconnect."""
    retained_events_days: int = 30
    """Days for which events are kept, whatever their number."""


class Surroundings(NamedTuple):
    """The dependencies of a store."""

    codec: Codec
    """Writes events and display messages."""
    publish: Publisher
    """Called with the events that were committed."""
    on_loss: Callable[[StorageError], None]
    """Called once, on the event loop, when nothing can be stored any more: a file of the database was deleted or
    replaced, or it cannot be determined whether a commit is stored. Closing saves what can be saved."""
    observer: Observer
    """Receives a report of each transaction."""
    is_watched: Watched
    """Returns whether frames of a session's events are needed at once."""
    clock: Clock | None
    """The time now, for the age of events; None is the real one."""


class SqlStore:
    """Implements `ports.store.Store`; see there for every method."""

    _timelines: Timelines
    _token_key: bytes

    def __init__(  # noqa: PLR0917 - the parts of an engine
        self,
        keeper: Keeper,
        connections: Sequence[Connection[Database]],
        another: Callable[[], Awaitable[Connection[Database]]],
        settings: RetentionSettings,
        surroundings: Surroundings,
        steps: Sequence[Callable[[Database], bool]] = (),
    ) -> None:
        """Takes a database that has the newest schema, to which `begin` begins to write.

        Args:
            keeper: The keeper of the database.
            connections: The writing one, and `READERS` that read. The store closes them.
            another: Opens one more reading connection.
            settings: The retention of events.
            surroundings: The dependencies of the store.
            steps: Steps of housekeeping for this engine alone.
        """
        self._keeper = keeper
        self._connections = connections  # the writing one first
        self._writing, self._reading, long, searching = connections
        codec, accounts, sessions = surroundings.codec, Accounts(), SessionCache()
        self._writer = writer = GroupWriter(
            self._writing,
            keeper,
            CommitWriter(codec, settings.retained_events_per_session, surroundings.is_watched),
            sessions,
            accounts,
            publish=surroundings.publish,
            on_loss=surroundings.on_loss,
            observer=surroundings.observer,
        )
        self._removal = Removal(writer, self._reading)
        age = timedelta(days=settings.retained_events_days)
        retention = Retention(settings.retained_events_per_session, age, surroundings.clock)
        all_steps = (retention.step, *map(_uncounted, (renew_some, remove_some, *steps)))
        self._housekeeping = Housekeeping(writer, (*(stored(writer, step) for step in all_steps), self._removal.step))
        self.uploads = SqlUploads(writer, self._reading, self._housekeeping.wake)
        forms = DisplayForms(codec)
        self._reads = ReadDependencies(
            self._reading, long, writer, sessions, accounts, Searches(searching), codec, forms, another
        )
        self._closed = False

    async def begin(self) -> Self:
        """Begins to write. Returns the store."""
        self._reads.accounts.add(await self._writing.run(stored_accounts))
        await self._writer.start()
        self._timelines = await self._writing.run(Timelines.begin, self._writer.published_position)
        self._token_key = await self._writing.run(token_key)
        self._housekeeping.start()
        return self

    def commit(self, commit: Commit) -> Future[Committed]:
        """Stores one unit of work."""
        storing = self._writer.commit(commit)
        if any(isinstance(change, RemoveSession) for change in commit.changes):
            storing.add_done_callback(partial(self._note_removal, commit))
        return storing

    def _note_removal(self, commit: Commit, storing: Future[Committed]) -> None:
        self._removal.note(commit, storing)
        self._housekeeping.wake()

    def follow(self, follower: Follower) -> None:
        """Registers a function to call with each further commit."""
        self._writer.followers.append(follower)

    def of(self, tenant: str) -> TenantReads:
        """Returns the store as one tenant sees it."""
        return TenantReads(self._reads, tenant)

    async def removals(self) -> None:
        """Returns when nothing is left of the sessions that were removed before. Raises StorageError."""
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
        """Returns a moment that is not before anything that a read of the session has returned."""
        await self._writer.published(session_id)
        return self.moment(tenant)

    def standing(self, moment: Moment) -> Standing:
        """Returns the relation of a moment to the log."""
        return self._timelines.standing(moment)

    def warnings(self) -> Mapping[str, Mapping[str, object]]:
        """Returns the warnings about the database for the operator: events of the log with their facts."""
        return self._keeper.warnings()

    def is_writable(self) -> bool:
        """Returns whether the last transaction was written. If not, retries once a second, so that later calls know."""
        return self._writer.is_writable()

    def forget(self, is_left: Callable[[str], bool]) -> None:
        """Drops from memory the sessions that move to another server, given by their ids."""
        self._reads.cache.forget(is_left)

    def own_files(self) -> frozenset[FileIdentity]:
        """Returns the files of the database on this machine."""
        return self._keeper.own_files()

    def end_soon(self) -> None:
        """Limits how long a stop waits for commits; see `GroupWriter.end_soon`."""
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
        self._keeper.close()


def _uncounted(step: Callable[[Database], bool]) -> Callable[[Database, Ledger], bool]:
    """Returns a step that one server at a time carries out, and that changes no account."""
    return lambda db, _: db.is_first(step.__name__) and step(db)
