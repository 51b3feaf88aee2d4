"""The kinds of lines, and the version of the format."""

from msgspec import Struct

from turnwire.domain.conversation.messages import Branch, Message
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn

FORMAT = "turnwire"
VERSION = 4
"""Increases when an older reader would lose or misread something: a new kind of line, or a new field of a value."""

MIME = "application/jsonl"


class Header(Struct, frozen=True, tag="archive", tag_field="kind", kw_only=True):
    """The first line. Readers accept unknown fields, because that of a newer version may have any."""

    format: str = ""
    version: int = 0
    files: bool = True
    """Whether the archive has the bytes of the files that its messages name."""


class SessionLine(Struct, frozen=True, tag="session", tag_field="kind", forbid_unknown_fields=True):
    """Begins a session."""

    session: Session


class FileLine(Struct, frozen=True, tag="file", tag_field="kind", forbid_unknown_fields=True):
    """A file."""

    sha256: str
    content: bytes
    """As base64."""


class TurnLine(Struct, frozen=True, tag="turn", tag_field="kind", forbid_unknown_fields=True):
    """A turn."""

    turn: Turn


class MessageLine(Struct, frozen=True, tag="message", tag_field="kind", forbid_unknown_fields=True, omit_defaults=True):
    """A message with its parts."""

    message: Message
    hidden: bool = False
    branch: Branch | None = None
    """Only for a hidden message that is off the path."""


class SessionEndLine(Struct, frozen=True, tag="session_end", tag_field="kind", forbid_unknown_fields=True):
    """Ends a session."""

    files: int
    turns: int
    messages: int


class ArchiveEndLine(Struct, frozen=True, tag="archive_end", tag_field="kind", forbid_unknown_fields=True):
    """The last line."""

    sessions: int


Line = SessionLine | FileLine | TurnLine | MessageLine | SessionEndLine | ArchiveEndLine
