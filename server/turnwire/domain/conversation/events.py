"""Events: facts about a session.

A durable event is stored in the transaction that makes it true, and gets its sequence there. The others are hints for
current watchers; each can be rebuilt from the store and from the streaming message.
"""

from datetime import datetime, timedelta
from enum import Enum

from msgspec import Struct

from turnwire.domain.conversation.messages import Compaction, Failure, Message, ModelRef, Part, ToolUse
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionRequest
from turnwire.domain.conversation.questions import Question, QuestionAnswer
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import QueueEntry, Turn


class SessionView(Struct, frozen=True):
    """A session and the current state of its turns."""

    session: Session
    active_turn_id: str = ""
    """"" when idle."""
    queue: tuple[QueueEntry, ...] = ()
    """Waiting messages, next first."""
    open_requests: int = 0
    """Number of open permission requests, questions and calls of client tools for which the running turn waits."""


class SessionCreated(Struct, frozen=True):
    """The session was created."""

    view: SessionView


class SessionUpdated(Struct, frozen=True):
    """The session's title, directory, model or agent changed."""

    view: SessionView


class SessionDeleted(Struct, frozen=True):
    """The session was deleted; its last event."""


class SessionStatusChanged(Struct, frozen=True):
    """The session became running or idle."""

    running: bool


class TurnStarted(Struct, frozen=True):
    """A turn began; its user message is now part of the conversation. The store fills in the sequence."""

    turn: Turn


class TurnEnded(Struct, frozen=True):
    """A turn ended; its last event. The store fills in the sequences."""

    turn: Turn


class MessageAdded(Struct, frozen=True):
    """A message was stored; an assistant message has no parts yet. The store fills in the message before it."""

    message: Message
    session_title: str = ""
    """The title that its session has from now on because of this message; "" when it did not change. Assigned by the
    store."""


class MessageFinished(Struct, frozen=True):
    """An assistant message ended; carries the message without its parts. The store fills in the message before it."""

    message: Message


class MessageRemoved(Struct, frozen=True):
    """A message was removed."""

    message_id: str


class PartFinished(Struct, frozen=True):
    """A part is complete or was cut off; carries the complete part."""

    message_id: str
    part: Part


class ToolCallUpdated(Struct, frozen=True):
    """A tool call changed."""

    message_id: str
    part_id: str
    part_index: int
    call: ToolUse


class QueueChanged(Struct, frozen=True):
    """The waiting messages changed."""

    entries: tuple[QueueEntry, ...] = ()
    """Next first. In a commit, those that the committer knows; the store replaces them with the stored ones."""
    revision: int = 0
    """Grows with every change in the session. Assigned by the store."""


class PermissionAsked(Struct, frozen=True):
    """A tool call requires permission."""

    permission: PermissionRequest


class PermissionReplied(Struct, frozen=True):
    """A permission request was answered, or ended with its turn."""

    permission_id: str
    tool_call_id: str
    answer: PermissionAnswer


class QuestionAsked(Struct, frozen=True):
    """A running tool call asks a person."""

    question: Question


class QuestionAnswered(Struct, frozen=True):
    """A question was answered, expired, or ended with its call. Never has what was filled in."""

    question_id: str
    tool_call_id: str
    answer: QuestionAnswer


class ContextCompacted(Struct, frozen=True):
    """Older messages were summarised; the summary was stored just before."""

    message_id: str
    """The summary."""
    compaction: Compaction


class MessageReplaced(Struct, frozen=True):
    """A stored message was replaced; carries the complete new one. The store fills in the message before it."""

    message: Message


class ConversationChange(Enum):
    """Why a conversation changed."""

    CLEARED = "cleared"
    REVERTED = "reverted"
    RESTORED = "restored"
    ALTERNATIVE_SELECTED = "alternative_selected"
    FORKED = "forked"
    IMPORTED = "imported"


class ConversationChanged(Struct, frozen=True):
    """Messages left the conversation or joined it. The store fills in the last one that stays."""

    change: ConversationChange
    kept_through_message_id: str | None
    """The last message that stays; None when no message stays. Waiting messages stay."""
    reread: bool = False
    """True when messages were added without a MessageAdded event."""


class TurnSteered(Struct, frozen=True):
    """A waiting message joined the running turn; it is now part of the conversation."""

    user_message_id: str
    into_turn_id: str


DurableKind = (
    SessionCreated
    | SessionUpdated
    | SessionDeleted
    | SessionStatusChanged
    | TurnStarted
    | TurnEnded
    | MessageAdded
    | MessageFinished
    | MessageRemoved
    | PartFinished
    | ToolCallUpdated
    | QueueChanged
    | PermissionAsked
    | PermissionReplied
    | QuestionAsked
    | QuestionAnswered
    | ContextCompacted
    | MessageReplaced
    | ConversationChanged
    | TurnSteered
)

UNFILTERED_KINDS = frozenset({MessageReplaced.__name__, ConversationChanged.__name__})
"""Class names of the durable kinds that every watch gets, even if not requested: without them a client would keep
messages that are gone."""


class PartStarted(Struct, frozen=True):
    """A part began. Not durable."""

    message_id: str
    part: Part


class PartDelta(Struct, frozen=True):
    """Text was added to a streaming part. Not durable."""

    message_id: str
    part_index: int
    offset: int
    """Length of the part before this text, in UTF-8 bytes."""
    text: str
    """Never splits a code point."""


class RetryScheduled(Struct, frozen=True):
    """A model call failed before its first content and will be retried. Not durable."""

    message_id: str
    failure: Failure
    attempt: int
    """Number of the failed attempt, from 1 for each model."""
    delay: timedelta | None
    """Time until the next attempt; None when another model is called at once."""
    model: ModelRef
    """The model to call next."""


class MessageSnapshot(Struct, frozen=True):
    """The streaming message with its content so far. Not durable."""

    message: Message


class SessionSnapshot(Struct, frozen=True):
    """The current state of the session. Not durable."""

    view: SessionView


class CaughtUp(Struct, frozen=True):
    """All stored events have been delivered. Not durable."""

    head: int | None
    """The session's newest sequence; None in a watch of all sessions."""


class Heartbeat(Struct, frozen=True):
    """The stream is alive. Not durable."""

    head: int | None
    """The session's newest sequence; None in a watch of all sessions."""


class ResyncReason(Enum):
    """Why a watch cannot continue from its position."""

    PRUNED = "pruned"
    HISTORY_REPLACED = "history_replaced"
    NOT_KNOWN = "not_known"


class Resync(Struct, frozen=True):
    """The watch cannot continue from its position: read the session, or all sessions, again. Not durable."""

    reason: ResyncReason
    earliest: int | None = None
    """The session's events after this sequence are kept; None when unknown."""


class ToolLog(Struct, frozen=True):
    """A log line of a tool that the server runs. Not durable; the call keeps the line in its logs."""

    message_id: str
    part_index: int
    line_index: int
    """Index of the line in the logs of the call, from 0."""
    text: str


class CompactionStarted(Struct, frozen=True):
    """Older messages are being summarised. Not durable."""

    message_count: int
    estimated_tokens: int
    """Estimated tokens of the request that did not fit."""
    context_window_tokens: int


class PermissionSnapshot(Struct, frozen=True):
    """An open permission request. Not durable."""

    permission: PermissionRequest


class QuestionSnapshot(Struct, frozen=True):
    """An open question. Not durable."""

    question: Question


EphemeralKind = (
    PartStarted
    | PartDelta
    | ToolLog
    | RetryScheduled
    | CompactionStarted
    | PermissionSnapshot
    | QuestionSnapshot
    | MessageSnapshot
    | SessionSnapshot
    | CaughtUp
    | Heartbeat
    | Resync
)


class Event(Struct, frozen=True, kw_only=True):
    """One event. The store assigns sequence and position of a durable one; both are 0 otherwise.

    The position counts the events of all sessions. Clients never see it.
    """

    session_id: str
    kind: DurableKind | EphemeralKind
    at: datetime | None = None
    """None in part deltas."""
    turn_id: str = ""
    sequence: int = 0
    position: int = 0
