"""The messages of a file as sessions of Turnwire: one for each chat, and one for each chat that is not there.

What is no conversation becomes a hidden message that no model is sent, even once it is shown again: of type HOST, or
of its true type with its text as reasoning that no provider has sealed.
"""

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, ImportProblem, Record, SessionEnd
from turnwire.domain.conversation.messages import Origin
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import StorageCorrupt
from turnwire.interop.pynchy.legacy_file import Shape, check_pages, columns_of_rows, count_rows, examine, row_of
from turnwire.interop.pynchy.messages import MAX_NAME_CHARS, is_conversation, json_text, key_of, message_of, stable_id
from turnwire.interop.pynchy.migration import BATCH_ROWS, Advance, Rules, silent
from turnwire.interop.pynchy.old_values import SYSTEM, as_json, valid_text, within_bound

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""When something was that nothing dates, and the earliest time of a message."""

_MICROSECOND = timedelta(microseconds=1)

_LAST = (datetime(9998, 12, 31, tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The latest time of a message."""

_ORDER = """
CREATE TEMP TABLE in_order (chat, at, message INTEGER);
INSERT INTO in_order SELECT chat_jid, instant(CAST(timestamp AS BLOB)), rowid FROM messages;
CREATE INDEX temp.by_chat ON in_order (chat, at, message);
CREATE TEMP TABLE conversations AS
    SELECT chat COLLATE BINARY AS chat FROM in_order UNION SELECT jid COLLATE BINARY FROM chats ORDER BY 1;
"""
"""`at` counts microseconds; NULL where there is no time, infinite where it is none that can be read."""

_CHAT = "(SELECT chat FROM temp.conversations WHERE rowid = ?)"


class _Chat(Struct, frozen=True, kw_only=True):
    number: int
    session: Session
    cleared: int | None
    """Messages up to this moment were cleared; None for none."""
    problems: tuple[ImportProblem, ...]


def records(db: sqlite3.Connection, rules: Rules, advance: Advance = silent) -> Iterator[Record | ImportProblem]:
    """Gives the sessions of a file with their messages, in the order of time and then of writing.

    Equal files give equal records with equal ids. Uses memory for one message.

    Args:
        db: A private copy of the file; it gets temporary tables.
        rules: How messages are classified that have no type yet.
        advance: Hears how many messages are done, and how many there are.

    Raises:
        StorageError: it is no file of pynchy; see `examine`.
        StorageCorrupt: the file is damaged.
    """
    shape = examine(db)
    check_pages(db)
    total, done = count_rows(db), 0
    db.create_function("instant", 1, instant, deterministic=True)
    db.executescript(_ORDER)
    with closing(db.execute("SELECT rowid FROM temp.conversations ORDER BY rowid")) as numbers:
        for (number,) in numbers:
            chat = _chat(db, number)
            yield from chat.problems
            yield ArchivedSession(chat.session)
            count = 0
            for record in _messages(db, shape, rules, chat):
                if isinstance(record, ArchivedMessage):
                    count, done = count + 1, done + 1
                    if done % BATCH_ROWS == 0 or done == total:
                        advance(done, total)
                yield record
            yield SessionEnd(count)
    if done != total:
        raise StorageCorrupt(f"the file has {total} messages, of which {done} were found in a chat")


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


def _chat(db: sqlite3.Connection, number: int) -> _Chat:
    (jid,) = db.execute(f"SELECT {_CHAT}", (number,)).fetchone()
    key = key_of(jid)
    columns: dict[str, Any] = {"name": None, "last_message_time": None, "cleared_at": None}
    with closing(db.execute(f"SELECT * FROM chats WHERE jid IS {_CHAT} LIMIT 1", (number,))) as chats:
        found = chats.fetchone()
        known = [] if found is None else zip((name for name, *_ in chats.description), found, strict=True)
        columns |= {name: value for name, value in known if name in columns}
    kept = {"chat": "missing"} if found is None else columns
    metadata, dropped = within_bound({**kept, **({} if key == jid else {"jid": jid})})
    problems = [_too_long(f"chats.{column}", key) for column in dropped]
    cleared, heard = (instant(_bytes(columns[name])) for name in ("cleared_at", "last_message_time"))
    if cleared == math.inf:
        words = "The time when the chat was cleared cannot be read: its messages are shown."
        problems.append(
            ImportProblem(reason="TIME_UNKNOWN", explanation=words, place="chats.cleared_at", source_id=key)
        )
    first, newest = db.execute(
        f"SELECT min(at), max(at) FROM temp.in_order WHERE chat IS {_CHAT} AND at < 9e999", (number,)
    ).fetchone()
    begin = _time(heard if first is None else first, _EPOCH)
    name = columns["name"]
    title = name if isinstance(name, str) and name else key
    session = Session(
        session_id=stable_id("ses", as_json(jid)),
        created_at=begin,
        updated_at=_time(newest, begin),
        title=valid_text(title)[:MAX_NAME_CHARS],
        metadata_json=json_text({SYSTEM: metadata}),
        origin=Origin(system=SYSTEM, session_id=key),
    )
    until = None if cleared is None or cleared == math.inf else int(cleared)
    return _Chat(number=number, session=session, cleared=until, problems=tuple(problems))


def _messages(
    db: sqlite3.Connection, shape: Shape, rules: Rules, chat: _Chat
) -> Iterator[ArchivedMessage | ImportProblem]:
    query = (
        f"SELECT at, {columns_of_rows(shape)} FROM temp.in_order CROSS JOIN messages ON messages.rowid = message"
        f" WHERE chat IS {_CHAT} ORDER BY at, message"
    )
    time = chat.session.created_at
    with closing(db.execute(query, (chat.number,))) as found:
        for at, *values in found:
            row = row_of(tuple(values))
            time = _time(at, time)
            message, dropped = message_of(row, rules, chat.session, time)
            for column in dropped:
                key = chat.session.origin.session_id if chat.session.origin else ""
                yield _too_long(f"messages[{key_of(row.old[0])}].{column}", key)
            is_cleared = chat.cleared is not None and (at is None or at <= chat.cleared)
            yield ArchivedMessage(message, hidden=is_cleared or not is_conversation(message))


def _time(at: int | float | None, otherwise: datetime) -> datetime:
    if at is None or at == math.inf:
        return otherwise
    return _EPOCH + min(max(int(at), 0), _LAST) * _MICROSECOND


def _bytes(value: object) -> bytes | None:
    return None if value is None else str(value).encode(errors="replace")


def _too_long(place: str, key: str) -> ImportProblem:
    words = "The value is too long to be kept exactly; its text is cut."
    return ImportProblem(reason="VALUE_TOO_LONG", explanation=words, place=place, source_id=key)
