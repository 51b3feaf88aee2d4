"""Pages: the requests to a list or a log, and their results."""

from msgspec import Struct

from turnwire.domain.conversation.events import Event
from turnwire.domain.conversation.messages import Message, Part
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.questions import Question
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import QueueEntry, Turn


class Bounds(Struct, frozen=True):
    """The range of a log that is kept."""

    earliest: int
    """Events after this one are kept; 0 if all are."""
    head: int
    """The newest event; 0 if there is none."""


class PrunedSession(Struct, frozen=True):
    """A session that lost events after the start of a page of all events."""

    session_id: str
    earliest: int
    """Its events after this sequence are kept."""
    position: int
    """Position of the newest event that it lost."""


class EventPage(Struct, frozen=True):
    """Some events of a log."""

    events: tuple[Event, ...]
    """In order."""
    frames: tuple[bytes, ...]
    """The same events as frames."""
    last: int
    """Position up to which the log was read, whether or not the events there passed the filter."""
    earliest: int = 0
    """Events after this one were kept when the page was read; in a page of all events, except for sessions in `pruned`.
    """
    pruned: tuple[PrunedSession, ...] = ()
    """For a page of all events: the sessions that lost events after the page's start."""
    settled: int = 0
    """For a page of all events: no further event of the tenant can appear up to this position."""
    timeline: str = ""
    """For a page of all events: the newest timeline of the database, which another node may have begun."""


class Page(Struct, frozen=True, kw_only=True):
    """A request for a page of messages or sessions."""

    size: int | None = None
    """None reads all."""
    token: str = ""
    """`next_token` of the page before; "" starts at the beginning."""
    newest_first: bool = False
    max_bytes: int | None = None
    """Maximum size of a page without a number of rows: the oldest rows are left out (of sessions, the least recently
    changed). None sets no limit."""


class MessagePage(Struct, frozen=True):
    """Some messages of a session."""

    messages: tuple[Message, ...]
    next_token: str
    sequence: int
    """The session's head when the page was read."""


class DisplayPage(Struct, frozen=True):
    """The display forms of some messages of a session."""

    frames: bytes
    """Joined frames."""
    next_token: str
    truncated: bool = False
    """Older messages were left out: they would not fit into `Page.max_bytes`."""


class SessionPage(Struct, frozen=True):
    """Some sessions, most recently updated first."""

    sessions: tuple[Session, ...]
    next_token: str
    truncated: bool = False
    """Further sessions were left out: they would not fit into `Page.max_bytes`."""


class QueuePage(Struct, frozen=True):
    """Some waiting messages of a session, next first, as of one moment."""

    entries: tuple[QueueEntry, ...]
    messages: tuple[Message, ...]
    """The messages of the entries, in their order."""
    revision: int
    """Revision of the queue."""
    next_token: str


class AlternativesPage(Struct, frozen=True):
    """Some messages with the same message before them, oldest first, as of one moment."""

    messages: tuple[Message, ...]
    selected_message_id: str
    """The message on the path; "" if none is."""
    next_token: str


class OpenCall(Struct, frozen=True):
    """A call that a client may run, with its location."""

    session_id: str
    message_id: str
    turn_id: str
    part: Part
    """The part that holds the call."""


class OpenCallPage(Struct, frozen=True):
    """Some open calls, in the order in which they became ready to run."""

    calls: tuple[OpenCall, ...]
    next_token: str


class PermissionPage(Struct, frozen=True):
    """Some open permission requests, oldest first."""

    permissions: tuple[PermissionRequest, ...]
    next_token: str


class QuestionPage(Struct, frozen=True):
    """Some open questions, oldest first."""

    questions: tuple[Question, ...]
    next_token: str


class TurnPage(Struct, frozen=True):
    """Some turns of a session, in the order in which their messages were accepted."""

    turns: tuple[Turn, ...]
    next_token: str
