"""Collects one conversation of a foreign archive and yields its records."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from turnwire.domain.archive.records import (
    ArchivedFile,
    ArchivedMessage,
    ArchivedSession,
    ImportProblem,
    Record,
    SessionEnd,
)
from turnwire.domain.conversation.limits import MAX_SESSION_SYSTEM_CHARACTERS
from turnwire.domain.conversation.messages import (
    Content,
    File,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRun,
    Part,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import ArchiveInvalid, InvalidRequest
from turnwire.domain.text import one_line
from turnwire.interop.archive.attachments import Attachment, NotCarried, reference
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.forms import Json, an_object

MAX_TITLE_CHARACTERS = 1024
"""Maximum length of a title, the same as for callers."""
NO_RESULT = "The archive has no result of this call."


@dataclass(slots=True)
class ImportedCall:
    """A call that may still get results. Several results become one, with a line for each."""

    use: ToolUse
    outputs: list[str] = field(default_factory=list)
    is_error: bool = False
    at: datetime | None = None
    """The time of the first result."""
    files: list[Attachment] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        """Whether it has a result."""
        return self.at is not None or self.use.status.settled

    def add(self, output: str, at: datetime, *, is_error: bool = False) -> None:
        """Adds a result."""
        self.outputs.append(output)
        self.is_error = self.is_error or is_error
        self.at = self.at or at


@dataclass(slots=True)
class ImportedMessage:
    """A message whose files are not read yet and whose calls may be open."""

    message_id: str
    """The archive's id; "" for none."""
    type: MessageType
    at: datetime
    parts: list[Content | Attachment | ImportedCall] = field(default_factory=list)
    states: dict[int, str] = field(default_factory=dict)
    """`Part.provider_state` by position in `parts`."""
    part_ids: dict[int, str] = field(default_factory=dict)
    """The archive's ids of parts by position in `parts`; other parts get new ones."""
    model_run: ModelRun | None = None
    hidden: bool = False
    more: dict[str, Any] = field(default_factory=dict)
    """Further fields of `Message`."""


class ConversationBuilder:
    """Collects the messages of one session, in order, and the problems of their import."""

    def __init__(self, source_id: str, bounds: ArchiveLimits, line: int = 0) -> None:
        """Args:
        source_id: The id of the session in the archive.
        bounds: Limits on the numbers of messages and problems.
        line: The line where the session begins; 0 where the format has no lines.
        """
        self.drafts: list[ImportedMessage] = []
        self._source_id = source_id
        self._bounds = bounds
        self._line = line
        self._problems: list[ImportProblem] = []
        self._reported = 0
        self._counted: dict[tuple[str, str], tuple[int, str]] = {}
        self._calls: dict[str, ImportedCall] = {}

    def add(self, draft: ImportedMessage) -> None:
        """Appends a message. A message without parts is left out unless it failed.

        Raises:
            ArchiveInvalid: there are too many.
        """
        if len(self.drafts) >= self._bounds.messages:
            raise ArchiveInvalid.at(f"has more than {self._bounds.messages} messages", line=self._line)
        self._calls.update((part.use.call_id, part) for part in draft.parts if isinstance(part, ImportedCall))
        self.drafts.append(draft)

    def call(self, call_id: str) -> ImportedCall | None:
        """Returns the newest call with that id."""
        return self._calls.get(call_id)

    def problem(self, reason: str, explanation: str, place: str = "") -> None:
        """Reports something that could not be imported."""
        self._reported += 1
        if self._reported <= self._bounds.problems:
            self._problems.append(self._problem(reason, explanation, place))

    def count(self, reason: str, what: str, place: str) -> None:
        """Counts one of many similar problems. `what` is reported once, with their number: "Left out: patches"."""
        number, first = self._counted.get((reason, what), (0, place))
        self._counted[reason, what] = (number + 1, first)

    def title(self, text: str, place: str) -> str:
        """Returns the title of the session, truncated where it is too long."""
        if len(text) > MAX_TITLE_CHARACTERS:
            self.problem("TITLE_CUT", f"The title has more than {MAX_TITLE_CHARACTERS} characters and is cut.", place)
        return text[:MAX_TITLE_CHARACTERS]

    def system(self, text: str, place: str) -> str | None:
        """Returns the system prompt of the session; None for none, and for one that is too long."""
        if len(text) > MAX_SESSION_SYSTEM_CHARACTERS:
            most = MAX_SESSION_SYSTEM_CHARACTERS
            self.problem("NO_PLACE", f"Left out: a system prompt of more than {most} characters.", place)
            return None
        return text or None

    def records(self, session: Session) -> Iterator[Record | ImportProblem]:
        """Yields the session, its problems, its messages, each after its files, and its end."""
        yield ArchivedSession(session)
        yield from self._problems
        for (reason, what), (number, first) in self._counted.items():
            yield self._problem(reason, f"{what} ({number}); the first one is here.", first)
        if self._reported > self._bounds.problems:
            yield self._problem("MORE_PROBLEMS", f"{self._reported - self._bounds.problems} further problems.", "")
        ids, stored, answered, count = _Ids(), set[str](), "", 0
        for draft in self.drafts:
            contents: list[tuple[int, Content]] = []
            for index, part in enumerate(draft.parts):
                content = yield from self._content(part, stored)
                if content is not None:
                    contents.append((index, content))
            if not contents and "failure" not in draft.more:
                continue
            message_id = ids.take(draft.message_id)
            parts = _parts(draft, message_id, contents, ids)
            message = _message(draft, message_id, session.session_id, parts, answered)
            if draft.type is MessageType.USER:
                answered = message.message_id
            count += 1
            yield ArchivedMessage(message, draft.hidden)
        yield SessionEnd(count)

    def _content(
        self, part: Content | Attachment | ImportedCall, stored: set[str]
    ) -> Generator[Record | ImportProblem, None, Content | None]:
        """Yields the records before the message; returns the content, or None when it could not be imported."""
        if isinstance(part, Attachment):
            return (yield from self._file(part, stored))
        if not isinstance(part, ImportedCall):
            return part
        files = []
        for attachment in part.files:
            file = yield from self._file(attachment, stored)
            files += [file] if file is not None else []
        use = msgspec.structs.replace(part.use, files=(*part.use.files, *files))
        if part.at is not None:
            output = "\n".join(filter(None, part.outputs))
            return msgspec.structs.replace(
                use,
                status=ToolStatus.ERROR if part.is_error else ToolStatus.SUCCESS,
                output=None if part.is_error else output,
                error=output if part.is_error else None,
                started_at=part.at,
                finished_at=part.at,
            )
        return use if use.status.settled else msgspec.structs.replace(use, status=ToolStatus.ERROR, error=NO_RESULT)

    def _file(self, attachment: Attachment, stored: set[str]) -> Generator[Record | ImportProblem, None, File | None]:
        try:
            content = attachment.load()
        except NotCarried as refused:
            yield self._problem(refused.reason, refused.explanation, attachment.place)
            return None
        file = reference(attachment, content)
        if file.sha256 not in stored:
            stored.add(file.sha256)
            yield ArchivedFile(file.sha256, content)
        return file

    def _problem(self, reason: str, explanation: str, place: str) -> ImportProblem:
        return ImportProblem(
            reason=reason, explanation=explanation, line=self._line, place=place, source_id=self._source_id
        )


class _Ids:
    """Makes ids unique: the first use of an archive's id keeps it, later uses get a number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next = 0

    def take(self, wanted: str) -> str:
        chosen = wanted
        while not chosen or chosen in self._taken:
            self._next += 1
            chosen = f"{wanted or 'message'}-{self._next}"
        self._taken.add(chosen)
        return chosen


def _parts(draft: ImportedMessage, message_id: str, contents: list[tuple[int, Content]], ids: _Ids) -> tuple[Part, ...]:
    return tuple(
        Part(
            part_id=ids.take(draft.part_ids.get(position) or f"{message_id}#{index}"),
            index=index,
            content=content,
            provider_state=draft.states.get(position),
        )
        for index, (position, content) in enumerate(contents)
    )


def _message(
    draft: ImportedMessage, message_id: str, session_id: str, parts: tuple[Part, ...], answered: str
) -> Message:
    more = dict(draft.more)
    is_answer = draft.type is MessageType.ASSISTANT
    if is_answer:
        calls = any(isinstance(part.content, ToolUse) for part in parts)
        more.setdefault("finish_reason", FinishReason.TOOL_USE if calls else FinishReason.STOP)
    return Message(
        message_id=message_id,
        session_id=session_id,
        type=draft.type,
        status=more.pop("status", MessageStatus.COMPLETE),
        created_at=draft.at,
        updated_at=more.pop("updated_at", draft.at),
        parts=parts,
        answers_message_id=answered if is_answer else "",
        model_run=draft.model_run,
        **more,
    )


def nothing_else(options: Mapping[str, str], known: frozenset[str] = frozenset()) -> None:
    """Raises InvalidRequest for an option that a format does not have."""
    for name in options:
        if name not in known:
            raise InvalidRequest.of(f"options[{one_line(name, 64)}]", "is not an option of this format")


def conversations_of(
    found: Iterable[tuple[str, Any]], read: Callable[[Json], tuple[ConversationBuilder, Session]], line: int = 0
) -> Iterator[Record | ImportProblem]:
    """Yields the records of conversations.

    Args:
        found: Each conversation with its position.
        read: Makes a conversation from a JSON object; raises InvalidRequest with a position in it.
        line: Their line; 0 where the format has no lines.

    Raises:
        ArchiveInvalid: one is malformed; names line and position.
    """
    for place, value in found:
        try:
            conversation, session = read(an_object(value, ""))
        except ArchiveInvalid:
            raise
        except InvalidRequest as error:
            [wrong] = error.violations
            where = ".".join(filter(None, (place, wrong.field)))
            raise ArchiveInvalid.at(wrong.description, line=line, place=where) from None
        yield from conversation.records(session)
