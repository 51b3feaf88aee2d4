"""`turnwire-adapters import ikigai FILE`: makes sessions of stored rows of ikigai, JSON Lines of its table `messages`.

| key of a line | holds |
|---|---|
| `session_id`, or what `--conversation-key` names | the conversation: text or a whole number |
| `id` | of the row, a whole number or text; absent when it has none |
| `kind` | user, assistant, tool_call, tool_result, tool; system, clear, mark, rewind |
| `content` | text, or null |
| `data_json`, or `data` | JSON text, or the object itself; null for none |
| `provider_metadata` | an object, or JSON text of one; null for none |
| `created_at` | time in ISO 8601; without an offset it is UTC |

All rows of a conversation stand together, in their order. Other keys are not read. A clear takes back all that came
before, a rewind all that came behind its mark; what is taken back stays, hidden.
"""

import contextlib
import itertools
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO

from turnwire_adapters.forms import WrongJson, a_text, an_object, kind_of, read_json, refuse, text_at
from turnwire_adapters.importers import archive, command
from turnwire_adapters.importers.archive import (
    MAX_METADATA_BYTES,
    MAX_SYSTEM_CHARS,
    Json,
    MessageRecord,
    Record,
    SessionRecord,
    json_text,
    rfc3339,
)
from turnwire_adapters.importers.problems import BadRow, FileError, Problem

SYSTEM = "ikigai"
"""The origin of what comes from ikigai."""

MAX_KEY_CHARACTERS = 255
"""Longest key of a conversation or a row."""

_YEARS = range(1970, 9999)
_REDACTED = "redacted_thinking"
_NO_RESULT = "The archive has no result of this call."


@dataclass(frozen=True)
class MadeBy:
    """The model that made the answers of a conversation. Sealed thinking goes back to that model alone."""

    provider_id: str
    model_id: str
    api: str
    """The provider's API, such as "anthropic"."""


@dataclass(frozen=True, kw_only=True)
class StoredRow:
    """A row of a conversation."""

    conversation: str
    row_id: str
    """"" when it has none."""
    line: int
    at: datetime
    values: Mapping[str, Any]


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the options."""
    command.add_arguments(parser)
    text = "names the key of the conversation, such as agent_uuid"
    parser.add_argument("--conversation-key", default="session_id", metavar="KEY", help=text)
    parser.add_argument("--skip", default="", metavar="KINDS", help="kinds of rows to leave out, with commas between")
    for name, what in (("provider", "provider"), ("model", "model"), ("api", "API, such as anthropic")):
        text = f"{what} that made the answers; --provider, --model and --api go together"
        parser.add_argument(f"--{name}", default="", help=text)
    parser.add_argument("--skip-bad", action="store_true", help="leave out, and report, rows that refuse the file else")


def run(given: Namespace) -> int:
    """Imports a file. Returns the exit code."""
    maker = (given.provider, given.model, given.api)
    if any(maker) and not all(maker):
        return command.failed(given.file, FileError("--provider, --model and --api go together"))
    reader = Rows(
        key=given.conversation_key,
        skip=frozenset(kind.strip() for kind in given.skip.split(",")) - {""},
        made_by=MadeBy(*maker) if all(maker) else None,
        skip_bad=given.skip_bad,
    )

    @contextlib.contextmanager
    def opened() -> Iterator[Iterator[Record]]:
        try:
            with given.file.open("rb") as source:
                yield reader.records(source)
        except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
            raise FileError(f"{given.file}: {error.strerror}") from error

    return command.run(given, opened)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A reader of rows."""

    key: str = "session_id"
    """Names the key of the conversation."""
    skip: frozenset[str] = frozenset()
    """Kinds of rows that are left out."""
    made_by: MadeBy | None = None
    skip_bad: bool = False
    """Whether to leave out and report rows that cannot be read."""

    def records(self, source: BinaryIO) -> Iterator[Record]:
        """Gives the sessions. Memory is that of one conversation. Equal files give equal records.

        Raises:
            FileError: a row is wrong; it names the line and the key.
        """
        seen, problems = set[str](), list[Problem]()
        for key, rows in itertools.groupby(self._rows(source, problems), key=lambda row: row.conversation):
            seen_before = key in seen
            seen.add(key)
            conversation = _Conversation(key, self.skip, self.made_by)
            for row in rows:
                if seen_before:
                    place = f"line {row.line}: {self.key}"
                    raise FileError(f"{place}: rows of this conversation came before: sort the rows by it")
                try:
                    conversation.add(row)
                except WrongJson as error:
                    problems.append(self._bad(row.line, error, key))
            yield from conversation.records()
        if not seen:
            raise FileError("the file holds no rows")
        yield from problems

    def _rows(self, source: BinaryIO, problems: list[Problem]) -> Iterator[StoredRow]:
        for number, line in enumerate(source, 1):
            if not line.strip():
                continue
            try:
                yield self._row(number, an_object(read_json(line, "row"), "row"))
            except WrongJson as error:
                problems.append(self._bad(number, error, ""))

    def _row(self, number: int, given: Json) -> StoredRow:
        values = {name: given.get(name) for name in ("kind", "content")}
        values["data_json"] = given.get("data_json", given.get("data"))
        metadata = given.get("provider_metadata")
        values["provider_metadata"] = (
            read_json(metadata, "row.provider_metadata") if isinstance(metadata, str) else metadata
        )
        return StoredRow(
            conversation=_name(given, self.key) or refuse(f"row.{self.key}", "is missing"),
            row_id=_name(given, "id"),
            line=number,
            at=_time(text_at(given, "created_at", "row")),
            values=values,
        )

    def _bad(self, line: int, error: WrongJson, key: str) -> Problem:
        place = error.place.removeprefix("row").removeprefix(".")
        if not self.skip_bad:
            bad = BadRow(place, error.description, line) if place else f"line {line}: {error.description}"
            raise FileError(f"{bad}; --skip-bad leaves such rows out") from error
        words = f"The row is left out: {error.description}."
        return Problem(reason="ROW_LEFT_OUT", explanation=words, place=place, line=line, conversation=key)


def message_of(row: object, place: str = "row") -> tuple[str, list[Json], Json | None] | None:
    """Returns type, contents and provider's metadata of the message of a row; None for kinds that are not conversation.

    Args:
        row: `{"kind", "content"?, "data_json"?, "provider_metadata"?}`: `data_json` is an object or JSON text of one.
        place: Names the row in errors.

    Raises:
        WrongJson: an unknown kind, a text message without content, no `data_json`, a missing key, an id or another text
            that is not text. Names the place.
    """
    given = an_object(row, place)
    kind = text_at(given, "kind", place)
    if kind in ("system", "clear", "mark", "rewind"):
        return None
    if kind not in ("user", "assistant", "tool_call", "tool_result", "tool"):
        refuse(f"{place}.kind", f"{kind!r} is unknown")
    metadata = given.get("provider_metadata")
    if metadata is not None:
        metadata = an_object(metadata, f"{place}.provider_metadata")
        if len(json_text(metadata).encode(errors="replace")) > MAX_METADATA_BYTES - 100:
            refuse(f"{place}.provider_metadata", f"is larger than {MAX_METADATA_BYTES} bytes")
        a_text(json_text(metadata), f"{place}.provider_metadata")
    if kind in ("user", "assistant"):
        if given.get("content") is None:
            refuse(f"{place}.content", f"is missing in a message of kind {kind}")
        return kind, [{"type": "text", "text": a_text(given["content"], f"{place}.content")}], metadata
    at = f"{place}.data_json"
    if given.get("data_json") is None:
        refuse(at, f"is missing in a message of kind {kind}")
    data = _object_of(given["data_json"], at)
    if kind == "tool_call":
        return "assistant", _call(data, at), metadata
    return "tool_result", [_result(data, at)], metadata


def _call(data: Json, at: str) -> list[Json]:
    """Returns the contents of a call in the order in which a model made them: thinking comes first."""
    found: list[Json] = []
    if data.get("thinking") is not None:
        where = f"{at}.thinking"
        thought = an_object(data["thinking"], where)
        signature = thought.get("signature")
        sealed = "" if signature is None else a_text(signature, f"{where}.signature")
        seal = {"provider_state": {"signature": sealed}} if sealed else {}
        found.append({"type": "reasoning", "text": text_at(thought, "text", where), **seal})
    if data.get(_REDACTED) is not None:
        where = f"{at}.{_REDACTED}"
        block = {"type": _REDACTED, "data": text_at(an_object(data[_REDACTED], where), "data", where)}
        found.append({"type": "provider", "kind": _REDACTED, "provider_state": {"block": block}})
    call_id = text_at(data, "tool_call_id", at)
    name, arguments = _either(data, "tool_name", "name", at), _either(data, "tool_args", "arguments", at)
    return [*found, {"type": "tool_use", "name": name, "call_id": call_id, "input_json": arguments}]


def _result(data: Json, at: str) -> Json:
    success = data.get("success")
    if success is not None and not isinstance(success, bool):
        refuse(f"{at}.success", f"must be true or false, not {kind_of(success)}")
    call_id, output = text_at(data, "tool_call_id", at), text_at(data, "output", at)
    return {"type": "tool_result", "call_id": call_id, "output": output, "is_error": success is False}


def _either(data: Json, key: str, other: str, place: str) -> str:
    """Returns the text at one of two keys. Of both the first one counts."""
    return text_at(data, other if key not in data and other in data else key, place)


@dataclass(kw_only=True)
class _Draft:
    """A message while its conversation is read."""

    row_id: str
    type: str
    at: datetime
    contents: list[Json]
    metadata: Json | None = None
    answers: str = ""
    hidden: bool = False


@dataclass(frozen=True)
class _Mark:
    row_id: str
    messages: int
    """Number of messages before it."""
    prompts: int


@dataclass
class _Conversation:
    """A conversation that grows by its rows."""

    key: str
    skip: frozenset[str]
    made_by: MadeBy | None
    problems: list[Problem] = field(default_factory=list)
    _drafts: list[_Draft] = field(default_factory=list)
    _open_calls: dict[str, Json] = field(default_factory=dict)
    """Calls without a result, by the id that the provider gave them."""
    _marks: list[_Mark] = field(default_factory=list)
    _prompts: list[str] = field(default_factory=list)
    _cleared_prompts: list[str] = field(default_factory=list)
    _times: list[datetime] = field(default_factory=list)
    """Times of the earliest and the latest row."""
    _skipped: set[str] = field(default_factory=set)
    _shown: list[int] = field(default_factory=list)
    """Places of the messages that were not taken back."""
    _asked: list[_Draft] = field(default_factory=list)
    """The questions; those behind the last one that is shown may be hidden."""
    _nameless: int = 0

    def add(self, row: StoredRow) -> None:
        """Goes on with a row. Raises WrongJson as `message_of`."""
        kind = row.values.get("kind")
        if isinstance(kind, str) and kind in self.skip:
            self._seen(row.at)
            if kind not in self._skipped:
                self._skipped.add(kind)
                self._report("ROW_LEFT_OUT", f"Rows of kind {kind[:50]!r} are left out, as asked.", row, "kind")
            return
        made = message_of(row.values)
        self._seen(row.at)
        match kind:
            case "system":
                if row.values.get("content") is not None:
                    self._prompts.append(a_text(row.values["content"], "row.content"))
            case "clear":
                self._hide_from(0)
                self._cleared_prompts = self._prompts or self._cleared_prompts
                self._prompts, self._marks = [], []
            case "mark":
                self._marks.append(_Mark(row.row_id, len(self._drafts), len(self._prompts)))
            case "rewind":
                self._rewind(row)
            case _:
                assert made is not None
                self._say(row, *made)

    def records(self) -> Iterator[Record]:
        """Gives the session, its messages and its problems; nothing when no row could be read.

        A call without a result has an error that says so.
        """
        if not self._times:
            return
        session_id = archive.stable_id(SYSTEM, "ses", self.key)
        prompt = "\n\n".join(dict.fromkeys(self._prompts or self._cleared_prompts))
        is_short = len(prompt) <= MAX_SYSTEM_CHARS
        origin = {"system": SYSTEM, "session_id": self.key}
        begin, end = min(self._times), max(self._times)
        session = {
            "session_id": session_id,
            "created_at": rfc3339(begin),
            "updated_at": rfc3339(end),
            "title": self.key,
            "origin": origin,
            **({"system": prompt} if prompt and is_short else {}),
        }
        yield SessionRecord(session)
        if not is_short:
            first = _Draft(row_id="prompt", type="system", at=begin, contents=[{"type": "text", "text": prompt}])
            yield MessageRecord(self._message(session_id, first))
        for draft in self._drafts:
            yield MessageRecord(self._message(session_id, draft), draft.hidden)
        yield from self.problems

    def _say(self, row: StoredRow, type_: str, contents: list[Json], metadata: Json | None) -> None:
        if type_ == "tool_result" and (call := self._open_calls.pop(contents[0]["call_id"], None)) is not None:
            word = "error" if contents[0]["is_error"] else "output"
            call |= {
                "status": "error" if contents[0]["is_error"] else "success",
                word: contents[0]["output"],
                "finished_at": rfc3339(row.at),
            }
            return
        if not row.row_id:
            self._nameless += 1
        while self._asked and self._asked[-1].hidden:
            self._asked.pop()
        draft = _Draft(
            row_id=row.row_id or f"nameless-{self._nameless}",
            type=type_,
            at=row.at,
            contents=contents,
            metadata=metadata,
            answers=self._asked[-1].row_id if self._asked and type_ == "assistant" else "",
        )
        self._shown.append(len(self._drafts))
        self._drafts.append(draft)
        if type_ == "user":
            self._asked.append(draft)
        for content in contents:
            if content["type"] == "tool_use":
                content["started_at"] = rfc3339(row.at)
                self._open_calls[content["call_id"]] = content

    def _hide_from(self, first: int) -> None:
        """Takes back all messages from one on, by its place from 0. A call among them gets no more result."""
        while self._shown and self._shown[-1] >= first:
            draft = self._drafts[self._shown.pop()]
            draft.hidden = True
            for content in draft.contents:
                if self._open_calls.get(content.get("call_id", "")) is content:
                    del self._open_calls[content["call_id"]]

    def _rewind(self, row: StoredRow) -> None:
        try:
            target = _object_of(row.values.get("data_json"), "row.data_json").get("target_message_id")
        except WrongJson:
            target = None
        place = next(
            (place for place in reversed(range(len(self._marks))) if self._marks[place].row_id == str(target)), None
        )
        if place is None or isinstance(target, bool):
            words = f"The rewind names no mark before it ({str(target)[:50]!r}): nothing is taken back."
            self._report("MARK_UNKNOWN", words, row, "data_json.target_message_id")
            return
        mark = self._marks[place]
        self._hide_from(mark.messages)
        del self._marks[place + 1 :]
        del self._prompts[mark.prompts :]

    def _message(self, session_id: str, draft: _Draft) -> Json:
        is_answer = draft.type == "assistant"
        calls = any(content["type"] == "tool_use" for content in draft.contents)
        run = self.made_by and {"provider_id": self.made_by.provider_id, "model_requested": self.made_by.model_id}
        return archive.message(
            self._id(draft.row_id),
            session_id,
            draft.type,
            draft.at,
            [self._content(content) for content in draft.contents],
            finish_reason=("tool_use" if calls else "stop") if is_answer else None,
            model_run=run if is_answer else None,
            metadata_json="" if draft.metadata is None else json_text({"provider_metadata": draft.metadata}),
            answers_message_id=self._id(draft.answers) if draft.answers else "",
            origin=None
            if draft.row_id == "prompt"
            else {"system": SYSTEM, "session_id": self.key, "message_id": _row_id_of(draft)},
        )

    def _content(self, content: Json) -> Json:
        if content["type"] == "tool_use" and "status" not in content:
            at = content["started_at"]
            return {**content, "status": "error", "error": _NO_RESULT, "started_at": at, "finished_at": at}
        if (seal := content.get("provider_state")) is None:
            return content
        maker = {"api": self.made_by.api, "model": self.made_by.model_id} if self.made_by else {}
        return {**content, "provider_state": json_text({**maker, **seal})}

    def _id(self, row_id: str) -> str:
        """Names a message by its row, so that another import gives the same name."""
        return archive.stable_id(SYSTEM, "msg", self.key, row_id)

    def _seen(self, at: datetime) -> None:
        self._times = [min(at, *self._times[:1]), max(at, *self._times[1:])] if self._times else [at, at]

    def _report(self, reason: str, words: str, row: StoredRow, place: str) -> None:
        problem = Problem(reason=reason, explanation=words, line=row.line, place=place, conversation=self.key)
        self.problems.append(problem)


def _object_of(value: object, place: str) -> Json:
    """Returns an object that is there as such or as JSON text."""
    return an_object(read_json(value, place) if isinstance(value, str) else value, place)


def _row_id_of(draft: _Draft) -> str:
    return "" if draft.row_id.startswith("nameless-") else draft.row_id


def _name(given: Json, key: str) -> str:
    """Returns a text or a whole number as text; "" when there is none."""
    value = given.get(key)
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        refuse(f"row.{key}", f"must be text or a whole number, not {kind_of(value)}")
    if not 0 < len(value) <= MAX_KEY_CHARACTERS:
        refuse(f"row.{key}", f"must have 1 to {MAX_KEY_CHARACTERS} characters")
    return a_text(value, f"row.{key}")


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        at = None
    if at is None or at.year not in _YEARS:
        refuse("row.created_at", f"must be a time in ISO 8601 of the years {_YEARS[0]} to {_YEARS[-1]}")
    return at
