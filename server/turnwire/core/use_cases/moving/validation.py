"""Checks a whole archive before anything of it is stored. Runs on threads, a batch at a time."""

import hashlib
from collections.abc import Callable, Iterable, Iterator

from turnwire.core.use_cases.moving.identities import missing_in
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
from turnwire.domain.conversation.messages import Branch, File, Message
from turnwire.domain.errors import ArchiveInvalid

FILE_MISSING = "FILE_MISSING"
DIRECTORY_NOT_ALLOWED = "DIRECTORY_NOT_ALLOWED"

MAX_IDS = 2_000_000
"""Sessions of an archive, and ids of one session: some 70 bytes of memory each while the archive is checked."""
MAX_FILES = 50_000
"""Files of one session: the commit that publishes it looks at each, half a second for so many."""


class Validation:
    """State of the check of an archive so far: the ids of one session, and those of all sessions, as numbers."""

    def __init__(self, is_allowed: Callable[[str], bool], *, checks_values: bool) -> None:
        """Args:
        is_allowed: Whether a session may have a directory.
        checks_values: Whether values are still to be checked; the reader of Turnwire's own format has done it.
        """
        self._is_allowed = is_allowed
        self._checks_values = checks_values
        self._session_ids = set[int]()
        self._session_id = ""
        self._ids = set[int]()  # of messages, parts and turns of the session
        self._messages = 0
        self._files = set[str]()

    def check(self, records: Iterable[Record | ImportProblem]) -> list[ImportProblem]:
        """Checks the next records. Returns what could not be carried, as the reader and this have found it.

        Raises:
            ArchiveInvalid: ids come twice, or something is not where it belongs.
        """
        problems = list[ImportProblem]()
        for record in records:
            if isinstance(record, ImportProblem):
                problems.append(record)
                continue
            if self._checks_values:
                self._check_values(record)
            if isinstance(record, ArchivedSession):
                self._begin(record.session.session_id)
            elif not self._session_id:
                raise self._wrong("", "something stands outside a session")
            self._add_ids(record)
            problems += self._check(record)
        return problems

    def _check(self, record: Record) -> Iterator[ImportProblem]:
        match record:
            case ArchivedSession(session):
                if session.directory and not self._is_allowed(session.directory):
                    text = f"the session's directory {session.directory[:200]!r} is not one that this server allows"
                    yield self._problem(DIRECTORY_NOT_ALLOWED, text, "directory")
            case ArchivedFile(sha256):
                self._files.add(sha256)
                if len(self._files) > MAX_FILES:
                    raise self._wrong("", f"has more than {MAX_FILES} files")
            case ArchivedMessage(message, branch=branch):
                self._messages += 1
                if branch is not None:
                    self._check_branch(message, branch)
                if message.turn_id and hash(message.turn_id) not in self._ids:
                    raise self._wrong(f"{message.message_id}.turn_id", "names a turn that does not come before")
                yield from self._missing_files(message)
            case SessionEnd(messages):
                if messages != self._messages:
                    raise self._wrong("messages", f"says {messages}, and the session has {self._messages}")
                self._session_id = ""

    def _check_branch(self, message: Message, branch: Branch) -> None:
        for name in ("previous_message_id", "turn_id"):
            said = getattr(branch, name)
            if said == message.message_id or (said and hash(said) not in self._ids):
                raise self._wrong(f"{message.message_id}.branch.{name}", "names something that does not come before")

    def _missing_files(self, message: Message) -> Iterator[ImportProblem]:
        for part in message.parts:
            if isinstance(part.content, File) and part.content.sha256 not in self._files:
                yield self._problem(
                    FILE_MISSING,
                    "the archive does not have the bytes of a file; a line of text stands in its place",
                    f"{message.message_id}.parts[{part.index}]",
                )
        for part, call in message.tool_calls():
            if missing_in(call, self._files):
                yield self._problem(
                    FILE_MISSING,
                    "the archive does not have the bytes of a result's file; the result goes without it",
                    f"{message.message_id}.parts[{part.index}]",
                )

    def _begin(self, session_id: str) -> None:
        if self._session_id:
            raise self._wrong("", "a session begins inside another one")
        number = hash(session_id)
        if number in self._session_ids:
            text = f"an earlier session has this id too, so it is there twice: {session_id[:200]}"
            raise ArchiveInvalid.at(text, place=f"sessions[{len(self._session_ids)}]")
        self._session_ids.add(number)
        self._session_id = session_id
        self._messages, self._files, self._ids = 0, set(), set()

    def _add_ids(self, record: Record) -> None:
        found = [record.turn.turn_id] if isinstance(record, ArchivedTurn) else list[str]()
        if isinstance(record, ArchivedMessage):
            found = [record.message.message_id, *(part.part_id for part in record.message.parts)]
        for one in found:
            number = hash(one)
            if number in self._ids:
                raise self._wrong("", f"has an id twice: {one[:200]}")
            self._ids.add(number)
        if max(len(self._ids), len(self._session_ids)) > MAX_IDS:
            raise self._wrong("", f"the archive has more than {MAX_IDS} sessions, or ids in one of them")

    def _check_values(self, record: Record) -> None:
        try:
            check_record(record)
        except WrongValue as wrong:
            raise self._wrong(wrong.place, wrong.description) from None
        if isinstance(record, ArchivedFile) and hashlib.sha256(record.content).hexdigest() != record.sha256:
            raise self._wrong("sha256", "is not the digest of the content")

    def _problem(self, reason: str, explanation: str, place: str) -> ImportProblem:
        return ImportProblem(reason=reason, explanation=explanation, place=place, source_id=self._session_id)

    def _wrong(self, place: str, description: str) -> ArchiveInvalid:
        return ArchiveInvalid.at(description, place=": ".join(filter(None, (self._session_id[:200], place))))
