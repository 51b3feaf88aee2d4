"""Goes through the rows of a conversation as ikigai does.

A clear takes back everything that came before, a rewind everything behind its mark. What is taken back stays, hidden.
"""

import itertools
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from turnwire.domain.archive.records import ImportProblem
from turnwire.domain.conversation.limits import MAX_METADATA_BYTES, MAX_SESSION_SYSTEM_CHARACTERS
from turnwire.domain.conversation.messages import Message, MessageType, Origin, ToolStatus, ToolUse
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import InvalidRequest
from turnwire.interop.archive.conversation import NO_RESULT
from turnwire.interop.forms import a_text, an_object, refuse
from turnwire.interop.ikigai.blocks import Draft, metadata_json, text
from turnwire.interop.ikigai.conversations import Conversation, MadeBy
from turnwire.interop.ikigai.rows import draft_of

SYSTEM = "ikigai"
"""`Origin.system` of what comes from ikigai."""

MAX_PROBLEMS = 1_000
"""Of a conversation; one more says that there are more."""


class StoredRow(Struct, frozen=True, kw_only=True):
    """A row of a conversation."""

    conversation: str
    row_id: str
    """"" when it has none."""
    line: int
    at: datetime
    values: Mapping[str, Any]
    """As `draft_of` takes them."""


class _Mark(Struct, frozen=True):
    row_id: str
    messages: int
    """How many there were before it."""
    prompts: int


class Replay:
    """A conversation that grows by its rows."""

    def __init__(self, key: str, skip: frozenset[str] = frozenset(), made_by: MadeBy | None = None) -> None:
        """Takes the name of the conversation, the kinds of rows that are left out, and who made the answers."""
        self.problems: list[ImportProblem] = []
        """What could not be carried over so far."""
        self._key = key
        self._skip = skip
        self._skipped = set[str]()
        self._row_id = ""
        self._message_id = ""
        self._nameless = itertools.count(1)
        self._parts = itertools.count()
        self._grown = Conversation(key, self._new_id, made_by)
        self._marks: list[_Mark] = []
        self._mark_places: dict[str, int] = {}
        self._prompts: list[str] = []
        self._cleared_prompts: list[str] = []
        self._times: tuple[datetime, datetime] | None = None

    def _new_id(self, prefix: str) -> str:
        """Names a message by its row and a part by its message, so that another import gives the same names."""
        if prefix == "msg":
            self._message_id = self._row_id or f"nameless-{next(self._nameless)}"
            self._parts = itertools.count()
            return self._message_id
        return f"{self._message_id}/{next(self._parts)}"

    def add(self, row: StoredRow) -> None:
        """Goes on with a row. Raises InvalidRequest as `draft_of`; its place begins with "row"."""
        first, last = self._times or (row.at, row.at)
        self._times = (min(first, row.at), max(last, row.at))
        kind = row.values.get("kind")
        if isinstance(kind, str) and kind in self._skip:
            self._leave_out(kind, row)
            return
        draft = draft_of(row.values)
        match kind:
            case "system":
                if row.values.get("content") is not None:
                    self._prompts.append(a_text(row.values["content"], "row.content"))
            case "clear":
                self._grown.hide_from(0)
                self._cleared_prompts = self._prompts or self._cleared_prompts
                self._prompts, self._marks = [], []
            case "mark":
                self._mark_places[row.row_id] = len(self._marks)
                self._marks.append(_Mark(row.row_id, len(self._grown.messages), len(self._prompts)))
            case "rewind":
                self._rewind(row)
            case _:
                assert draft is not None
                if len(metadata_json(draft).encode()) > MAX_METADATA_BYTES:
                    refuse("row.provider_metadata", f"is larger than {MAX_METADATA_BYTES} bytes")
                self._row_id = row.row_id
                self._grown.add(draft, row.at, Origin(system=SYSTEM, session_id=self._key, message_id=row.row_id))

    def session(self) -> Session:
        """Returns the session of the rows so far, of which there was at least one."""
        if self._times is None:
            raise ValueError("a conversation has at least one row")
        prompt = self._prompt()
        return Session(
            session_id=self._key,
            created_at=self._times[0],
            updated_at=self._times[1],
            title=self._key,
            system=prompt if prompt and len(prompt) <= MAX_SESSION_SYSTEM_CHARACTERS else None,
            origin=Origin(system=SYSTEM, session_id=self._key),
        )

    def messages(self) -> list[tuple[Message, bool]]:
        """Returns the messages in order, each with whether it was taken back. A call without a result has an error."""
        found = [
            (_settled(message), hidden)
            for message, hidden in zip(self._grown.messages, self._grown.hidden, strict=True)
        ]
        prompt = self._prompt()
        if len(prompt) > MAX_SESSION_SYSTEM_CHARACTERS and self._times is not None:
            self._row_id = "prompt"
            first = Conversation(self._key, self._new_id)
            first.add(Draft(type=MessageType.SYSTEM, blocks=(text(prompt),)), self._times[0])
            found.insert(0, (first.messages[0], False))
        return found

    def _prompt(self) -> str:
        return "\n\n".join(dict.fromkeys(self._prompts or self._cleared_prompts))

    def _rewind(self, row: StoredRow) -> None:
        target = _target(row.values)
        place = self._mark_places.get(target, -1)
        if not (0 <= place < len(self._marks) and self._marks[place].row_id == target):
            words = f"The rewind names no mark before it ({target[:50]!r}): nothing is taken back."
            self._report("MARK_UNKNOWN", words, row, "data_json.target_message_id")
            return
        mark = self._marks[place]
        self._grown.hide_from(mark.messages)
        del self._marks[place + 1 :]
        del self._prompts[mark.prompts :]

    def _leave_out(self, kind: str, row: StoredRow) -> None:
        """Reports the first row of each kind, so that there are no more reports than kinds."""
        if kind not in self._skipped:
            self._skipped.add(kind)
            self._report("ROW_LEFT_OUT", f"Rows of kind {kind[:50]!r} are left out, as asked.", row, "kind")

    def _report(self, reason: str, words: str, row: StoredRow, place: str) -> None:
        if len(self.problems) > MAX_PROBLEMS:
            return
        if len(self.problems) == MAX_PROBLEMS:
            reason, words, place = "MORE_PROBLEMS", "There are further problems.", ""
        problem = ImportProblem(reason=reason, explanation=words, line=row.line, place=place, source_id=self._key)
        self.problems.append(problem)


def _target(values: Mapping[str, Any]) -> str:
    """Returns the id of the mark that a rewind goes back to; "" when it names none."""
    try:
        data = an_object(json.loads(values.get("data_json") or "{}"), "row.data_json")
    except (TypeError, ValueError, RecursionError, InvalidRequest):
        return ""
    target = data.get("target_message_id")
    is_id = isinstance(target, str | int) and not isinstance(target, bool)
    return str(target) if is_id else ""


def _settled(message: Message) -> Message:
    if all(call.status.settled for _, call in message.tool_calls()):
        return message
    return msgspec.structs.replace(
        message,
        parts=tuple(
            msgspec.structs.replace(part, content=_without_result(part.content, message.created_at))
            if isinstance(part.content, ToolUse) and not part.content.status.settled
            else part
            for part in message.parts
        ),
    )


def _without_result(call: ToolUse, at: datetime) -> ToolUse:
    return msgspec.structs.replace(call, status=ToolStatus.ERROR, error=NO_RESULT, started_at=at, finished_at=at)
