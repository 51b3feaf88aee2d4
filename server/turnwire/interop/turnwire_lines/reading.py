"""Reads archives of Turnwire. An archive is foreign input: every line and value is bounded and checked."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import BinaryIO

import msgspec

from turnwire.domain.archive.checks import WrongValue, check_record
from turnwire.domain.archive.records import (
    ArchivedFile,
    ArchivedMessage,
    ArchivedSession,
    ArchivedTurn,
    ImportProblem,
    Record,
    SessionEnd,
)
from turnwire.domain.conversation.messages import File, Message
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import ArchiveInvalid, InvalidRequest
from turnwire.interop.turnwire_lines.lines import (
    FORMAT,
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

MAX_TEXTS = 500_000
"""Maximum JSON texts and keys of one line: small ones take far more time and memory than their bytes. A message of
10,000 parts has less than half as many."""
_COUNTED_BYTES = 2**22
"""Bytes counted at once, in some milliseconds in which nothing else runs."""

_ID = re.compile(r"(ses|msg|trn|prt)_[0-9a-f]{32}")

_BEGINNING = b'{"kind":"archive"'
_OTHER = "if another system wrote it, name its format"
_NO_HEADER = f'is not the first line of an archive of Turnwire, {{"kind":"archive", …}}: {_OTHER}'

_header = msgspec.json.Decoder(Header).decode
_line = msgspec.json.Decoder(Line).decode


def longest_line(max_file_bytes: int, max_message_bytes: int) -> int:
    """Returns the maximum length of a line: a file in base64, or a message whose every other character is escaped."""
    return max(max_file_bytes * 4 // 3, 2 * max_message_bytes) + 2**20


class LinesReader:
    """Reads archives; implements `ports.moving.archives.ArchiveReader`. Keeps nothing between two reads."""

    keeps_ids = True

    def __init__(self, max_line_bytes: int) -> None:
        """Takes the maximum length of a line; see `longest_line`."""
        self._max_line_bytes = max_line_bytes

    def read(self, source: BinaryIO, options: Mapping[str, str]) -> Iterator[Record | ImportProblem]:
        """Yields the records. Takes the memory of one line."""
        for name in sorted(options):
            raise InvalidRequest.of(f"options[{name}]", "this format has no options")
        return _Archive(source, self._max_line_bytes).records()

    def read_from(self, source: BinaryIO, position: int, sessions: int) -> Iterator[Record | ImportProblem]:
        """As `SeekingReader.read_from`."""
        source.seek(0)
        return _Archive(source, self._max_line_bytes).records(position, sessions)


class _Archive:
    """One archive while it is read."""

    def __init__(self, source: BinaryIO, max_line_bytes: int) -> None:
        self._source = source
        self._max_line_bytes = max_line_bytes
        self._number = 0
        self._has_files = True

    def records(self, position: int = 0, sessions: int = 0) -> Iterator[Record]:
        self._read_header()
        if position:
            self._source.seek(position)
        while isinstance(line := self._next_line(), SessionLine):
            sessions += 1
            yield from self._session(line)
        if not isinstance(line, ArchiveEndLine):
            raise self._wrong("kind", "stands outside a session")
        if line.sessions != sessions:
            raise self._wrong("sessions", f"says {line.sessions}, and the archive has {sessions}")
        if self._source.read(1):
            self._number += 1
            raise self._wrong("", "something follows the end of the archive")

    def _session(self, first: SessionLine) -> Iterator[Record]:
        session_id = first.session.session_id
        self._check_id("session.session_id", session_id, "ses")
        yield self._checked(ArchivedSession(first.session))
        files, turns, messages = dict[str, int](), 0, 0
        while not isinstance(line := self._next_line(), SessionEndLine):
            if isinstance(line, FileLine):
                if line.sha256 in files:
                    raise self._wrong("sha256", "the session already has this file")
                yield self._file(line)
                files[line.sha256] = len(line.content)
            elif isinstance(line, TurnLine):
                turns += 1
                self._check_turn(line.turn, session_id)
                yield self._checked(ArchivedTurn(line.turn))
            elif isinstance(line, MessageLine):
                messages += 1
                self._check_message(line.message, session_id, files)
                self._check_branch(line)
                yield self._checked(ArchivedMessage(line.message, line.hidden, line.branch))
            else:
                raise self._wrong("kind", "the session before it has no end")
        for name, said, found in (
            ("files", line.files, len(files)),
            ("turns", line.turns, turns),
            ("messages", line.messages, messages),
        ):
            if said != found:
                raise self._wrong(name, f"says {said}, and the session has {found}")
        yield SessionEnd(messages)

    def _file(self, line: FileLine) -> ArchivedFile:
        file = ArchivedFile(line.sha256, line.content)
        self._checked(file)
        if hashlib.sha256(line.content).hexdigest() != line.sha256:
            raise self._wrong("content", "does not have this digest")
        return file

    def _check_turn(self, turn: Turn, session_id: str) -> None:
        self._check_owner("turn", turn.session_id, session_id)
        self._check_id("turn.turn_id", turn.turn_id, "trn")
        self._check_id("turn.user_message_id", turn.user_message_id, "msg")
        for name, prefix in (
            ("aimed_at_turn_id", "trn"),
            ("merged_into_turn_id", "trn"),
            ("replaces_turn_id", "trn"),
            ("regenerates", "msg"),
            ("ended_by_message_id", "msg"),
        ):
            if said := getattr(turn, name):
                self._check_id(f"turn.{name}", said, prefix)

    def _check_message(self, message: Message, session_id: str, files: Mapping[str, int]) -> None:
        self._check_owner("message", message.session_id, session_id)
        self._check_id("message.message_id", message.message_id, "msg")
        if message.turn_id:
            self._check_id("message.turn_id", message.turn_id, "trn")
        if message.answers_message_id:
            self._check_id("message.parent_id", message.answers_message_id, "msg")
        for part in message.parts:
            self._check_id(f"message.parts[{part.index}].part_id", part.part_id, "prt")
        for file in message.files():
            self._check_file("message.parts", file, files)
        for _, call in message.tool_calls():
            for file in call.stored_files():
                self._check_file("message.parts", file, files)

    def _check_branch(self, line: MessageLine) -> None:
        if line.branch is None:
            return
        if not line.hidden:
            raise self._wrong("branch", "is that of a message that is not hidden")
        for name, prefix in (("previous_message_id", "msg"), ("turn_id", "trn")):
            if said := getattr(line.branch, name):
                self._check_id(f"branch.{name}", said, prefix)

    def _check_file(self, place: str, file: File, files: Mapping[str, int]) -> None:
        if file.sha256 not in files:
            if not self._has_files:
                return
            raise self._wrong(place, f"names the file {file.sha256[:64]}, which does not come before")
        if files[file.sha256] != file.size_bytes:
            raise self._wrong(place, f"says {file.size_bytes} bytes, and the file has {files[file.sha256]}")

    def _check_owner(self, kind: str, said: str, session_id: str) -> None:
        if said != session_id:
            raise self._wrong(f"{kind}.session_id", "is not that of its session")

    def _check_id(self, place: str, said: str, prefix: str) -> None:
        found = _ID.fullmatch(said)
        if found is None or found[1] != prefix:
            raise self._wrong(place, f"is not {prefix}_ and 32 digits of lower-case hexadecimal")

    def _checked(self, record: Record) -> Record:
        try:
            check_record(record)
        except WrongValue as wrong:
            raise self._wrong(wrong.place, wrong.description) from None
        return record

    def _read_header(self) -> None:
        data = self._next_bytes()
        try:
            header = _header(data)
        except (ValueError, RecursionError):
            raise self._wrong("", _NO_HEADER) from None
        if header.format != FORMAT:
            raise self._wrong("format", f"is not {FORMAT!r}: {_OTHER}")
        if header.version > VERSION:
            raise self._wrong(
                "version",
                f"is {header.version}, and this server reads up to {VERSION}: a newer Turnwire has written the archive",
                version=str(header.version),
            )
        if header.version < 1:
            raise self._wrong("version", "is not a version")
        self._has_files = header.files

    def _next_line(self) -> Line:
        data = self._next_bytes()
        try:
            line: Line = _line(data)
        except msgspec.ValidationError as error:
            description, _, place = str(error).partition(" - at `")
            raise self._wrong(place.rstrip("`").removeprefix("$.").removeprefix("$"), description) from None
        except ValueError as error:
            raise self._wrong("", f"is not JSON in UTF-8: {str(error)[:100]}") from None
        except RecursionError:
            raise self._wrong("", "is nested too deeply") from None
        return line

    def _next_bytes(self) -> bytes:
        """Returns the next line. Reads at most the maximum length of one."""
        self._number += 1
        data = self._source.readline(self._max_line_bytes + 1)
        if not data:
            raise self._wrong("", "the archive is cut: it ends before its last line")
        if len(data) > self._max_line_bytes:
            text = f"is longer than {self._max_line_bytes} bytes{self._hint(data)}"
            raise self._wrong("", text, maxBytes=str(self._max_line_bytes))
        if not data.endswith(b"\n"):
            raise self._wrong("", f"the archive is cut: the line has no end{self._hint(data)}")
        if len(data) > 2 * MAX_TEXTS and _texts_in(data) > MAX_TEXTS:
            raise self._wrong("", f"has more than {MAX_TEXTS} texts")
        return data

    def _hint(self, data: bytes) -> str:
        """Returns an addition to an error of the first line: JSON of other systems is often one long line."""
        return "" if self._number > 1 or data.startswith(_BEGINNING) else f", and {_NO_HEADER}"

    def _wrong(self, place: str, description: str, **metadata: str) -> ArchiveInvalid:
        return ArchiveInvalid.at(description, line=self._number, place=place, **metadata)


def _texts_in(data: bytes) -> int:
    """Returns an estimate of the number of texts in JSON, without reading it: each has two quotes. At least half of the
    true number.
    """
    quotes = 0
    for start in range(0, len(data), _COUNTED_BYTES):
        end = start + _COUNTED_BYTES
        quotes += data.count(b'"', start, end) - data.count(b'\\"', start, end)
    return quotes // 2
