"""Pages of the log: events with what the rows of their messages and turns say now."""

from collections.abc import Generator
from contextlib import closing
from typing import Any

import msgspec

from turnwire.domain.conversation.events import Event, SessionDeleted
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import SessionNotFound
from turnwire.ports.codec import Codec
from turnwire.ports.pages import Bounds, EventPage, PrunedSession
from turnwire.storage.rows import KINDS, Facts, is_of_turn, kind_of, moment, turn_of, unpacked
from turnwire.storage.sql.alternatives import with_alternatives
from turnwire.storage.sql.columns import MESSAGE_BYTES, TURN_HEADER, WITH_PARTS, number, one_session, read_messages
from turnwire.storage.sql.database import Database, Dialect
from turnwire.storage.sql.pages import HeavyRead
from turnwire.storage.sql.sessions import removed_sessions

PAGE_BYTES = 64 * 1024
"""About what one write to a watcher carries; more would only wait in memory."""

PAGE_EVENTS = 256
"""Made for one page at most, so that other reads do not wait for it for more than some milliseconds."""

COLUMNS = "session_id, sequence, at_us, turn_id, kind, message_id, facts"
"""What `_logged` takes."""


class Logged(msgspec.Struct, frozen=True):
    """What a row of the log says."""

    session_id: str
    sequence: int
    at_us: int
    turn_id: str
    kind: str
    message_id: str
    facts: bytes


def _logged(  # noqa: PLR0917 - the columns
    session_id: str, sequence: int, at_us: int, turn: bytes | str, kind: int, message: bytes | str, facts: bytes
) -> Logged:
    ids = unpacked("trn", turn), unpacked("msg", message)
    return Logged(session_id, sequence, at_us, ids[0], KINDS[kind], ids[1], facts)


def _of_tenant(dialect: Dialect) -> str:
    """Returns SQL for a tenant's events by position. SQLite must not choose the table, which has those of all."""
    return f"FROM events {dialect.hint('events_of_tenants')} WHERE tenant = ?"


def session_bounds(db: Database, tenant: str, session_id: str) -> Bounds:
    """Returns which sequences are kept; see `TenantStore.session_bounds`."""
    row = db.row(f"SELECT pruned_through, head_sequence {one_session(db.dialect)}", (tenant, session_id))
    if row is None:
        raise SessionNotFound(session_id)
    return Bounds(*row)


def log_bounds(db: Database, tenant: str) -> Bounds:
    """Returns which positions are kept; see `TenantStore.log_bounds`."""
    newest = f"SELECT position {_of_tenant(db.dialect)} ORDER BY position DESC LIMIT 1"
    query = f"SELECT pruned_through, coalesce(({newest}), 0), newest_dropped FROM log_state"
    [row] = db.rows(query, (tenant,))
    return Bounds(row[0], max(row))


def session_events(
    db: Database,
    tenant: str,
    session_id: str,
    after: int,
    *,
    codec: Codec,
    kinds: frozenset[str] | None,
    max_bytes: int | None = None,
) -> EventPage:
    """Returns a page of a session's events; see `TenantStore.session_events`.

    With `max_bytes` it ends before an event that is about more than that; raises HeavyRead when that is the first one.
    """
    query = (
        f"SELECT sequence, {COLUMNS} FROM events {db.dialect.hint('events_in_order')}"
        " WHERE session_id = ? AND sequence > ? AND tenant = ? ORDER BY sequence"
    )
    with db.snapshot():
        earliest = number(db, f"SELECT pruned_through {one_session(db.dialect)}", (tenant, session_id))
        rows = db.each(query, (session_id, max(after, earliest), tenant))
        events, frames, last = _made(db, codec, rows, kinds, max_bytes)
    return EventPage(events, frames, last or after, earliest)


def log_events(
    db: Database,
    tenant: str,
    after: int,
    *,
    codec: Codec,
    kinds: frozenset[str] | None,
    max_bytes: int | None = None,
) -> EventPage:
    """Returns a page of all events; see `TenantStore.log_events`, and `session_events` for `max_bytes`."""
    newer = (
        f"SELECT session_id, pruned_through, pruned_position FROM sessions {db.dialect.hint('sessions_pruned')}"
        " WHERE state = 'live' AND tenant = ? AND pruned_position > 0 AND pruned_position > ?"
    )
    query = f"SELECT position, {COLUMNS} {_of_tenant(db.dialect)} AND position > ? ORDER BY position"
    with db.snapshot():
        pruned = number(db, "SELECT pruned_through FROM log_state")
        lost = tuple(PrunedSession(*row) for row in db.rows(newer, (tenant, after)))
        rows = db.each(query, (tenant, max(after, pruned)))
        events, frames, last = _made(db, codec, rows, kinds, max_bytes)
    return EventPage(events, frames, last or after, pruned, lost)


def _made(
    db: Database,
    codec: Codec,
    rows: Generator[Any],
    kinds: frozenset[str] | None,
    max_bytes: int | None,
) -> tuple[tuple[Event, ...], tuple[bytes, ...], int]:
    """Returns the events of a page, their frames, and the place of the last one; 0 when there is none.

    Goes through events of all kinds until the page is full, so that a filter does not hold up other readers. Of a
    session that is being removed only the last event is replayed, as when all others are gone.
    """
    events, frames, size, last, removed = list[Event](), list[bytes](), 0, 0, removed_sessions(db)
    subjects = Subjects(db, max_bytes)
    with closing(rows):
        for order, *columns in rows:
            logged = _logged(*columns)
            is_gone = logged.session_id in removed and logged.kind != SessionDeleted.__name__
            is_wanted = not is_gone and (kinds is None or logged.kind in kinds)
            try:
                event = event_of(subjects, logged) if is_wanted else None
            except HeavyRead:
                if not last:
                    raise
                break
            last = int(order)
            size += len(logged.facts)
            if event is not None:
                events.append(event)
                frames.append(codec.encode_event(event))
                size += len(frames[-1])
            if size >= PAGE_BYTES or len(frames) >= PAGE_EVENTS:
                break
    return tuple(events), tuple(frames), last


class Subjects:
    """What the events of a page are about, each read once: a message of a thousand calls has thousands of events."""

    def __init__(self, db: Database, max_bytes: int | None = None) -> None:
        """Takes the connection, in the transaction that reads the events, and the bytes of a light message."""
        self._db = db
        self._max_bytes = max_bytes
        self._message_id = ("", "")
        self._message: Message | None = None

    def message(self, session_id: str, message_id: str) -> Message | None:
        """Returns a message; None when it is gone: one of this id may be another session's by now.

        Raises HeavyRead: it has more bytes.
        """
        if self._message_id != (session_id, message_id):
            self._message = self._read(session_id, message_id)
            self._message_id = session_id, message_id
        return self._message

    def turn(self, session_id: str, turn_id: str) -> Turn | None:
        """Returns a turn without its settings; None when it is gone."""
        query = f"SELECT {TURN_HEADER} FROM turns WHERE turn_id = ? AND {_OF_SESSION}"
        row = self._db.row(query, (turn_id, session_id))
        return None if row is None else turn_of(*row)

    def _read(self, session_id: str, message_id: str) -> Message | None:
        where = f"message_id = ? AND {_OF_SESSION}"
        sized = f"SELECT session, {MESSAGE_BYTES} FROM messages WHERE {where}"
        row = self._db.row(sized, (message_id, session_id))
        if row is None:
            return None
        if self._max_bytes is not None and row[1] > self._max_bytes:
            raise HeavyRead
        found = read_messages(self._db, where, (message_id, session_id), "place", columns=WITH_PARTS)
        is_branched = number(self._db, "SELECT branched_at FROM sessions WHERE id = ?", (row[0],)) > 0
        return with_alternatives(self._db, row[0], found)[0] if is_branched else found[0]


def event_of(subjects: Subjects, logged: Logged) -> Event | None:
    """Returns a stored event; None when its subject is gone and it tells nothing without it.

    Raises:
        HeavyRead: its message has more bytes.
        ValueError: the log is damaged.
    """
    subject: Message | Turn | None = None
    if logged.message_id:
        subject = subjects.message(logged.session_id, logged.message_id)
    elif is_of_turn(logged.kind):
        subject = subjects.turn(logged.session_id, logged.turn_id)
    facts, at = Facts(logged.kind, logged.message_id, logged.facts), moment(logged.at_us)
    kind = kind_of(facts, logged.session_id, at, subject)
    if kind is None:
        return None
    return Event(session_id=logged.session_id, kind=kind, at=at, turn_id=logged.turn_id, sequence=logged.sequence)


_OF_SESSION = "session = (SELECT id FROM sessions WHERE session_id = ?)"
