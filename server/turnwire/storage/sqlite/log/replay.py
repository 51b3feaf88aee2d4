"""Pages of the log: short events with what they leave out, as it is stored now. Runs on the reading connection."""

import sqlite3
from contextlib import closing
from typing import NamedTuple

import msgspec

from turnwire.domain.conversation.events import SessionDeleted
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import SessionNotFound
from turnwire.ports.codec import Codec, Subject
from turnwire.ports.pages import Bounds, EventPage, PrunedSession
from turnwire.storage.sqlite.hiding.alternatives import with_alternatives
from turnwire.storage.sqlite.part_rows import PART_BYTES, PART_COLUMNS, part_of
from turnwire.storage.sqlite.reading.fitting import HeavyRead
from turnwire.storage.sqlite.reading.rows import EVENTS_OF_TENANT, ONE_SESSION, read_messages, removed_sessions

_header = msgspec.json.Decoder(Message).decode
_turn = msgspec.json.Decoder(Turn).decode


PAGE_BYTES = 64 * 1024
"""About what one write to a watcher carries; more would only wait in memory."""

PAGE_EVENTS = 256
"""Filled for one page at most, so that other reads do not wait for it for more than some milliseconds."""


class LoggedEvent(NamedTuple):
    """A row of the log."""

    session_id: str
    kind: str
    stored: bytes


def session_bounds(db: sqlite3.Connection, tenant: str, session_id: str) -> Bounds:
    """Returns which sequences are kept; see `TenantStore.session_bounds`."""
    row = db.execute(f"SELECT pruned_through, head_sequence {ONE_SESSION}", (tenant, session_id)).fetchone()
    if row is None:
        raise SessionNotFound(session_id)
    return Bounds(*row)


def log_bounds(db: sqlite3.Connection, tenant: str) -> Bounds:
    """Returns which positions are kept; see `TenantStore.log_bounds`."""
    newest = f"SELECT position {EVENTS_OF_TENANT} ORDER BY position DESC LIMIT 1"
    hours = "SELECT max(position) FROM log_hours"  # what was dropped by its age is not behind them
    query = f"SELECT pruned_through, coalesce(({newest}), 0), coalesce(({hours}), 0) FROM log_state"
    row = db.execute(query, (tenant,)).fetchone()
    return Bounds(row[0], max(row))


def session_events(
    db: sqlite3.Connection,
    codec: Codec,
    tenant: str,
    session_id: str,
    after: int,
    *,
    kinds: frozenset[str] | None,
    max_bytes: int | None = None,
) -> EventPage:
    """Returns a page of a session's events; see `TenantStore.session_events`.

    With `max_bytes` it ends before an event that is about more than that; raises HeavyRead when that is the first one.
    """
    db.execute("BEGIN")  # so that the events, their subjects and the bound are of the same moment
    try:
        pruned = db.execute(f"SELECT pruned_through {ONE_SESSION}", (tenant, session_id)).fetchone()
        query = (
            "SELECT sequence, session_id, kind, frame FROM events INDEXED BY events_in_order"
            " WHERE session_id = ? AND sequence > ? AND tenant = ? ORDER BY sequence"
        )
        earliest = pruned[0] if pruned else 0
        rows = db.execute(query, (session_id, max(after, earliest), tenant))
        frames, last = _filled(db, codec, rows, kinds, max_bytes)
    finally:
        db.execute("COMMIT")
    return EventPage(frames, last or after, earliest)


def log_events(
    db: sqlite3.Connection,
    codec: Codec,
    tenant: str,
    after: int,
    *,
    kinds: frozenset[str] | None,
    max_bytes: int | None = None,
) -> EventPage:
    """Returns a page of all events; see `TenantStore.log_events`, and `session_events` for `max_bytes`."""
    db.execute("BEGIN")  # as above
    try:
        (pruned,) = db.execute("SELECT pruned_through FROM log_state").fetchone()
        newer = (
            "SELECT session_id, pruned_through, pruned_position FROM sessions INDEXED BY sessions_pruned"
            " WHERE state = 'live' AND tenant = ? AND pruned_position > 0 AND pruned_position > ?"
        )
        lost = tuple(PrunedSession(*row) for row in db.execute(newer, (tenant, after)))
        query = f"SELECT position, session_id, kind, frame {EVENTS_OF_TENANT} AND position > ? ORDER BY position"
        frames, last = _filled(db, codec, db.execute(query, (tenant, max(after, pruned))), kinds, max_bytes)
    finally:
        db.execute("COMMIT")
    return EventPage(frames, last or after, pruned, lost)


def _filled(
    db: sqlite3.Connection,
    codec: Codec,
    rows: sqlite3.Cursor,
    kinds: frozenset[str] | None,
    max_bytes: int | None,
) -> tuple[tuple[bytes, ...], int]:
    """Returns the frames of a page, and the place of its last event; 0 when there is none.

    Goes through events of all kinds until the page is full, so that a filter does not hold up other readers. Of a
    session that is being removed only the last event is told, as when all others are gone.
    """
    frames, size, last, removed = list[bytes](), 0, 0, removed_sessions(db)
    weights = _Weights(db, codec, max_bytes)
    with closing(rows):
        for order, *event in rows:
            logged = LoggedEvent(*event)
            is_gone = logged.session_id in removed and logged.kind != SessionDeleted.__name__
            is_wanted = not is_gone and (kinds is None or logged.kind in kinds)
            if is_wanted and weights.is_heavy(logged):
                if not last:
                    raise HeavyRead
                break
            last = int(order)
            size += len(logged.stored)
            if is_wanted and (frame := frame_of(db, codec, logged)):
                frames.append(frame)
                size += len(frame)
            if size >= PAGE_BYTES or len(frames) >= PAGE_EVENTS:
                break
    return tuple(frames), last


class _Weights:
    """Says which events are about much. Looks only at those of sessions that have much at all."""

    def __init__(self, db: sqlite3.Connection, codec: Codec, max_bytes: int | None) -> None:
        self._db, self._codec, self._max_bytes = db, codec, max_bytes
        self._is_light = dict[str, bool]()  # by session

    def is_heavy(self, event: LoggedEvent) -> bool:
        """Returns whether what an event is about has more than the bytes."""
        if self._max_bytes is None:
            return False
        if (is_light := self._is_light.get(event.session_id)) is None:
            row = self._db.execute(_STORED, (event.session_id,)).fetchone()
            is_light = self._is_light[event.session_id] = row is None or row[0] <= self._max_bytes
        if is_light:
            return False
        subject = self._codec.subject_of(event.stored)
        if subject.has_parts:
            row = self._db.execute(_PARTS_BYTES, (subject.message_id,)).fetchone()
        elif subject.part_index is not None:
            one = f"{_PARTS_BYTES} AND part_index = ?"
            row = self._db.execute(one, (subject.message_id, subject.part_index)).fetchone()
        else:
            return False
        return bool(row[0] > self._max_bytes)


def frame_of(db: sqlite3.Connection, codec: Codec, event: LoggedEvent) -> bytes:
    """Returns a stored event as a frame; empty when its subject is gone and it tells nothing without it.

    Call it in the transaction that has read the event.
    """
    found = _found(db, event.session_id, codec.subject_of(event.stored))
    return codec.fill_event(event.stored, event.session_id, found)


def _found(db: sqlite3.Connection, session_id: str, subject: Subject) -> Message | Turn | None:
    """Returns what an event is about. The id of one that is gone may be one of another session by now."""
    if subject.turn_id:
        return _found_turn(db, session_id, subject.turn_id)
    if not subject.message_id:
        return None
    if subject.has_parts:
        found = read_messages(db, f"message_id = ? AND {_OF_SESSION}", (subject.message_id, session_id), "place")
        return _with_alternatives(db, found[0]) if found else None
    part_index = -1 if subject.part_index is None else subject.part_index
    row = db.execute(_MESSAGE, (subject.message_id, part_index, session_id)).fetchone()
    if row is None or (subject.part_index is not None and row[2] is None):
        return None
    header, previous, *part = row
    parts = () if part[0] is None else (part_of(*part),)
    message = msgspec.structs.replace(_header(header), parts=parts, previous_message_id=previous)
    return message if parts else _with_alternatives(db, message)


def _with_alternatives(db: sqlite3.Connection, message: Message) -> Message:
    """Returns the message with the numbers of its alternatives, which only a session has whose path has changed."""
    query = "SELECT sessions.id FROM messages JOIN sessions ON sessions.id = session WHERE message_id = ?"
    row = db.execute(f"{query} AND branched_at > 0", (message.message_id,)).fetchone()
    return message if row is None else with_alternatives(db, row[0], (message,))[0]


def _found_turn(db: sqlite3.Connection, session_id: str, turn_id: str) -> Turn | None:
    query = f"SELECT body, start_sequence, end_sequence FROM turns WHERE turn_id = ? AND {_OF_SESSION}"
    row = db.execute(query, (turn_id, session_id)).fetchone()
    if row is None:
        return None
    return msgspec.structs.replace(_turn(row[0]), start_sequence=row[1], end_sequence=row[2])


_OF_SESSION = "session = (SELECT id FROM sessions WHERE session_id = ?)"

_STORED = "SELECT stored_bytes FROM sessions WHERE session_id = ?"

_PARTS_BYTES = f"SELECT total({PART_BYTES}) FROM parts WHERE message = (SELECT id FROM messages WHERE message_id = ?)"

_MESSAGE = (
    f"SELECT messages.body, previous, {PART_COLUMNS} FROM messages"
    " LEFT JOIN parts ON parts.message = messages.id AND part_index = ?2 WHERE message_id = ?1"
    " AND session = (SELECT id FROM sessions WHERE session_id = ?3)"
)
