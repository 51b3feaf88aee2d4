"""The chats of a file as sessions of Turnwire: one for each chat, and one for each chat that is not there.

What is no conversation becomes a hidden message that no model is sent, even once it is shown again: of the host, or of
its true type with its text as reasoning that no provider has sealed.
"""

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

from turnwire_adapters.importers.archive import (
    MAX_NAME_CHARS,
    Json,
    MessageRecord,
    Record,
    SessionRecord,
    json_text,
    rfc3339,
    valid_text,
)
from turnwire_adapters.importers.problems import BadRow, FileError, Problem
from turnwire_adapters.importers.pynchy.file import Row, Shape, columns_of_rows, count_rows, examine, row_of
from turnwire_adapters.importers.pynchy.messages import (
    SYSTEM,
    as_json,
    is_conversation,
    key_of,
    message_of,
    old_row,
    stable_id,
    within_bound,
)
from turnwire_adapters.importers.pynchy.migration import RowDigest, Rules
from turnwire_adapters.importers.sqlite_file import check_pages

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""When something was that nothing dates, and the earliest time of a message."""

_MICROSECOND = timedelta(microseconds=1)

_LAST = (datetime(9998, 12, 31, tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The latest time of a message."""

_ORDER = """
CREATE TEMP TABLE in_order (chat, at, message INTEGER);
INSERT INTO in_order SELECT chat_jid, instant(CAST(timestamp AS BLOB)), rowid FROM messages;
CREATE INDEX temp.by_chat ON in_order (chat, at, message);
CREATE TEMP TABLE conversations AS SELECT chat COLLATE BINARY AS chat FROM in_order {chats} ORDER BY 1;
"""
"""`at` counts microseconds; NULL where there is no time, infinite where it is none that can be read."""

_CHAT = "(SELECT chat FROM temp.conversations WHERE rowid = ?)"


@dataclass(frozen=True, kw_only=True)
class _Chat:
    number: int
    session: Json
    cleared: int | None
    """Messages up to this moment were cleared; None for none."""
    problems: tuple[Problem, ...]


def records(db: sqlite3.Connection, rules: Rules, left_out: list[Row] | None = None) -> Iterator[Record]:
    """Gives the sessions of a file with their messages, in the order of time and then of writing.

    Equal files give equal records with equal ids. Uses memory for one message.

    Args:
        db: A private copy of the file; it gets temporary tables.
        rules: How messages are classified that have no type yet.
        left_out: Gets the rows that cannot be carried over, which are reported; a damaged file is then read as far as
            SQLite can. None: such rows refuse the file.

    Raises:
        FileError: it is no file of pynchy (see `examine`), it is damaged, or it has a row that cannot be carried over.
    """
    shape = examine(db)
    try:
        check_pages(db)
    except FileError as error:
        if left_out is None:
            raise
        yield Problem(reason="FILE_DAMAGED", explanation=str(error))
    total, done = count_rows(db), 0
    db.create_function("instant", 1, instant, deterministic=True)
    chats = "UNION SELECT jid COLLATE BINARY FROM chats" if shape.chat_columns else "GROUP BY 1"
    db.executescript(_ORDER.format(chats=chats))
    with closing(db.execute("SELECT rowid FROM temp.conversations ORDER BY rowid")) as numbers:
        for (number,) in numbers:
            chat = _chat(db, shape, number)
            yield from chat.problems
            yield SessionRecord(chat.session)
            for record in _messages(db, shape, rules, chat, left_out):
                done += isinstance(record, MessageRecord) or record.reason == "ROW_LEFT_OUT"
                yield record
    if done != total:
        raise FileError(f"the file has {total} messages, of which {done} were found in a chat")


def digest_of(archive: BinaryIO) -> RowDigest:
    """Returns the digest of the old columns of all rows, as an archive tells them."""
    archive.seek(0)
    found, session = RowDigest(), {}
    for line in archive:
        value = json.loads(line)
        if value["kind"] == "session":
            session = value["session"]
        elif value["kind"] == "message":
            found.add(old_row(session, value["message"]))
    return found


def instant(stored: bytes | None) -> int | float | None:
    """Returns a time as microseconds since 1970, infinity for text that is no time, None for none.

    A time without an offset is UTC.
    """
    if stored is None:
        return None
    try:
        at = datetime.fromisoformat(stored.decode().strip())
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        return (at - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return math.inf


def _chat(db: sqlite3.Connection, shape: Shape, number: int) -> _Chat:
    (jid,) = db.execute(f"SELECT {_CHAT}", (number,)).fetchone()
    key = key_of(jid)
    found = None
    if shape.chat_columns:
        found = db.execute(f"SELECT * FROM chats WHERE jid IS {_CHAT} LIMIT 1", (number,)).fetchone()
    columns: dict[str, Any] = {"name": None, "last_message_time": None, "cleared_at": None}
    columns |= {} if found is None else dict(zip(shape.chat_columns, found, strict=True))
    columns.pop("jid", None)
    kept = {"chat": "missing"} if found is None else columns
    metadata, dropped = within_bound({**kept, **({} if key == jid else {"jid": jid})})
    problems = [_too_long(f"chats.{column}", key) for column in dropped]
    cleared, heard = (instant(_bytes(columns[name])) for name in ("cleared_at", "last_message_time"))
    if cleared == math.inf:
        words = "The time when the chat was cleared cannot be read: its messages are shown."
        problems.append(Problem(reason="TIME_UNKNOWN", explanation=words, place="chats.cleared_at", conversation=key))
    first, newest = db.execute(
        f"SELECT min(at), max(at) FROM temp.in_order WHERE chat IS {_CHAT} AND at < 9e999", (number,)
    ).fetchone()
    begin = _time(heard if first is None else first, _EPOCH)
    name = columns["name"]
    title = name if isinstance(name, str) and name else key
    session = {
        "session_id": stable_id("ses", as_json(jid)),
        "created_at": rfc3339(begin),
        "updated_at": rfc3339(_time(newest, begin)),
        "title": valid_text(title)[:MAX_NAME_CHARS],
        "metadata_json": json_text({SYSTEM: metadata}),
        "origin": {"system": SYSTEM, "session_id": key},
    }
    until = None if cleared is None or cleared == math.inf else int(cleared)
    return _Chat(number=number, session=session, cleared=until, problems=tuple(problems))


def _messages(
    db: sqlite3.Connection, shape: Shape, rules: Rules, chat: _Chat, left_out: list[Row] | None
) -> Iterator[MessageRecord | Problem]:
    query = (
        f"SELECT at, {columns_of_rows(shape)} FROM temp.in_order CROSS JOIN messages ON messages.rowid = message"
        f" WHERE chat IS {_CHAT} ORDER BY at, message"
    )
    time, key = datetime.fromisoformat(chat.session["created_at"]), chat.session["origin"]["session_id"]
    with closing(db.execute(query, (chat.number,))) as found:
        for at, *values in found:
            row = row_of(shape, tuple(values))
            time = _time(at, time)
            try:
                message, dropped = message_of(row, rules, chat.session, time)
            except BadRow as bad:
                if left_out is None:
                    raise FileError(f"{bad}; --skip-bad leaves such rows out") from bad
                left_out.append(row)
                yield Problem(
                    reason="ROW_LEFT_OUT", explanation=f"The row {bad.explanation}.", place=bad.place, conversation=key
                )
                continue
            for column in dropped:
                yield _too_long(f"messages[{key_of(row.old[0])}].{column}", key)
            is_cleared = chat.cleared is not None and (at is None or at <= chat.cleared)
            yield MessageRecord(message, hidden=is_cleared or not is_conversation(message))


def _time(at: int | float | None, otherwise: datetime) -> datetime:
    if at is None or at == math.inf:
        return otherwise
    return _EPOCH + min(max(int(at), 0), _LAST) * _MICROSECOND


def _bytes(value: object) -> bytes | None:
    return None if value is None else str(value).encode(errors="replace")


def _too_long(place: str, key: str) -> Problem:
    words = "The value is too long to be kept exactly; its text is cut."
    return Problem(reason="VALUE_TOO_LONG", explanation=words, place=place, conversation=key)
