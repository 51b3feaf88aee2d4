"""A commit: one unit of work in one session, as a value. See `turnwire.ports.store` for what it means to store one."""

from datetime import datetime

from msgspec import Struct

from turnwire.domain.conversation.events import DurableKind
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn


class PutSession(Struct, frozen=True):
    """Creates the commit's session (revision 1) or replaces its settings (revision one more than the stored one's)."""

    session: Session


class RemoveSession(Struct, frozen=True):
    """Removes the commit's session with its turns, messages, events, requests, and files that no other session uses."""


class PutTurn(Struct, frozen=True):
    """Creates or replaces a turn."""

    turn: Turn


class PutMessage(Struct, frozen=True):
    """Creates or replaces a message: its header, its display form and some of its parts.

    A new message takes the last place of its session. A queued message stands behind all others; once it is stored
    with another status it takes the last place among those.
    """

    message: Message
    """With all its parts: the display form is made of them."""
    part_indexes: tuple[int, ...]
    """The parts to write. The others must be stored already, unchanged."""

    @classmethod
    def whole(cls, message: Message) -> "PutMessage":
        """Returns the change that writes a message with all of its parts."""
        return cls(message, tuple(range(len(message.parts))))


class RemoveMessage(Struct, frozen=True):
    """Removes a message with its parts. Nothing happens when it is not there."""

    message_id: str


class PutFile(Struct, frozen=True):
    """Stores bytes under their hash. Nothing happens when they are there."""

    sha256: str
    content: bytes


class RecordRequest(Struct, frozen=True):
    """Remembers the answer to a named request as long as the session lives."""

    request_id: str
    fingerprint: str
    """Digest of the request's content."""
    receipt_json: str
    """The answer; opaque to the store, which keeps the sequence beside it."""


class PutPermission(Struct, frozen=True):
    """Creates or replaces a permission request."""

    permission: PermissionRequest


Change = PutSession | RemoveSession | PutTurn | PutMessage | RemoveMessage | PutFile | RecordRequest | PutPermission


class NewEvent(Struct, frozen=True):
    """A durable event that has no sequence yet."""

    kind: DurableKind
    turn_id: str = ""


class Commit(Struct, frozen=True, kw_only=True):
    """One unit of work in one session."""

    session_id: str
    at: datetime
    """Time of its events and of the session's last change."""
    changes: tuple[Change, ...] = ()
    """Carried out in order."""
    events: tuple[NewEvent, ...] = ()
    """Given sequences in order, after the changes."""


class Committed(Struct, frozen=True):
    """Where a commit stands in its session."""

    before_sequence: int
    """The session's head before the commit; equal to `sequence` when it had no events."""
    sequence: int
    """The session's head after the commit."""
