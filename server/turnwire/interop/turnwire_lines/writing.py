"""Writes archives of Turnwire. Equal records give equal bytes."""

import msgspec

from turnwire.domain.archive.records import (
    ArchivedFile,
    ArchivedMessage,
    ArchivedSession,
    ArchivedTurn,
    Record,
    SessionEnd,
)
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.interop.turnwire_lines.lines import (
    FORMAT,
    MIME,
    VERSION,
    ArchiveEndLine,
    FileLine,
    Header,
    Line,
    MessageLine,
    SessionEndLine,
    SessionLine,
    TurnLine,
)

_encode = msgspec.json.Encoder(order="deterministic").encode


class LinesWriter:
    """Writes one archive; implements `ports.moving.archives.ArchiveWriter`."""

    mime = MIME

    def __init__(self, *, include_files: bool) -> None:
        """Takes whether the records include the bytes of files."""
        self._header = Header(format=FORMAT, version=VERSION, files=include_files)
        self._began = False
        self._sessions = self._files = self._turns = 0

    def write(self, record: Record) -> bytes:
        """Returns the line of a record, preceded by the header for the first one."""
        return self._begin() + _line(self._line_of(record))

    def end(self) -> bytes:
        """Returns the last line."""
        return self._begin() + _line(ArchiveEndLine(self._sessions))

    def _begin(self) -> bytes:
        if self._began:
            return b""
        self._began = True
        return _line(self._header)

    def _line_of(self, record: Record) -> Line:
        match record:
            case ArchivedSession(session):
                self._sessions += 1
                self._files = self._turns = 0
                return SessionLine(_of_no_server(session))
            case ArchivedFile(sha256, content):
                self._files += 1
                return FileLine(sha256, content)
            case ArchivedTurn(turn):
                self._turns += 1
                return TurnLine(_turn_of_no_server(turn))
            case ArchivedMessage(message, hidden, branch):
                return MessageLine(msgspec.structs.replace(message, previous_message_id=""), hidden, branch)
            case SessionEnd(messages):
                return SessionEndLine(self._files, self._turns, messages)


def _of_no_server(session: Session) -> Session:
    """Returns a session without what its server has assigned."""
    return msgspec.structs.replace(session, tenant=DEFAULT_TENANT, revision=1, queue_revision=0, head_sequence=0)


def _turn_of_no_server(turn: Turn) -> Turn:
    """Returns a turn without what is only meaningful on its server."""
    return msgspec.structs.replace(
        turn, tenant=DEFAULT_TENANT, subject="", traceparent="", resumes=0, start_sequence=0, end_sequence=0
    )


def _line(line: Line | Header) -> bytes:
    return _encode(line) + b"\n"
