"""A commit: one unit of work in one session, as a value. See `turnwire.ports.store` for what it means to store one."""

from collections.abc import Iterable
from datetime import datetime
from enum import Enum, StrEnum

import msgspec
from msgspec import Struct

from turnwire.domain.accounts import Spending
from turnwire.domain.conversation.events import DurableKind
from turnwire.domain.conversation.messages import Branch, Draft, Message
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.questions import Question, QuestionHold
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import QueueEntry, Turn
from turnwire.domain.principal import DEFAULT_TENANT, Principal


class SessionState(StrEnum):
    """The visibility of a session."""

    IMPORTING = "importing"
    """Invisible: it is stored in parts, and counts nowhere. The next start removes sessions that were not published."""
    LIVE = "live"
    """Visible to its tenant."""
    DELETING = "deleting"
    """Invisible again: its rows are removed in steps."""


class PutSession(Struct, frozen=True):
    """Creates the commit's session (revision 1) or replaces its settings (the stored revision plus 1).

    First words are stored with a new session; those of one that is changed stay as they are.

    `ports.store.Store.commit` raises IdTaken when a session is to be created whose id exists, in any tenant; for one
    that is imported (`Commit.state`) also while events are left of another tenant's session with the id.
    """

    session: Session
    joins: str = ""
    """The session of the same tenant that an imported one is to join (`JoinSession`); "" for none."""


class NoteFirstWords(Struct, frozen=True):
    """Gives the commit's session the first words of a message. Does nothing when it has some already.

    Otherwise, unless a title is set, the store tells them with the MessageAdded of the message, in the same commit.
    """

    message_id: str
    first_words: str


class PublishSession(Struct, frozen=True):
    """Makes the commit's session, which was imported until now, visible as a whole.

    Where a session of this id was deleted before, its sequences go on. `ports.store.Store.commit` raises StorageError
    when messages are missing.
    """

    messages: int
    """How many messages it has."""
    updated_at: datetime
    """When it has changed last; the commit's own time is that of its events."""


class JoinSession(Struct, frozen=True):
    """Puts all that a session has which was imported for it behind the conversation of the commit's session.

    Its messages and turns name the commit's session already. The commit has a ConversationChanged for clients.
    `ports.store.Store.commit` raises StorageError when messages are missing.
    """

    imported_id: str
    """The session that was imported; it is gone afterwards, and no event says so."""
    messages: int
    """How many messages it has."""
    updated_at: datetime
    """When the commit's session has changed last; the commit's own time is that of its events."""


class MarkArchived(Struct, frozen=True):
    """Archives the commit's session, or takes it out of the archive. Does nothing when it is so already.

    Otherwise the store tells it with a SessionUpdated, after the commit's own events.
    """

    is_archived: bool
    active_turn_id: str = ""
    """Active turn of the session as the event shows it, like the next two fields."""
    queue: tuple[QueueEntry, ...] = ()
    open_requests: int = 0


class RemoveSession(Struct, frozen=True):
    """Removes the commit's session with its turns, messages, events, requests, and files that no other session uses.

    It is gone for all readers at once, and with it the first rows; of a small session, all. The store removes the rest
    afterwards, in small steps, also after a restart. An importing session is given up.
    """


class PutTurn(Struct, frozen=True):
    """Creates or replaces a turn."""

    turn: Turn
    keeps_settings: bool = False
    """True leaves the tools and the system prompt of a stored turn as they are; `turn` may be a header then."""


class PutMessage(Struct, frozen=True):
    """Creates or replaces a message.

    A new message goes to the end of its session. Queued messages sort behind all others; one that is no longer queued
    moves to the end of the others. The store keeps which message is before it, whatever `previous_message_id` has. The
    drafts that it had are dropped.
    """

    message: Message
    at_end: bool = False
    """True moves a stored message to the end; the message behind it then follows the one before it."""
    is_hidden: bool = False
    """True stores a new message as one that was taken back, and that nothing brings back again."""
    branch: Branch | None = None
    """Stores a new message off the path; None on it."""


class PutDraft(Struct, frozen=True):
    """Adds a draft to a stored message that streams: readers see the message with all of its drafts.

    Drafts count in no account. `ports.store.Store.commit` raises StorageError when the session has no such message.
    """

    draft: Draft


class HideMessages(Struct, frozen=True):
    """Takes messages out of the conversation; they stay stored. The commit's first event is a ConversationChanged.

    `ports.store.Store.commit` raises MessageNotFound when the conversation does not have the message.
    """

    from_message_id: str
    """The first of them; all behind it follow, but for those that wait. "" hides all."""


class ShowMessages(Struct, frozen=True):
    """Brings back what was hidden last. The commit's first event is a ConversationChanged.

    `ports.store.Store.commit` raises NothingToRestore when nothing is hidden, or a turn began since.
    """


class PathEnd(Enum):
    """Where a path ends that leads through a message."""

    NEWEST = "newest"
    """Behind it, where the newest alternative of each message leads."""
    HERE = "here"
    """With the message."""
    BEFORE = "before"
    """With the message before it; without one, the path is empty."""


class SelectPath(Struct, frozen=True):
    """Leads the path of the conversation through a message, which may be off it. A ConversationChanged tells it.

    What leaves the path stays stored, as alternatives. Messages that wait are not concerned. A message that gets other
    answers back gets the turn back that it had with them. When nothing changes, there is no event.

    `ports.store.Store.commit` raises MessageNotFound when the session does not have the message, when it waits, and
    when it or a message before it was taken back.
    """

    message_id: str
    end: PathEnd


class RemoveMessage(Struct, frozen=True):
    """Removes a message with its parts. Does nothing when there is no such message."""

    message_id: str


class OrderQueue(Struct, frozen=True):
    """Gives the waiting messages an order. Those that it does not name come first, in the order that they have."""

    message_ids: tuple[str, ...]
    """Next first; those that do not wait are ignored."""


class RequireQueueRevision(Struct, frozen=True):
    """Lets the commit fail with StaleVersion unless the session's queue has this revision."""

    revision: int


class RequireHead(Struct, frozen=True):
    """Lets the commit fail with StaleVersion unless the session has this head: nothing happened since it was read."""

    sequence: int


class RequireQuota(Struct, frozen=True):
    """Lets the commit fail with QuotaExceeded if it adds to what its tenant has and that is more than it may have then.

    An importing session counts for this as if it was live. 0 sets no limit.
    """

    max_sessions: int
    max_stored_bytes: int


class PutFile(Struct, frozen=True):
    """Stores bytes under their hash. Does nothing when they are stored already."""

    sha256: str
    content: bytes


class UseUpload(Struct, frozen=True):
    """Stores the bytes of a complete upload of the session's tenant as a file, and uses the upload up.

    The bytes count once: for the file. The upload can still be found as one that is used (`UploadStore.upload`), so
    that a retry differs from a new request. `ports.store.Store.commit` raises UploadNotFound when the tenant has no
    such upload, or has used it.
    """

    upload_id: str
    sha256: str
    """The digest that the upload has."""
    known_until: datetime
    """When it may be forgotten; before that it is forgotten only if it would have expired."""


FileChange = PutFile | UseUpload
"""The changes that make bytes a file that a message may refer to."""


class RecordRequest(Struct, frozen=True):
    """Remembers the answer to a named request for as long as the session lives."""

    principal: Principal
    """The caller that named the request: tenant and subject count."""
    request_id: str
    fingerprint: str
    """Digest of the request's content."""
    receipt_json: str
    """The response; opaque to the store, which keeps the sequence before the request's first event with it."""
    events_before: int = 0
    """How many events of the commit are those of other requests, which were carried out before."""


class PutPermission(Struct, frozen=True):
    """Creates or replaces a permission request."""

    permission: PermissionRequest


class PutQuestion(Struct, frozen=True):
    """Creates or replaces a question."""

    question: Question
    hold: QuestionHold | None = None
    """The state with which its call resumes after it. None keeps nothing, and drops the earlier state."""


class AddSpending(Struct, frozen=True):
    """Adds to the account of the session's tenant. Stays when the session is removed."""

    spending: Spending


Change = (
    PutSession
    | NoteFirstWords
    | PublishSession
    | JoinSession
    | MarkArchived
    | RemoveSession
    | PutTurn
    | PutMessage
    | PutDraft
    | HideMessages
    | ShowMessages
    | SelectPath
    | RequireHead
    | RequireQueueRevision
    | RequireQuota
    | OrderQueue
    | RemoveMessage
    | PutFile
    | UseUpload
    | RecordRequest
    | PutPermission
    | PutQuestion
    | AddSpending
)


class NewEvent(Struct, frozen=True):
    """A durable event that has no sequence yet."""

    kind: DurableKind
    turn_id: str = ""


class Commit(Struct, frozen=True, kw_only=True):
    """One unit of work in one session."""

    tenant: str = DEFAULT_TENANT
    """The tenant of the session: to a commit, a session of another tenant does not exist."""
    session_id: str
    state: SessionState = SessionState.LIVE
    """That of its session: to a commit, one of another state does not exist. What creates an importing session and each
    further part of it has IMPORTING, up to the one with PublishSession."""
    at: datetime
    """Time of its events and of the session's last change."""
    changes: tuple[Change, ...] = ()
    """Applied in order."""
    events: tuple[NewEvent, ...] = ()
    """Given sequences in order, after the changes."""


class Rewound(Struct, frozen=True):
    """The effect of HideMessages, ShowMessages or SelectPath."""

    messages: int
    """How many messages were hidden, or brought back; of a new path, how many left or joined it."""
    kept_through_message_id: str | None
    """The last message before them; None when they are the first ones."""
    joined: int = 0
    """How many messages a new path has that the old one had not."""


class Committed(Struct, frozen=True):
    """The sequences before and after a commit."""

    before_sequence: int
    """The session's head before the commit; equal to `sequence` when it had no events."""
    sequence: int
    """The session's head after the commit."""
    previous_message_ids: dict[str, str] = {}
    """The message before each message of the commit, by its id. Without queued messages and the session's first one."""
    rewound: Rewound | None = None
    """None for a commit without HideMessages, ShowMessages and SelectPath."""
    alternatives: dict[str, tuple[int, int]] = {}
    """How many alternatives each message of the commit has, and its place among them, by its id; those with any."""
    queue_revision: int = 0
    """That of the queue after the commit; 0 for a commit without QueueChanged."""


class Work(Struct, frozen=True):
    """Changes to store and events to publish, each in order."""

    changes: tuple[Change, ...] = ()
    events: tuple[NewEvent, ...] = ()

    def __add__(self, other: "Work") -> "Work":
        return Work(self.changes + other.changes, self.events + other.events)


def joined_work(units: Iterable[Work]) -> Work:
    """Returns units as one. A message that several of them change is written once, as the last one has it.

    The units follow each other: what a later one writes of a message contains what the earlier ones wrote. What is
    remembered of a request knows how many events come before its unit.
    """
    changes: list[Change] = []
    events: list[NewEvent] = []
    written: dict[str, int] = {}
    for unit in units:
        before = len(events)
        events += unit.events
        for change in unit.changes:
            if isinstance(change, RecordRequest):
                changes.append(msgspec.structs.replace(change, events_before=before))
                continue
            if not isinstance(change, PutMessage):
                if isinstance(change, RemoveMessage):
                    written.pop(change.message_id, None)
                changes.append(change)
                continue
            message_id = change.message.message_id
            at = written.setdefault(message_id, len(changes))
            if at == len(changes):
                changes.append(change)
                continue
            earlier = changes[at]
            if not isinstance(earlier, PutMessage):
                raise TypeError(f"{earlier!r} writes no message")
            changes[at] = msgspec.structs.replace(change, at_end=earlier.at_end or change.at_end)
    return Work(tuple(changes), tuple(events))
