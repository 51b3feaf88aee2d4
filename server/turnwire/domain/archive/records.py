"""The records of an archive, in the order in which they are written and read.

Each session is one run of records: `ArchivedSession`, then its files, turns and messages, then `SessionEnd`. A file
comes before the first message that refers to it, once in each session that does. Messages come in the order of the
conversation.

Ids are those of the archive. They are unique within a session at least, and are kept only where
`ArchiveReader.keeps_ids` says so. `Session.tenant`, `Turn.tenant` and `Turn.subject` mean nothing in a record.
"""

from msgspec import Struct

from turnwire.domain.conversation.messages import Branch, Message
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn


class ArchivedSession(Struct, frozen=True):
    """Begins a session."""

    session: Session


class ArchivedFile(Struct, frozen=True):
    """The bytes of a file."""

    sha256: str
    """Lower-case hexadecimal digest of the content."""
    content: bytes


class ArchivedTurn(Struct, frozen=True):
    """A turn that has ended."""

    turn: Turn


class ArchivedMessage(Struct, frozen=True):
    """A message of the conversation with its parts. It is final: its calls have their results."""

    message: Message
    hidden: bool = False
    """True if it was taken back or is off the path: no list shows it."""
    branch: Branch | None = None
    """Its position off the path; None for other messages. The message before it comes earlier."""


class SessionEnd(Struct, frozen=True):
    """Ends a session; missing in an archive that was cut off."""

    messages: int
    """Number of messages in the session, hidden ones included."""


class ImportProblem(Struct, frozen=True, kw_only=True):
    """Something that could not be carried over, unlike the rest of its session."""

    reason: str
    """A stable upper-case word."""
    explanation: str
    """A sentence for people."""
    line: int = 0
    """Line in the archive, from 1; 0 where the format has no lines."""
    place: str = ""
    """Path of the value, such as "mapping.4f.message.content.parts[1]"; "" for the whole session."""
    source_id: str = ""
    """Id of the session in the archive; "" when it concerns none."""


Record = ArchivedSession | ArchivedFile | ArchivedTurn | ArchivedMessage | SessionEnd
