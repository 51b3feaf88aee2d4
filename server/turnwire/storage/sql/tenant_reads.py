"""The reads of one tenant's data.

Reads that may take long, such as of a long conversation or of all sessions, have their own connection: they wait for
each other, and no other read waits for them.
"""

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from turnwire.domain.accounts import Account, UsagePage, UsageQuery
from turnwire.domain.conversation.sessions import Session, SessionFilter
from turnwire.domain.searching.hits import Search, SearchPage
from turnwire.ports.codec import Codec
from turnwire.ports.moving.sessions import SessionArchive
from turnwire.ports.pages import (
    Bounds,
    DisplayPage,
    EventPage,
    Page,
    SessionPage,
)
from turnwire.ports.store import ALL_SESSIONS
from turnwire.storage.accounts import Accounts
from turnwire.storage.cache import SessionCache
from turnwire.storage.sql import archives, asking, displays, log, pages, sessions, usage
from turnwire.storage.sql import files as stored
from turnwire.storage.sql import messages as reading
from turnwire.storage.sql import turns as stored_turns
from turnwire.storage.sql.alternatives import alternatives_of, restorable
from turnwire.storage.sql.columns import number, session_row
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.searching import Searches
from turnwire.storage.sql.sessions import Place, Step, StepLimits

LONG_MESSAGES = 128
"""Number of messages above which a conversation is long: reading it takes more than a few milliseconds, and hundreds
may be read at the same moment."""

LONG_BYTES = 2**19
"""Stored size above which a conversation counts as long, too."""

P = ParamSpec("P")
T = TypeVar("T")


class Log(Protocol):
    """The log of commits, as far as readers wait for it."""

    async def published(self, session_id: str | None = None) -> None:
        """Returns when everything stored of a session, or of all, is published."""
        ...


@dataclass(frozen=True, slots=True)
class ReadDependencies:
    """The dependencies of every read, whatever its tenant."""

    connection: Connection[Database]
    long: Connection[Database]
    """The connection for reads that may take long, so that other reads do not wait for them."""
    writer: Log
    cache: SessionCache
    accounts: Accounts
    searches: Searches
    codec: Codec
    forms: displays.DisplayForms
    another: Callable[[], Awaitable[Connection[Database]]]
    """Opens a reading connection for an archive."""


def _read(
    query: Callable[Concatenate[Database, str, P], T], *, is_long: bool = False
) -> Callable[Concatenate["TenantReads", P], Coroutine[Any, Any, T]]:
    """Returns a read of a tenant that runs a query on the common connection, or on that for long reads."""

    async def read(self: "TenantReads", /, *args: P.args, **kwargs: P.kwargs) -> T:
        connection = self.reads.long if is_long else self.reads.connection
        return await connection.run(query, self.tenant, *args, **kwargs)

    return read


def _by_length(
    query: Callable[Concatenate[Database, str, str, P], T],
) -> Callable[Concatenate["TenantReads", str, P], Coroutine[Any, Any, T]]:
    """Returns a read of a conversation: on the common connection if it is short, else on that for long reads."""

    async def read(self: "TenantReads", session_id: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        wanted: Callable[..., T] = partial(query, **kwargs)
        found = await self.reads.connection.run(unless_long, wanted, self.tenant, session_id, *args)
        return await self.reads.long.run(wanted, self.tenant, session_id, *args) if found is None else found

    return read


def _by_size(
    query: Callable[Concatenate[Database, str, P], T],
) -> Callable[Concatenate["TenantReads", P], Coroutine[Any, Any, T]]:
    """Returns a read of rows that may be large: it uses the connection for long reads if they are."""

    async def read(self: "TenantReads", /, *args: P.args, **kwargs: P.kwargs) -> T:
        wanted: Callable[..., T] = query
        light = partial(wanted, max_bytes=pages.HEAVY_BYTES)
        try:
            return await self.reads.connection.run(light, self.tenant, *args, **kwargs)
        except pages.HeavyRead:
            return await self.reads.long.run(query, self.tenant, *args, **kwargs)

    return read


def unless_long(db: Database, query: Callable[..., T], tenant: str, session_id: str, *args: object) -> T | None:
    """Returns the result of a query on a session's conversation; None, without reading it, when it is long."""
    row = session_row(db, tenant, session_id)
    shown = "SELECT count(*) FROM (SELECT 1 FROM messages WHERE session = ? AND on_path = 1 LIMIT ?) AS shown"
    if number(db, shown, (row, LONG_MESSAGES + 1)) > LONG_MESSAGES:
        return None
    if number(db, "SELECT stored_bytes FROM sessions WHERE id = ?", (row,)) > LONG_BYTES:
        return None
    return query(db, tenant, session_id, *args)


class TenantReads:
    """Implements `ports.store.TenantStore`; see there for every method. Costs next to nothing to make."""

    __slots__ = ("reads", "tenant")

    def __init__(self, reads: ReadDependencies, tenant: str) -> None:
        """Takes the tenant whose data to read."""
        self.reads = reads
        self.tenant = tenant

    session = _read(sessions.session)
    known_sessions = _read(sessions.known_sessions)
    session_ids = _read(sessions.session_ids, is_long=True)
    is_taken = _read(sessions.is_taken)
    message = _by_size(reading.message)
    messages = _by_size(reading.messages)
    history = _by_length(reading.history)
    history_bytes = _by_length(reading.history_bytes)
    conversation = _by_length(reading.conversation)
    message_of_call = _by_size(reading.message_of_call)
    caller_sizes = _by_length(reading.caller_sizes)
    callers = _by_length(reading.callers)
    question = _by_size(reading.question)
    question_bytes = _read(reading.question_bytes)
    alternatives = _by_size(alternatives_of)
    turn = _read(stored_turns.turn)
    turns = _by_size(stored_turns.turns)
    restorable = _read(restorable)
    spent = _read(stored_turns.spent)
    queue = _by_size(stored_turns.queue)
    queue_entries = _read(stored_turns.queue_entries)
    permission = _read(asking.permission)
    always_allowed = _read(asking.always_allowed)
    asked_question = _read(asking.question)
    pending_questions = _read(asking.pending_questions)
    open_permissions = _by_size(asking.open_permissions)
    open_questions = _by_size(asking.open_questions)
    open_calls = _by_size(asking.open_calls)
    session_file = _by_size(stored.session_file)
    files = _read(stored.files)
    stored_files = _read(stored.stored_files)
    _whole_display = _by_length(displays.display)
    _page_of_display = _by_size(displays.display)
    _events_of_session = _by_size(log.session_events)
    _events_of_all = _by_size(log.log_events)

    async def cached_session(self, session_id: str) -> Session:
        """Returns a session's settings."""
        session = self.reads.cache.get(self.tenant, session_id)
        if session is None:
            mark = self.reads.cache.mark()
            session = await self.session(session_id)
            self.reads.cache.keep(session, mark)
        return session

    def account(self, at: datetime) -> Account:
        """Returns the account."""
        return self.reads.accounts.account(self.tenant, at)

    async def usage(self, query: UsageQuery, page: Page) -> UsagePage:
        """Returns sums of usage."""
        return await usage.usage(self.reads.connection.run, self.tenant, query, page)

    async def sessions(self, page: Page, wanted: SessionFilter = ALL_SESSIONS) -> SessionPage:
        """Returns a page of sessions."""
        connection = self.reads.long if page.size is None else self.reads.connection

        async def look(wanted: SessionFilter, place: Place | None, budget: StepLimits) -> Step:
            return await connection.run(sessions.step, self.tenant, wanted, place, budget)

        return await sessions.session_page(look, self.tenant, wanted, page)

    def archive(self) -> AbstractAsyncContextManager[SessionArchive]:
        """Returns a reader of whole sessions."""
        return archives.opened_archive(self.reads.another, self.tenant)

    async def display(self, session_id: str, page: Page) -> DisplayPage:
        """Returns a page of display forms."""
        read = self._whole_display if page.size is None else self._page_of_display
        return await read(session_id, page, self.reads.forms)

    async def search(self, search: Search, place: bytes, size: int) -> SearchPage:
        """Returns a page of hits."""
        return await self.reads.searches.search(self.tenant, search, place, size)

    async def session_bounds(self, session_id: str) -> Bounds:
        """Returns which sequences are kept."""
        bounds = await self.reads.connection.run(log.session_bounds, self.tenant, session_id)
        await self.reads.writer.published(session_id)
        return bounds

    async def log_bounds(self) -> Bounds:
        """Returns which positions are kept."""
        bounds = await self.reads.connection.run(log.log_bounds, self.tenant)
        await self.reads.writer.published()
        return bounds

    async def session_events(self, session_id: str, after: int, kinds: frozenset[str] | None) -> EventPage:
        """Returns a page of a session's events."""
        page = await self._events_of_session(session_id, after, codec=self.reads.codec, kinds=kinds)
        await self.reads.writer.published(session_id)
        return page

    async def log_events(self, after: int, kinds: frozenset[str] | None) -> EventPage:
        """Returns a page of all events."""
        page = await self._events_of_all(after, codec=self.reads.codec, kinds=kinds)
        await self.reads.writer.published()
        return page
