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
    """Invisible and counted nowhere while it is stored in parts. The next start removes sessions that were not
    published."""
    LIVE = "live"
    """Visible to its tenant."""
    DELETING = "deleting"
    """Invisible again while its rows are removed in steps."""


class PutSession(Struct, frozen=True):
    """Creates the commit's session (revision 1) or replaces its settings (the stored revision plus 1).

    First words are stored with a new session; those of a stored session stay as they are. `ports.store.Store.commit`
    raises IdTaken if a session with the id of the new one exists in any tenant; for an imported one (`Commit.state`)
    also while events of another tenant's session with that id are still stored.
    """

    session: Session
    joins: str = ""
    """The session of the same tenant that an imported one is to join (`JoinSession`); "" if it joins none."""


class NoteFirstWords(Struct, frozen=True):
    """Gives the commit's session the first words of a message. Does nothing if the session already has some.

    Otherwise, unless a title is set, the store reports them with the MessageAdded of the message, in the same commit.
    """

    message_id: str
    first_words: str


class PublishSession(Struct, frozen=True):
    """Makes the commit's session, imported until now, visible.

    If a session with this id was deleted before, its sequences continue. `ports.store.Store.commit` raises StorageError
    when messages are missing.
    """

    messages: int
    """Number of its messages."""
    updated_at: datetime
    """Time of its last change; the commit's own time is that of its events."""


class JoinSession(Struct, frozen=True):
    """Appends everything that was imported as a session to the conversation of the commit's session.

    The imported messages and turns already name the commit's session. The commit has a ConversationChanged for clients.
    `ports.store.Store.commit` raises StorageError when messages are missing.
    """

    imported_id: str
    """The imported session. It no longer exists afterwards, and no event reports that."""
    messages: int
    """Number of its messages."""
    updated_at: datetime
    """Time of the last change of the commit's session; the commit's own time is that of its events."""


class MarkArchived(Struct, frozen=True):
    """Archives the commit's session or takes it out of the archive. Does nothing if it is already in that state.

    Otherwise the store adds a SessionUpdated after the commit's own events.
    """

    is_archived: bool
    active_turn_id: str = ""
    """Active turn of the session as the event shows it, like the next two fields."""
    queue: tuple[QueueEntry, ...] = ()
    open_requests: int = 0


class RemoveSession(Struct, frozen=True):
    """Removes the commit's session with its turns, messages, events, requests, and files that no other session uses.

    Readers stop finding it at once. The commit itself removes the first rows, for a small session all of them; the
    store removes the rest later in small steps, also after a restart. An importing session is discarded; the store
    repeats that when it fails.
    """


class PutTurn(Struct, frozen=True):
    """Creates or replaces a turn."""

    turn: Turn
    keeps_settings: bool = False
    """True keeps the tools and the system prompt of a stored turn as they are; `turn` may then be a header."""


class PutMessage(Struct, frozen=True):
    """Creates or replaces a message.

    A new message goes to the end of its session. Queued messages sort after all others; a message that is no longer
    queued moves to the end of the others. The store keeps which message precedes it and ignores `previous_message_id`.
    Drafts of the message are dropped.
    """

    message: Message
    at_end: bool = False
    """True moves a stored message to the end; the message after it then follows the one before it."""
    is_hidden: bool = False
    """True stores a new message as one that was taken back and that nothing restores."""
    branch: Branch | None = None
    """The branch on which a new message is stored off the path; None stores it on the path."""


class PutDraft(Struct, frozen=True):
    """Adds a draft to a stored message that streams. Readers see the message with all of its drafts.

    Drafts do not count in any account. `ports.store.Store.commit` raises StorageError if the session has no such
    message.
    """

    draft: Draft


class HideMessages(Struct, frozen=True):
    """Takes messages out of the conversation; they stay stored. The commit's first event is a ConversationChanged.

    `ports.store.Store.commit` raises MessageNotFound when the conversation does not have the message.
    """

    from_message_id: str
    """The first of them; all later messages follow it, except those that wait. "" hides all."""


class ShowMessages(Struct, frozen=True):
    """Restores the messages that were hidden last. The commit's first event is a ConversationChanged.

    `ports.store.Store.commit` raises NothingToRestore if nothing is hidden or a turn has begun since.
    """


class PathEnd(Enum):
    """The end of a path that leads through a message."""

    NEWEST = "newest"
    """After it, along the newest alternative of each message."""
    HERE = "here"
    """At the message."""
    BEFORE = "before"
    """At the message before it; if there is none, the path is empty."""


class SelectPath(Struct, frozen=True):
    """Leads the path of the conversation through a message, which may be off it. A ConversationChanged reports it.

    Messages that leave the path stay stored as alternatives. Waiting messages are not affected. A message whose other
    answers return gets back the turn that it had with them. If nothing changes, there is no event.
    `ports.store.Store.commit` raises MessageNotFound if the session does not have the message, if the message waits, or
    if it or a message before it was taken back.
    """

    message_id: str
    end: PathEnd


class RemoveMessage(Struct, frozen=True):
    """Removes a message with its parts. Does nothing if it does not exist."""

    message_id: str


class OrderQueue(Struct, frozen=True):
    """Sets the order of the waiting messages. Those that it does not name come first, in their present order."""

    message_ids: tuple[str, ...]
    """Next first; those that do not wait are ignored."""


class RequireQueueRevision(Struct, frozen=True):
    """Makes the commit fail with StaleVersion unless the session's queue has this revision."""

    revision: int


class RequireHead(Struct, frozen=True):
    """Makes the commit fail with StaleVersion unless the session still has this head: nothing has happened since."""

    sequence: int


class RequireQuota(Struct, frozen=True):
    """Makes the commit fail with QuotaExceeded if it adds to what its tenant stores and the sum exceeds a limit.

    An importing session counts here as if it were live. 0 sets no limit.
    """

    max_sessions: int
    max_stored_bytes: int


class PutFile(Struct, frozen=True):
    """Stores bytes under their hash. Does nothing if they are already stored."""

    sha256: str
    content: bytes


class UseUpload(Struct, frozen=True):
    """Stores the bytes of a complete upload of the session's tenant as a file, and uses the upload up.

    The bytes count once: for the file. A used upload can still be found (`UploadStore.upload`), so that a retry differs
    from a new request. `ports.store.Store.commit` raises UploadNotFound if the tenant has no such upload or has already
    used it.
    """

    upload_id: str
    sha256: str
    """Digest of the upload."""
    known_until: datetime
    """Moment from which it may be forgotten; before that it is forgotten only if it would have expired."""


FileChange = PutFile | UseUpload
"""The changes that store bytes as a file to which a message may refer."""


class RecordRequest(Struct, frozen=True):
    """Remembers the answer to a named request for as long as the session lives."""

    principal: Principal
    """The caller that named the request; its tenant and subject count."""
    request_id: str
    fingerprint: str
    """Digest of the request's content."""
    receipt_json: str
    """The response, opaque to the store, which keeps the sequence before the request's first event with it."""
    events_before: int = 0
    """Number of the commit's events that belong to requests carried out before this one."""


class PutPermission(Struct, frozen=True):
    """Creates or replaces a permission request."""

    permission: PermissionRequest


class PutQuestion(Struct, frozen=True):
    """Creates or replaces a question."""

    question: Question
    hold: QuestionHold | None = None
    """The state with which its call resumes. None stores no state and drops an earlier one."""


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
    """Tenant of the session. For the commit, a session of another tenant does not exist."""
    session_id: str
    state: SessionState = SessionState.LIVE
    """State of its session. For the commit, a session in another state does not exist. It is IMPORTING in the commit
    that creates an importing session and in each further part, up to the one with PublishSession."""
    at: datetime
    """Time of its events and of the session's last change."""
    changes: tuple[Change, ...] = ()
    """Applied in order."""
    events: tuple[NewEvent, ...] = ()
    """Given sequences in order, after the changes."""


class Rewound(Struct, frozen=True):
    """The effect of HideMessages, ShowMessages or SelectPath."""

    messages: int
    """Number of messages that were hidden or restored; for a new path, of those that left or joined it."""
    kept_through_message_id: str | None
    """The last message before them; None if they are the first."""
    joined: int = 0
    """Number of messages on the new path that were not on the old one."""


class Committed(Struct, frozen=True):
    """The sequences before and after a commit."""

    before_sequence: int
    """The session's head before the commit; equal to `sequence` when it had no events."""
    sequence: int
    """The session's head after the commit."""
    previous_message_ids: dict[str, str] = {}
    """Id of the message before each message of the commit, by message id; none for queued ones and the session's first.
    """
    rewound: Rewound | None = None
    """None for a commit without HideMessages, ShowMessages and SelectPath."""
    alternatives: dict[str, tuple[int, int]] = {}
    """Number of alternatives of each message of the commit, and its position among them, by id; only of those with any.
    """
    queue_revision: int = 0
    """Revision of the queue after the commit; 0 for a commit without QueueChanged."""


class Work(Struct, frozen=True):
    """Changes to store and events to publish, each in order."""

    changes: tuple[Change, ...] = ()
    events: tuple[NewEvent, ...] = ()

    def __add__(self, other: "Work") -> "Work":
        return Work(self.changes + other.changes, self.events + other.events)


def joined_work(units: Iterable[Work]) -> Work:
    """Returns the units as one. A message that several of them change is written once, in its last version.

    The units follow each other: a later version of a message contains the earlier ones. Each RecordRequest gets the
    number of events before its unit.
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
