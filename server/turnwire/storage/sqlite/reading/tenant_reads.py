"""What one tenant has, as the store reads it."""

import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

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
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sqlite.answering import callers, questions
from turnwire.storage.sqlite.database import SqliteDatabase
from turnwire.storage.sqlite.listing.pages import session_page
from turnwire.storage.sqlite.listing.queries import Budget, Place, Step, step
from turnwire.storage.sqlite.log import replay
from turnwire.storage.sqlite.long_reads import unless_long
from turnwire.storage.sqlite.open_calls import listing
from turnwire.storage.sqlite.reading import archives, displays, fitting, queries, usage, waiting
from turnwire.storage.sqlite.reading.alternatives import alternatives_of
from turnwire.storage.sqlite.searching.reader import Searches
from turnwire.storage.sqlite.states import is_taken
from turnwire.storage.sqlite.writing.writer import GroupWriter

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reads:
    """What every read needs, whoever it is for."""

    connection: Connection[SqliteDatabase]
    long: Connection[SqliteDatabase]
    """For what may take long; all else would wait behind it."""
    writer: GroupWriter
    cache: SessionCache
    accounts: Accounts
    searches: Searches
    codec: Codec
    forms: displays.DisplayForms
    path: Path
    """The database."""


def _read(
    query: Callable[Concatenate[sqlite3.Connection, str, P], T],
) -> Callable[Concatenate["TenantReads", P], Coroutine[Any, Any, T]]:
    """Returns the read of a tenant that a query carries out on the connection for what is short."""

    async def read(self: "TenantReads", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.reads.connection.run(query, self.tenant, *args, **kwargs)

    return read


def _long(
    query: Callable[Concatenate[sqlite3.Connection, str, P], T],
) -> Callable[Concatenate["TenantReads", P], Coroutine[Any, Any, T]]:
    """Returns a read that is carried out beside the others."""

    async def read(self: "TenantReads", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.reads.long.run(query, self.tenant, *args, **kwargs)

    return read


def _by_length(
    query: Callable[Concatenate[sqlite3.Connection, str, str, P], T],
) -> Callable[Concatenate["TenantReads", str, P], Coroutine[Any, Any, T]]:
    """Returns a read of a whole conversation: a short one as all else is read, a long one beside it."""

    async def read(self: "TenantReads", session_id: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        wanted: Callable[..., T] = partial(query, **kwargs)
        found = await self.reads.connection.run(unless_long, wanted, self.tenant, session_id, *args)
        return await self.reads.long.run(wanted, self.tenant, session_id, *args) if found is None else found

    return read


def _by_size(
    query: Callable[Concatenate[sqlite3.Connection, str, P], T],
) -> Callable[Concatenate["TenantReads", P], Coroutine[Any, Any, T]]:
    """Returns a read of what may be large: it is measured first, and then read with all else or beside it."""

    async def read(self: "TenantReads", /, *args: P.args, **kwargs: P.kwargs) -> T:
        wanted: Callable[..., T] = query
        light = partial(wanted, max_bytes=fitting.HEAVY_BYTES)
        try:
            return await self.reads.connection.run(light, self.tenant, *args, **kwargs)
        except fitting.HeavyRead:
            return await self.reads.long.run(query, self.tenant, *args, **kwargs)

    return read


class TenantReads:
    """Implements `ports.store.TenantStore`; see there for every method. Costs next to nothing to make."""

    __slots__ = ("reads", "tenant")

    def __init__(self, reads: Reads, tenant: str) -> None:
        """Takes whose sessions to read."""
        self.reads = reads
        self.tenant = tenant

    session = _read(queries.session)
    known_sessions = _read(queries.known_sessions)
    session_ids = _long(archives.session_ids)
    stored_files = _read(queries.stored_files)
    is_taken = _read(is_taken)
    message = _by_size(queries.message)
    message_of_call = _by_size(callers.message_of_call)
    caller_sizes = _by_length(callers.caller_sizes)
    callers = _by_length(callers.callers)
    messages = _by_size(queries.messages)
    history = _by_length(queries.history)
    history_bytes = _by_length(queries.history_bytes)
    conversation = _by_length(queries.conversation)
    question = _by_size(questions.question)
    question_bytes = _read(questions.question_bytes)
    alternatives = _by_size(alternatives_of)
    turn = _read(queries.turn)
    turns = _by_size(queries.turns)
    queue = _by_size(waiting.queue)
    queue_entries = _read(waiting.queue_entries)
    spent = _read(queries.spent)
    open_calls = _by_size(listing.open_calls)
    permission = _read(queries.permission)
    open_permissions = _by_size(waiting.open_permissions)
    always_allowed = _read(queries.always_allowed)
    asked_question = _read(waiting.question)
    open_questions = _by_size(waiting.open_questions)
    pending_questions = _read(waiting.pending_questions)
    session_file = _by_size(queries.session_file)
    files = _read(queries.files)
    _whole_display = _by_length(displays.display)
    _page_of_display = _by_size(displays.display)

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

        async def look(wanted: SessionFilter, place: Place | None, budget: Budget) -> Step:
            return await connection.run(step, self.tenant, wanted, place, budget)

        return await session_page(look, self.tenant, wanted, page)

    def archive(self) -> AbstractAsyncContextManager[SessionArchive]:
        """Returns what reads whole sessions."""
        return archives.opened_archive(self.reads.path, self.tenant)

    async def display(self, session_id: str, page: Page) -> DisplayPage:
        """Returns a page of display forms."""
        read = self._whole_display if page.size is None else self._page_of_display
        return await read(session_id, page, self.reads.forms)

    async def search(self, search: Search, place: bytes, size: int) -> SearchPage:
        """Returns a page of hits."""
        return await self.reads.searches.search(self.tenant, search, place, size)

    async def session_bounds(self, session_id: str) -> Bounds:
        """Returns which sequences are kept."""
        bounds = await self.reads.connection.run(replay.session_bounds, self.tenant, session_id)
        await self.reads.writer.published(session_id)
        return bounds

    async def log_bounds(self) -> Bounds:
        """Returns which positions are kept."""
        bounds = await self.reads.connection.run(replay.log_bounds, self.tenant)
        await self.reads.writer.published()
        return bounds

    async def session_events(self, session_id: str, after: int, kinds: frozenset[str] | None) -> EventPage:
        """Returns a page of a session's events."""
        page = await self._events(replay.session_events, session_id, after, kinds=kinds)
        await self.reads.writer.published(session_id)
        return page

    async def log_events(self, after: int, kinds: frozenset[str] | None) -> EventPage:
        """Returns a page of all events."""
        page = await self._events(replay.log_events, after, kinds=kinds)
        await self.reads.writer.published()
        return page

    async def _events(self, query: Callable[..., EventPage], *args: object, kinds: frozenset[str] | None) -> EventPage:
        """Reads a page of the log; one that is one large event is read beside all else."""
        page = partial(query, codec=self.reads.codec, kinds=kinds)
        try:
            return await self.reads.connection.run(page, self.tenant, *args, max_bytes=fitting.HEAVY_BYTES)
        except fitting.HeavyRead:
            return await self.reads.long.run(page, self.tenant, *args)
