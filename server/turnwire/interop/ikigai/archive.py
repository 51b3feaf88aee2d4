"""Reads stored rows as an archive: JSON Lines, each a row of ikigai's table `messages` as a JSON object.

| key | holds |
|---|---|
| `session_id`, or what the option `key` names | the conversation: text or a whole number |
| `id` | of the row, a whole number or text; absent when it has none |
| `kind` | as `rows` reads it |
| `content` | text, or null |
| `data_json`, or `data` | JSON text, or the object itself; null for none |
| `provider_metadata` | an object, or JSON text of one; null for none |
| `created_at` | time in ISO 8601; without an offset it is UTC |

All rows of a conversation stand together, in their order. Other keys are not read.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, NoReturn

from msgspec import Struct

from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, ImportProblem, Record, SessionEnd
from turnwire.domain.conversation.limits import MAX_METADATA_BYTES
from turnwire.domain.errors import ArchiveInvalid, InvalidRequest
from turnwire.interop.archive.bounds import Bounds
from turnwire.interop.archive.documents import lines
from turnwire.interop.forms import Json, a_text, kind_of, refuse, text_of
from turnwire.interop.ikigai.conversations import MadeBy
from turnwire.interop.ikigai.replay import Replay, StoredRow

MAX_CONVERSATIONS = 200_000
"""Of one archive; it is remembered which there were."""
MAX_DATA_CHARACTERS = 16 * 1024 * 1024
"""Of the JSON text of one row, which is parsed as a whole."""
MAX_KEY_CHARACTERS = 255
"""Of the key of a conversation or a row."""
_YEARS = range(1970, 9999)

_OPTIONS = ("key", "skip", "provider", "model", "api")


class _Options(Struct, frozen=True, kw_only=True):
    key: str = "session_id"
    """Names the key of the conversation."""
    skip: frozenset[str] = frozenset()
    """Kinds of rows that are left out."""
    made_by: MadeBy | None = None


class RowsReader:
    """Reads stored rows; implements `ports.moving.archives.ArchiveReader`. Keeps nothing between two reads."""

    keeps_ids = False

    def __init__(self, bounds: Bounds) -> None:
        """Takes how large a line, a conversation and its rows may be. A conversation is in the memory as a whole."""
        self._bounds = bounds

    def read(self, source: BinaryIO, options: Mapping[str, str]) -> Iterator[Record | ImportProblem]:
        """Yields the records. Memory is that of one conversation.

        Args:
            source: The archive.
            options: `key`: the key that names the conversation, "session_id" by default. `skip`: kinds of rows to leave
                out, with commas between. `provider`, `model` and `api`, all or none: who has made the answers, as
                `MadeBy`.

        Raises:
            ArchiveInvalid: as the port says; it names the line and the key.
            InvalidRequest: an option is unknown or wrong.
        """
        return _Archive(source, _read_options(options), self._bounds).records()


def _read_options(given: Mapping[str, str]) -> _Options:
    for name in given:
        if name not in _OPTIONS:
            refuse(f"options[{name}]", f"is not one of {', '.join(_OPTIONS)}")
    maker = [given.get(name, "") for name in ("provider", "model", "api")]
    if any(maker) and not all(maker):
        refuse("options", "provider, model and api go together")
    skip = frozenset(kind.strip() for kind in given.get("skip", "").split(",")) - {""}
    return _Options(key=given.get("key") or "session_id", skip=skip, made_by=MadeBy(*maker) if all(maker) else None)


class _Archive:
    """One archive while it is read."""

    def __init__(self, source: BinaryIO, options: _Options, bounds: Bounds) -> None:
        self._source = source
        self._options = options
        self._bounds = bounds
        self._line = 0

    def records(self) -> Iterator[Record | ImportProblem]:
        seen = set[bytes]()
        for key, rows in itertools.groupby(self._rows(), key=lambda row: row.conversation):
            digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
            if digest in seen:
                self._wrong(self._options.key, "rows of this conversation came before: sort them by it")
            if len(seen) >= MAX_CONVERSATIONS:
                self._wrong("", f"has more than {MAX_CONVERSATIONS} conversations: divide the archive")
            seen.add(digest)
            yield from self._conversation(key, rows)
        if not seen:
            self._line = 0
            self._wrong("", "holds no rows")

    def _conversation(self, key: str, rows: Iterator[StoredRow]) -> Iterator[Record | ImportProblem]:
        replay = Replay(key, self._options.skip, self._options.made_by)
        begin = self._source.tell()
        for count, row in enumerate(rows, 1):
            if count > self._bounds.messages:
                self._wrong("", f"the conversation has more than {self._bounds.messages} rows")
            if self._source.tell() - begin > self._bounds.conversation_bytes:
                self._wrong("", f"the conversation has more than {self._bounds.conversation_bytes} bytes")
            try:
                replay.add(row)
            except InvalidRequest as error:
                self._refused(error)
        yield ArchivedSession(replay.session())
        messages = replay.messages()
        for message, hidden in messages:
            yield ArchivedMessage(message, hidden)
        yield SessionEnd(len(messages))
        yield from replay.problems

    def _rows(self) -> Iterator[StoredRow]:
        for line, value in lines(self._source, self._bounds):
            self._line = line
            try:
                yield self._row(value)
            except InvalidRequest as error:
                self._refused(error)

    def _row(self, given: Json) -> StoredRow:
        values = {name: given.get(name) for name in ("kind", "content")}
        data = given.get("data_json", given.get("data"))
        values["data_json"] = json.dumps(data, ensure_ascii=False) if isinstance(data, dict) else data
        if isinstance(data, str) and (len(data) > MAX_DATA_CHARACTERS or _values_in(data) > self._bounds.values):
            refuse("row.data_json", f"has more than {MAX_DATA_CHARACTERS} characters, or {self._bounds.values} values")
        values["provider_metadata"] = _metadata(given.get("provider_metadata"))
        return StoredRow(
            conversation=_name(given, self._options.key) or refuse(f"row.{self._options.key}", "is missing"),
            row_id=_name(given, "id"),
            line=self._line,
            at=_time(text_of(given, "created_at", "row")),
            values=values,
        )

    def _refused(self, error: InvalidRequest) -> NoReturn:
        violation = error.violations[0]
        self._wrong(violation.field.removeprefix("row").removeprefix("."), violation.description)

    def _wrong(self, place: str, description: str, **metadata: str) -> NoReturn:
        raise ArchiveInvalid.at(description, line=self._line, place=place, **metadata) from None


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


def _metadata(value: Any) -> Any:
    """Returns metadata that is an object or JSON text of one; the rest is refused by who reads the row."""
    if not isinstance(value, str) or len(value) > MAX_METADATA_BYTES:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        refuse("row.provider_metadata", "is text that is not JSON")


def _values_in(text: str) -> int:
    """Returns at least how many values JSON text has, with those that texts in it seem to have."""
    return sum(map(text.count, "[{,"))
