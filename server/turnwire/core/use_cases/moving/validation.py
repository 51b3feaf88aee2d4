"""Checks a whole archive before anything of it is stored. Runs on threads, a batch at a time."""

import hashlib
from collections.abc import Callable, Iterable, Iterator

import msgspec

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
from turnwire.ports.moving.archives import SeenIds

FILE_MISSING = "FILE_MISSING"
DIRECTORY_NOT_ALLOWED = "DIRECTORY_NOT_ALLOWED"


class Validation:
    """What is known of an archive so far. Its memory is that of the files of one session, without their bytes."""

    def __init__(self, seen: SeenIds, is_allowed: Callable[[str], bool], *, checks_values: bool) -> None:
        """Args:
        seen: Remembers ids.
        is_allowed: Whether a session may have a directory.
        checks_values: Whether values are still to be checked; the reader of Turnwire's own format has done it.
        """
        self._seen = seen
        self._is_allowed = is_allowed
        self._checks_values = checks_values
        self._sessions = 0
        self._session_id = ""
        self._newest_id = ""  # of the session that began last, also when it has ended
        self._messages = 0
        self._files = set[str]()
        self._new = set[str]()  # ids of the batch that is being checked

    def check(self, records: Iterable[Record | ImportProblem]) -> list[ImportProblem]:
        """Checks the next records. Returns what could not be carried, as the reader and this have found it.

        Raises:
            ArchiveInvalid: ids come twice, or something is not where it belongs.
        """
        problems, ids = list[ImportProblem](), list[str]()
        for record in records:
            if isinstance(record, ImportProblem):
                problems.append(record)
                continue
            if self._checks_values:
                self._check_values(record)
            found = self._ids(record)
            ids += found
            self._new.update(found)
            problems += self._check(record)
        self._add(ids)
        self._new.clear()
        return problems

    def _check(self, record: Record) -> Iterator[ImportProblem]:
        match record:
            case ArchivedSession(session):
                self._session_id = self._newest_id = session.session_id
                self._messages, self._files = 0, set()
                if session.directory and not self._is_allowed(session.directory):
                    text = f"the session's directory {session.directory[:200]!r} is not one that this server allows"
                    yield self._problem(DIRECTORY_NOT_ALLOWED, text, "directory")
            case ArchivedFile(sha256):
                self._files.add(sha256)
            case ArchivedMessage(message, branch=branch):
                self._messages += 1
                if branch is not None:
                    self._check_branch(message, branch)
                if message.turn_id and not self._has(self._mark(message.turn_id)):
                    raise self._wrong(f"{message.message_id}.turn_id", "names a turn that does not come before")
                yield from self._missing_files(message)
            case SessionEnd(messages):
                if messages != self._messages:
                    raise self._wrong("messages", f"says {messages}, and the session has {self._messages}")
                self._session_id = ""

    def _check_branch(self, message: Message, branch: Branch) -> None:
        for name in ("previous_message_id", "turn_id"):
            said = getattr(branch, name)
            if said == message.message_id or (said and not self._has(self._mark(said))):
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

    def _ids(self, record: Record) -> list[str]:
        """Returns the ids that a record brings, marked with their session; raises ArchiveInvalid outside of one."""
        if isinstance(record, ArchivedSession):
            if self._session_id:
                raise self._wrong("", "a session begins inside another one")
            self._sessions += 1
            return [f"session {record.session.session_id}"]
        if not self._session_id:
            raise self._wrong("", "something stands outside a session")
        if isinstance(record, ArchivedTurn):
            return [self._mark(record.turn.turn_id)]
        if isinstance(record, ArchivedMessage):
            message = record.message
            return [self._mark(one) for one in (message.message_id, *(part.part_id for part in message.parts))]
        return []

    def _check_values(self, record: Record) -> None:
        try:
            check_record(record)
        except WrongValue as wrong:
            raise self._wrong(wrong.place, wrong.description) from None
        if isinstance(record, ArchivedFile) and hashlib.sha256(record.content).hexdigest() != record.sha256:
            raise self._wrong("sha256", "is not the digest of the content")

    def _add(self, ids: list[str]) -> None:
        twice = self._seen.add(ids) if ids else None
        if twice is None:
            return
        kind, _, one = twice.partition(" ")
        if kind == "session":
            place, text = f"sessions[{self._sessions - 1}]", "an earlier session has this id too, so it is there twice"
        else:
            place, text = self._newest_id[:200], "has an id twice"
        raise ArchiveInvalid.at(f"{text}: {one[:200]}", place=place)

    def _has(self, one: str) -> bool:
        return one in self._new or self._seen.has(one)

    def _mark(self, one: str) -> str:
        return f"{self._sessions} {one}"

    def _problem(self, reason: str, explanation: str, place: str) -> ImportProblem:
        return ImportProblem(reason=reason, explanation=explanation, place=place, source_id=self._session_id)

    def _wrong(self, place: str, description: str) -> ArchiveInvalid:
        return ArchiveInvalid.at(description, place=": ".join(filter(None, (self._session_id[:200], place))))


def size_of(record: Record) -> int:
    """Returns about how many bytes a record takes when it is stored."""
    if isinstance(record, ArchivedFile):
        return len(record.content)
    return len(msgspec.json.encode(record))
