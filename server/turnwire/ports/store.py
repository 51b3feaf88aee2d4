"""The store: everything that survives a crash.

A write is one `Commit`, a unit of work as a value, stored completely or not at all. Commits take effect in the order of
the calls of `commit`: they get their sequences and are published in that order, after they are durable and before their
futures are done. A read never sees half a commit. A read of events or their bounds never shows an event that is not yet
published, so a watcher that has read the log and joins the feed sees each event once.

Reads by the id of a session are reads of one tenant (`Store.of`): that of the caller, or of the turn that runs.
"""

import os
from asyncio import Future
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import Enum
from typing import Protocol, Self

from msgspec import Struct

from turnwire.domain.accounts import Account, UsagePage, UsageQuery
from turnwire.domain.conversation.events import Event
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.questions import HeldQuestion, Question
from turnwire.domain.conversation.sessions import Session, SessionFilter
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.money import Usage
from turnwire.domain.principal import Principal
from turnwire.domain.searching.hits import Search, SearchPage
from turnwire.ports.commit import Commit, Committed
from turnwire.ports.conversations import AlternativesOf, Conversation, StoredQuestion
from turnwire.ports.moving.sessions import SessionArchive, SessionNames
from turnwire.ports.moving.uploads import UploadStore
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

ALL_SESSIONS = SessionFilter()
"""Passes all sessions, most recently updated first."""

MAX_RESTORABLE = 1_000
"""Maximum number of ids of restorable messages in one answer: about 40 KiB."""


class StoredEvent(Struct, frozen=True):
    """A durable event with its sequence."""

    event: Event
    frame: bytes | None
    """The encoded event; None when its session had no watch while the event was stored (`Watched`)."""
    tenant: str
    """Owner of its session."""


class StoredRequest(Struct, frozen=True):
    """The remembered answer to a named request."""

    fingerprint: str
    receipt_json: str
    before_sequence: int
    """The session's head before the request's commit."""


class Spent(Struct, frozen=True):
    """The usage of the ended turns of a session."""

    usage: Usage | None
    """None when no provider reported it."""
    cost_pico_usd: int | None
    """Sum of the known costs; None when none is known."""


class Moment(Struct, frozen=True):
    """A moment in the history of the log of all sessions."""

    timeline: str
    """The start of the server to which it belongs: 16 random hexadecimal digits."""
    position: int
    """Newest position of the log at that moment."""


class Standing(Enum):
    """The relation of a moment to the present log."""

    PAST = "past"
    """Everything that had happened by then is part of the log's own history."""
    REPLACED = "replaced"
    """The log has another history: it was restored from a backup that is older than the moment."""
    UNKNOWN = "unknown"
    """The log does not know any more, because the server has been started too often since."""


class FileIdentity(Struct, frozen=True):
    """Identifies a file, whatever path leads to it."""

    device: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Returns the identity of the file that has this status."""
        return cls(status.st_dev, status.st_ino)


Watched = Callable[[str, str], bool]
"""Returns whether a session, given by tenant and id, or all sessions of its tenant are watched. Called on any thread.
"""

Follower = Callable[[Commit, Committed], None]
"""Called on the event loop with each commit that became durable, in their order. Must not raise."""

Publisher = Callable[[Sequence[StoredEvent]], None]
"""Called on the event loop with the events of commits that became durable, in commit order. Must not raise."""


class TenantStore(Protocol):
    """Reads what one tenant has. A session of another tenant is not found, at the same cost as an unknown one.

    Every method may raise a `StorageError`; every read of one session raises `SessionNotFound`. Reads are safe to
    cancel.
    """

    async def session(self, session_id: str) -> Session:
        """Returns a session."""
        ...

    async def cached_session(self, session_id: str) -> Session:
        """Like `session`, but cheap: it may come from memory, with an older head_sequence and updated_at."""
        ...

    async def session_ids(self) -> tuple[str, ...]:
        """Returns the ids of all sessions in the order of their creation; ids of one moment are sorted."""
        ...

    async def known_sessions(self, session_ids: Sequence[str]) -> tuple[Session, ...]:
        """Returns the tenant's sessions that have one of these ids."""
        ...

    async def stored_files(self, hashes: Sequence[str]) -> frozenset[str]:
        """Returns those of the digests whose bytes the tenant has. Does not read the bytes."""
        ...

    async def is_taken(self, names: SessionNames) -> bool:
        """Returns whether one of these ids belongs to something else, in any tenant.

        A deleted session of the same tenant leaves its id free.
        """
        ...

    def archive(self) -> AbstractAsyncContextManager[SessionArchive]:
        """Returns a reader of whole sessions, separate from all other reads. Raises StorageError when it is entered."""
        ...

    async def sessions(self, page: Page, wanted: SessionFilter = ALL_SESSIONS) -> SessionPage:
        """Returns sessions of the tenant that pass a filter, in the filter's order.

        `Page.max_bytes` counts at least the part of a session that an answer contains, which excludes its tools. A page
        with a size may be short or empty and still have a next one, because each examines a bounded number of sessions.

        Raises:
            InvalidRequest: the page token is not of this listing.
            AnswerTooLarge: the first session alone is over `Page.max_bytes`.
        """
        ...

    async def message(self, session_id: str, message_id: str) -> Message:
        """Returns a message with its parts. Raises MessageNotFound."""
        ...

    async def message_of_call(self, session_id: str, part_id: str) -> Message:
        """Returns the message with a tool call, on the path or off it, with its parts. Raises ToolCallNotFound."""
        ...

    async def caller_sizes(
        self, session_id: str, part_ids: frozenset[str], call_ids: frozenset[str]
    ) -> Mapping[str, int]:
        """Returns ids and bytes of the newest messages with one of these calls: at most 100, up to 64 MiB."""
        ...

    async def callers(self, session_id: str, message_ids: Collection[str]) -> tuple[Message, ...]:
        """Returns those of the messages that the conversation has, oldest first."""
        ...

    async def messages(self, session_id: str, page: Page) -> MessagePage:
        """Returns messages in conversation order, queued ones last. Raises InvalidRequest on a bad page token."""
        ...

    async def history(self, session_id: str) -> tuple[Message, ...]:
        """Returns all messages of the conversation in order, without queued ones, as of one moment.

        Raises ConversationTooLarge.
        """
        ...

    async def history_bytes(self, session_id: str) -> int:
        """Returns the approximate memory of the conversation in bytes, without reading it. Raises SessionNotFound."""
        ...

    async def conversation(self, session_id: str) -> Conversation:
        """Returns a session with its complete conversation. Raises ConversationTooLarge."""
        ...

    async def question(self, session_id: str, message_id: str) -> StoredQuestion:
        """Returns a message with the facts that StartTurn needs. Raises MessageNotFound, also for a hidden message."""
        ...

    async def question_bytes(self, session_id: str, message_id: str) -> int:
        """Returns the bytes that `question` reads, with the question of an answer; 0 for no message."""
        ...

    async def alternatives(self, session_id: str, asked: AlternativesOf, page: Page) -> AlternativesPage:
        """Returns the messages with the same message before them, on the path and off it, oldest first.

        Raises:
            MessageNotFound: the message does not exist or waits, or it or one before it was taken back.
            InvalidRequest: the page token is not of this listing.
        """
        ...

    async def display(self, session_id: str, page: Page) -> DisplayPage:
        """Returns display forms in conversation order, queued ones last.

        Raises:
            InvalidRequest: the page token is not of this listing.
            AnswerTooLarge: the newest message alone is over `Page.max_bytes`.
        """
        ...

    async def turn(self, session_id: str, turn_id: str) -> Turn:
        """Returns a turn. Raises TurnNotFound when the session exists and has no such turn."""
        ...

    async def turns(self, session_id: str, page: Page, statuses: frozenset[TurnStatus]) -> TurnPage:
        """Returns turns of some statuses in the order of acceptance. Raises InvalidRequest on a bad page token."""
        ...

    async def queue(self, session_id: str, page: Page) -> QueuePage:
        """Returns waiting messages, next first. Raises InvalidRequest on a bad page token."""
        ...

    async def queue_entries(self, session_id: str) -> QueuePage:
        """Returns all waiting messages, next first, without the messages themselves."""
        ...

    async def restorable(self, session_id: str) -> tuple[str, ...]:
        """Returns the ids of the messages that `ShowMessages` would restore, in order: the first MAX_RESTORABLE."""
        ...

    async def spent(self, session_id: str) -> Spent:
        """Returns the usage of the ended turns of a session."""
        ...

    def account(self, at: datetime) -> Account:
        """Returns the tenant's account with every commit whose future is done, and no other. Cheap.

        Args:
            at: A moment of the day and the month whose usage counts; at most a month before the newest usage.
        """
        ...

    async def usage(self, query: UsageQuery, page: Page) -> UsagePage:
        """Returns sums of usage, that of removed sessions included. Raises InvalidRequest on a bad page token.

        `page` has a size.
        """
        ...

    async def search(self, search: Search, place: bytes, size: int) -> SearchPage:
        """Returns a page of the hits of a search among the messages that are complete and shown.

        Pages stay in order when messages are stored or removed meanwhile, and none repeats a hit.

        Args:
            search: The search, and the order of its hits.
            place: `SearchPage.next_place` of the page before; b"" for the first.
            size: Maximum number of hits, at least 1; fewer are returned when they are large.

        Raises:
            SessionNotFound: the tenant has no session of one of the ids.
            SearchTooCostly: the search takes too long.
            TooManySearches: too many searches of the tenant, or of all tenants, run or wait.
            InvalidRequest: `place` is not of such a search.
        """
        ...

    async def open_calls(self, session_id: str, tools: frozenset[str], page: Page) -> OpenCallPage:
        """Returns a page of the calls that clients may run (`ToolUse.awaits_client`) in turns that have not ended.

        They come in the order in which they became ready to run. The cost depends on the open calls of the tenant, not
        on the length of its conversations. `page` has a size.

        Args:
            session_id: The session; "" for all of the tenant's.
            tools: Return only calls of these tools; empty for all.
            page: The requested page.

        Raises:
            InvalidRequest: the page token is not of this listing.
        """
        ...

    async def permission(self, session_id: str, permission_id: str) -> PermissionRequest:
        """Returns a permission request, open or not. Raises PermissionRequestNotFound, also without the session."""
        ...

    async def open_permissions(self, session_id: str | None, page: Page) -> PermissionPage:
        """Returns the open permission requests of a session, or of all the tenant's when None, oldest first.

        If the request after which a page of all sessions continues was deleted with its session, the first page is
        returned again.

        Raises:
            SessionNotFound: the tenant has no such session.
            InvalidRequest: the page token is not of this listing.
        """
        ...

    async def always_allowed(self, session_id: str) -> frozenset[str]:
        """Returns the patterns that were allowed for the rest of a session; empty for an unknown one."""
        ...

    async def asked_question(self, session_id: str, question_id: str) -> Question:
        """Returns a question, open or not. Raises QuestionNotFound, also without the session."""
        ...

    async def open_questions(self, session_id: str | None, page: Page) -> QuestionPage:
        """Returns the open questions of a session, or of all the tenant's when None, as `open_permissions` does."""
        ...

    async def pending_questions(self, session_id: str) -> tuple[HeldQuestion, ...]:
        """Returns the questions of a session that are open or whose call has yet to resume, oldest first."""
        ...

    async def session_file(self, session_id: str, sha256: str) -> bytes | None:
        """Returns the bytes of a file that a message of the session refers to; None when no message does."""
        ...

    async def files(self, hashes: Iterable[str]) -> Mapping[str, bytes]:
        """Returns the bytes of the tenant's stored files among these, by hash."""
        ...

    async def session_bounds(self, session_id: str) -> Bounds:
        """Returns the range of a session's sequences that is kept."""
        ...

    async def log_bounds(self) -> Bounds:
        """Returns the range of the tenant's log that is kept, apart from single sessions that lost old events."""
        ...

    async def session_events(self, session_id: str, after: int, kinds: frozenset[str] | None) -> EventPage:
        """Returns a page of a session's events after a sequence; reads about 64 KiB.

        At the end of the log `last` equals `after`.

        Args:
            session_id: The session; a deleted one still has its last event.
            after: Exclusive.
            kinds: Class names of events to read; None reads all.
        """
        ...

    async def log_events(self, after: int, kinds: frozenset[str] | None) -> EventPage:
        """Returns a page of all the tenant's events after a position; otherwise like `session_events`."""
        ...


class Store(Protocol):
    """Keeps the sessions of all tenants. Every method may raise a `StorageError`. Reads are safe to cancel."""

    def of(self, tenant: str) -> TenantStore:
        """Returns the store as one tenant sees it: the only way to read what the tenant has."""
        ...

    def commit(self, commit: Commit) -> "Future[Committed]":
        """Stores one unit of work. The call fixes its position in the order; await the future to know that it is
        durable.

        Commits waiting at the same time share one transaction, but each succeeds or fails alone. The future is done
        when the unit is durable and published. Cancelling it changes nothing: a unit is stored completely or not at
        all.

        Raises:
            SessionNotFound: the tenant has no such session (any more) and the commit does not create it.
            IdTaken: something that the commit creates has an id that is taken.
            StaleVersion: the session's settings were changed since they were read.
        """
        ...

    def follow(self, follower: Follower) -> None:
        """Registers a function to call with each further durable commit, before it is published."""
        ...

    async def unfinished_turns(self) -> tuple[Turn, ...]:
        """Returns headers (`Turn.header`) of all turns that have not ended, in the order of their acceptance."""
        ...

    async def turn_messages(self, turn_id: str) -> tuple[Message, ...]:
        """Returns the messages of a turn in order. Only the newest answer that has parts comes with them."""
        ...

    async def request(self, principal: Principal, request_id: str) -> StoredRequest | None:
        """Returns the remembered answer to a request of the principal's tenant and subject; None without one."""
        ...

    async def removals(self) -> None:
        """Returns when nothing is left of the sessions removed before this call. Safe to cancel.

        Raises:
            StorageError: the removal of an importing session had failed, and fails again.
        """
        ...

    @property
    def uploads(self) -> UploadStore:
        """The uploads of all tenants."""
        ...

    @property
    def token_key(self) -> bytes:
        """32 random bytes, the same for as long as the data is kept: the key of tokens that callers return."""
        ...

    def moment(self, tenant: str) -> Moment:
        """Returns a moment by which all published of the tenant had happened. Others do not advance it."""
        ...

    async def moment_after_reads(self, tenant: str, session_id: str) -> Moment:
        """Like `moment`, for everything that a read of the tenant's session has returned by now, published or not."""
        ...

    def standing(self, moment: Moment) -> Standing:
        """Returns whether a moment, of this run or an earlier one, belongs to the history of the log."""
        ...

    def own_files(self) -> frozenset[FileIdentity]:
        """Returns the files that hold the store's data, which nothing else may open. May be called on any thread."""
        ...

    async def aclose(self) -> None:
        """Stores the waiting commits, refuses new ones and closes the database. Idempotent."""
        ...
