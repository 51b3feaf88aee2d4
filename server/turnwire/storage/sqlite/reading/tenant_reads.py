"""What one tenant has, as the store reads it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from turnwire.domain.accounts import Account, UsagePage, UsageQuery
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.questions import HeldQuestion, Question
from turnwire.domain.conversation.sessions import Session, SessionFilter
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.searching.hits import Search, SearchPage
from turnwire.ports.codec import Codec
from turnwire.ports.conversations import AlternativesOf, Conversation, StoredQuestion
from turnwire.ports.moving.sessions import SessionArchive, SessionNames
from turnwire.ports.pages import (
    AlternativesPage,
    Bounds,
    DisplayPage,
    EventPage,
    MessagePage,
    OpenCallPage,
    Page,
    PermissionPage,
    QuestionPage,
    QueuePage,
    SessionPage,
    TurnPage,
)
from turnwire.ports.store import ALL_SESSIONS, Spent
from turnwire.storage.accounts import Accounts
from turnwire.storage.cache import SessionCache
from turnwire.storage.sqlite.answering import callers, questions
from turnwire.storage.sqlite.connection import Connection
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

    connection: Connection
    long: Connection
    """For what may take long; all else would wait behind it."""
    writer: GroupWriter
    cache: SessionCache
    accounts: Accounts
    searches: Searches
    codec: Codec
    forms: displays.DisplayForms
    path: Path
    """The database."""


class TenantReads:
    """Implements `ports.store.TenantStore`; see there for every method. Costs next to nothing to make."""

    __slots__ = ("_reads", "_tenant")

    def __init__(self, reads: Reads, tenant: str) -> None:
        """Takes whose sessions to read."""
        self._reads = reads
        self._tenant = tenant

    async def session(self, session_id: str) -> Session:
        """Returns a session."""
        return await self._reads.connection.run(queries.session, self._tenant, session_id)

    async def cached_session(self, session_id: str) -> Session:
        """Returns a session's settings."""
        session = self._reads.cache.get(self._tenant, session_id)
        if session is None:
            mark = self._reads.cache.mark()
            session = await self.session(session_id)
            self._reads.cache.keep(session, mark)
        return session

    def account(self, at: datetime) -> Account:
        """Returns the account."""
        return self._reads.accounts.account(self._tenant, at)

    async def usage(self, query: UsageQuery, page: Page) -> UsagePage:
        """Returns sums of usage."""
        return await usage.usage(self._reads.connection.run, self._tenant, query, page)

    async def sessions(self, page: Page, wanted: SessionFilter = ALL_SESSIONS) -> SessionPage:
        """Returns a page of sessions."""

        async def look(wanted: SessionFilter, place: Place | None, budget: Budget) -> Step:
            if page.size is None:
                return await self._reads.long.run(step, self._tenant, wanted, place, budget)
            return await self._reads.connection.run(step, self._tenant, wanted, place, budget)

        return await session_page(look, self._tenant, wanted, page)

    async def session_ids(self) -> tuple[str, ...]:
        """Returns the ids of all sessions."""
        return await self._reads.long.run(archives.session_ids, self._tenant)

    async def known_sessions(self, session_ids: Sequence[str]) -> tuple[Session, ...]:
        """Returns those of some sessions that there are."""
        return await self._reads.connection.run(queries.known_sessions, self._tenant, session_ids)

    async def stored_files(self, hashes: Sequence[str]) -> frozenset[str]:
        """Returns which files there are."""
        return await self._reads.connection.run(queries.stored_files, self._tenant, hashes)

    async def is_taken(self, names: SessionNames) -> bool:
        """Returns whether an id is taken."""
        return await self._reads.connection.run(is_taken, self._tenant, names)

    def archive(self) -> AbstractAsyncContextManager[SessionArchive]:
        """Returns what reads whole sessions."""
        return archives.opened_archive(self._reads.path, self._tenant)

    async def message(self, session_id: str, message_id: str) -> Message:
        """Returns one message."""
        return await self._by_size(queries.message, session_id, message_id)

    async def message_of_call(self, session_id: str, part_id: str) -> Message:
        """Returns the message of a tool call."""
        return await self._by_size(callers.message_of_call, session_id, part_id)

    async def caller_sizes(
        self, session_id: str, part_ids: frozenset[str], call_ids: frozenset[str]
    ) -> Mapping[str, int]:
        """Returns which messages call, and how large they are."""
        return await self._by_length(callers.caller_sizes, session_id, part_ids, call_ids)

    async def callers(self, session_id: str, message_ids: Collection[str]) -> tuple[Message, ...]:
        """Returns messages that call."""
        return await self._by_length(callers.callers, session_id, message_ids)

    async def messages(self, session_id: str, page: Page) -> MessagePage:
        """Returns a page of messages."""
        return await self._by_size(queries.messages, session_id, page)

    async def history(self, session_id: str) -> tuple[Message, ...]:
        """Returns the conversation."""
        return await self._by_length(queries.history, session_id)

    async def history_bytes(self, session_id: str) -> int:
        """Returns about how much memory the conversation takes."""
        return await self._by_length(queries.history_bytes, session_id)

    async def conversation(self, session_id: str) -> Conversation:
        """Returns a session with its whole conversation."""
        return await self._by_length(queries.conversation, session_id)

    async def question(self, session_id: str, message_id: str) -> StoredQuestion:
        """Returns a message that may be answered."""
        return await self._by_size(questions.question, session_id, message_id)

    async def question_bytes(self, session_id: str, message_id: str) -> int:
        """Returns what is read to answer a message."""
        return await self._reads.connection.run(questions.question_bytes, self._tenant, session_id, message_id)

    async def alternatives(self, session_id: str, asked: AlternativesOf, page: Page) -> AlternativesPage:
        """Returns the messages that share the one before them."""
        return await self._by_size(alternatives_of, session_id, asked, page)

    async def display(self, session_id: str, page: Page) -> DisplayPage:
        """Returns a page of display forms."""
        forms = self._reads.forms
        if page.size is None:
            return await self._by_length(displays.display, session_id, page, forms)
        return await self._by_size(displays.display, session_id, page, forms)

    async def turn(self, session_id: str, turn_id: str) -> Turn:
        """Returns one turn."""
        return await self._reads.connection.run(queries.turn, self._tenant, session_id, turn_id)

    async def turns(self, session_id: str, page: Page, statuses: frozenset[TurnStatus]) -> TurnPage:
        """Returns a page of turns."""
        return await self._by_size(queries.turns, session_id, page, statuses)

    async def queue(self, session_id: str, page: Page) -> QueuePage:
        """Returns waiting messages."""
        return await self._by_size(waiting.queue, session_id, page)

    async def queue_entries(self, session_id: str) -> QueuePage:
        """Returns what waits, without content."""
        return await self._reads.connection.run(waiting.queue_entries, self._tenant, session_id)

    async def spent(self, session_id: str) -> Spent:
        """Returns what the ended turns have used."""
        return await self._reads.connection.run(queries.spent, self._tenant, session_id)

    async def search(self, search: Search, place: bytes, size: int) -> SearchPage:
        """Returns a page of hits."""
        return await self._reads.searches.search(self._tenant, search, place, size)

    async def open_calls(self, session_id: str, tools: frozenset[str], page: Page) -> OpenCallPage:
        """Returns a page of open calls."""
        return await self._by_size(listing.open_calls, session_id, tools, page)

    async def permission(self, session_id: str, permission_id: str) -> PermissionRequest:
        """Returns a permission request."""
        return await self._reads.connection.run(queries.permission, self._tenant, session_id, permission_id)

    async def open_permissions(self, session_id: str | None, page: Page) -> PermissionPage:
        """Returns a page of the open permission requests."""
        return await self._by_size(waiting.open_permissions, session_id, page)

    async def always_allowed(self, session_id: str) -> frozenset[str]:
        """Returns the patterns that were allowed."""
        return await self._reads.connection.run(queries.always_allowed, self._tenant, session_id)

    async def asked_question(self, session_id: str, question_id: str) -> Question:
        """Returns a question."""
        return await self._reads.connection.run(waiting.question, self._tenant, session_id, question_id)

    async def open_questions(self, session_id: str | None, page: Page) -> QuestionPage:
        """Returns a page of the open questions."""
        return await self._by_size(waiting.open_questions, session_id, page)

    async def pending_questions(self, session_id: str) -> tuple[HeldQuestion, ...]:
        """Returns the questions that are open or whose call has yet to go on."""
        return await self._reads.connection.run(waiting.pending_questions, self._tenant, session_id)

    async def session_file(self, session_id: str, sha256: str) -> bytes | None:
        """Returns the bytes of a session's file."""
        return await self._by_size(queries.session_file, session_id, sha256)

    async def files(self, hashes: Iterable[str]) -> Mapping[str, bytes]:
        """Returns the bytes of files."""
        return await self._reads.connection.run(queries.files, self._tenant, tuple(hashes))

    async def session_bounds(self, session_id: str) -> Bounds:
        """Returns which sequences are kept."""
        bounds = await self._reads.connection.run(replay.session_bounds, self._tenant, session_id)
        await self._reads.writer.published(session_id)
        return bounds

    async def log_bounds(self) -> Bounds:
        """Returns which positions are kept."""
        bounds = await self._reads.connection.run(replay.log_bounds, self._tenant)
        await self._reads.writer.published()
        return bounds

    async def session_events(self, session_id: str, after: int, kinds: frozenset[str] | None) -> EventPage:
        """Returns a page of a session's events."""
        page = await self._events(replay.session_events, session_id, after, kinds=kinds)
        await self._reads.writer.published(session_id)
        return page

    async def log_events(self, after: int, kinds: frozenset[str] | None) -> EventPage:
        """Returns a page of all events."""
        page = await self._events(replay.log_events, after, kinds=kinds)
        await self._reads.writer.published()
        return page

    async def _events(self, query: Callable[..., EventPage], *args: object, kinds: frozenset[str] | None) -> EventPage:
        """Reads a page of the log; one that is one large event is read beside all else."""
        reads, tenant = self._reads, self._tenant
        page = partial(query, kinds=kinds)
        try:
            return await reads.connection.run(page, reads.codec, tenant, *args, max_bytes=fitting.HEAVY_BYTES)
        except fitting.HeavyRead:
            return await reads.long.run(lambda db, _: page(db, reads.codec, tenant, *args), tenant)

    async def _by_size(self, query: Callable[..., T], session_id: str | None, *args: object) -> T:
        """Reads what may be large: it is measured first, and then read with all else or beside it."""
        try:
            return await self._reads.connection.run(
                query, self._tenant, session_id, *args, max_bytes=fitting.HEAVY_BYTES
            )
        except fitting.HeavyRead:
            return await self._reads.long.run(query, self._tenant, session_id, *args)

    async def _by_length(self, query: Callable[..., T], session_id: str, *args: object) -> T:
        """Reads a whole conversation: a short one as all else is read, a long one beside it."""
        found = await self._reads.connection.run(unless_long, query, self._tenant, session_id, *args)
        if found is not None:
            return found
        return await self._reads.long.run(query, self._tenant, session_id, *args)
