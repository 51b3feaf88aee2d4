"""The log of events: complete from where each session's log begins to its head, readable, and in agreement with it."""

import itertools
import sqlite3
from collections.abc import Iterator
from functools import partial

from msgspec import Struct

from turnwire.storage.sqlite.care.findings import Finding, Problem, Severity, Statement
from turnwire.storage.sqlite.care.inspection import EventFacts, Inspection
from turnwire.storage.sqlite.staging.queries import removed_sessions

UNREADABLE = Problem("events.frame", Severity.ERROR, "a stored event cannot be read, or is not of its place")
GAP = Problem("events.gap", Severity.ERROR, "events are missing between others or before the head of a session")
UNORDERED = Problem("events.order", Severity.ERROR, "events of a session are in another order among all events")
WRONG_KIND = Problem("events.kind", Severity.ERROR, "an event is filed under another kind")
WRONG_TENANT = Problem("events.tenant", Severity.ERROR, "an event is filed under another tenant than its session")
LEFT_OVER = Problem("events.left", Severity.WARNING, "an event is kept that its session has dropped")
WITHOUT_SESSION = Problem("events.session", Severity.WARNING, "an event belongs to a session that is missing")
WRONG_HEAD = Problem("sessions.head", Severity.ERROR, "the head of a session is before its newest event")
WRONG_QUEUE = Problem("sessions.queue", Severity.ERROR, "the queue's revision is not that of the newest event about it")

_LAST_KIND = "SessionDeleted"
"""The one event that outlives its session."""

_REMOVED_KIND = "MessageRemoved"
"""After it the id of a message is free."""

_LOG_COLUMNS = (
    "session_id, head_sequence, pruned_through, queue_revision, tenant, (SELECT pruned_through FROM log_state)"
)


class _Log(Struct, frozen=True):
    """What a session says about its own log."""

    session_id: str
    head: int
    pruned: int
    queue_revision: int
    tenant: str
    given_up: int
    """The position up to which the events of all sessions are given up."""


class _Row(Struct, frozen=True):
    session_id: str
    tenant: str
    sequence: int
    position: int
    kind: str
    frame: bytes


def check_events(inspection: Inspection) -> Iterator[Finding]:
    """Follows the log of each session from its first event to its head."""
    rows = inspection.db.execute(
        "SELECT session_id, tenant, sequence, position, kind, frame FROM events ORDER BY session_id, sequence"
    )
    removed = removed_sessions(inspection.db)
    for session_id, group in itertools.groupby((_Row(*row) for row in rows), key=lambda row: row.session_id):
        log = _log(inspection.db, session_id)
        follow = _without_session if log is None else partial(_follow, log)
        yield from follow(inspection, _kept(log, group, session_id in removed))
    without = (
        f"SELECT {_LOG_COLUMNS} FROM sessions"
        " WHERE head_sequence > pruned_through"
        " AND NOT EXISTS (SELECT 1 FROM events WHERE events.session_id = sessions.session_id)"
    )
    for row in inspection.db.execute(without):
        log = _Log(*row)
        yield Finding(GAP, f"{log.session_id} {log.head}", _dropping(log.session_id, log.head))


def _follow(log: _Log, inspection: Inspection, rows: Iterator[_Row]) -> Iterator[Finding]:
    last, position, revision = log.pruned, 0, None
    for row in rows:
        inspection.advance("events", 1)
        subject = f"{log.session_id} {row.sequence}"
        if row.position <= log.given_up:  # servers remove it while they run
            continue
        if row.sequence <= log.pruned:
            yield Finding(LEFT_OVER, subject, (_deletion(row),))
            continue
        if row.tenant != log.tenant:
            repair = Statement("UPDATE events SET tenant = ? WHERE position = ?", (log.tenant, row.position))
            yield Finding(WRONG_TENANT, subject, (repair,))
        if row.sequence != last + 1:
            yield Finding(GAP, subject, _dropping(log.session_id, row.sequence - 1))
            revision = None
        if row.position <= position:
            yield Finding(UNORDERED, subject, _dropping(log.session_id, row.sequence))
        last, position = row.sequence, max(position, row.position)
        facts = _facts(inspection, row)
        if facts is None:
            yield Finding(UNREADABLE, subject, _dropping(log.session_id, row.sequence))
            revision = None
            continue
        if facts.kind != row.kind:
            repair = Statement("UPDATE events SET kind = ? WHERE position = ?", (facts.kind, row.position))
            yield Finding(WRONG_KIND, subject, (repair,))
        if facts.queue_revision is not None:
            revision = facts.queue_revision
    yield from _end(log, last, revision)


def _end(log: _Log, last: int, revision: int | None) -> Iterator[Finding]:
    """Compares the session with the end of its log.

    The head is only ever raised: clients hold sequences, and one that is given twice would name two events.
    """
    if last > log.head:
        repair = Statement("UPDATE sessions SET head_sequence = ? WHERE session_id = ?", (last, log.session_id))
        yield Finding(WRONG_HEAD, log.session_id, (repair,))
    elif last < log.head:
        yield Finding(GAP, f"{log.session_id} {log.head}", _dropping(log.session_id, log.head))
    elif revision is not None and revision != log.queue_revision:
        repair = Statement("UPDATE sessions SET queue_revision = ? WHERE session_id = ?", (revision, log.session_id))
        yield Finding(WRONG_QUEUE, log.session_id, (repair,))


def _kept(log: _Log | None, rows: Iterator[_Row], is_removed: bool) -> Iterator[_Row]:
    """Yields the events of a session; of one that was deleted, without those that servers remove while they run."""
    for row in rows:
        if not is_removed or (row.kind == _LAST_KIND if log is None else row.sequence > log.pruned):
            yield row


def _without_session(inspection: Inspection, rows: Iterator[_Row]) -> Iterator[Finding]:
    for row in rows:
        inspection.advance("events", 1)
        if row.kind != _LAST_KIND:
            yield Finding(WITHOUT_SESSION, f"{row.session_id} {row.sequence}", (_deletion(row),))
        elif _facts(inspection, row) is None:
            yield Finding(UNREADABLE, f"{row.session_id} {row.sequence}", (_deletion(row),))


def _facts(inspection: Inspection, row: _Row) -> EventFacts | None:
    try:
        facts = inspection.frames.event(row.frame)
    except ValueError:
        return None
    if facts.sequence != row.sequence or facts.session_id not in {"", row.session_id}:
        return None
    return facts if facts.session_id or _is_of_session(inspection, row) else None


def _is_of_session(inspection: Inspection, row: _Row) -> bool:
    """Returns whether the subject of a short event is of the event's session.

    A message may have been removed since, and its id may be one of an imported session by now.
    """
    subject = inspection.codec.subject_of(row.frame)
    table, name = ("turns", "turn_id") if subject.turn_id else ("messages", "message_id")
    query = f"SELECT session_id FROM {table} JOIN sessions ON sessions.id = {table}.session WHERE {name} = ?"
    found = inspection.db.execute(query, (subject.turn_id or subject.message_id,)).fetchone()
    if found is None or found[0] == row.session_id:
        return True
    removed = "SELECT 1 FROM events WHERE session_id = ? AND sequence > ? AND kind = ? AND instr(frame, ?) > 0"
    values = (row.session_id, row.sequence, _REMOVED_KIND, subject.message_id.encode())
    return bool(subject.message_id) and inspection.db.execute(removed, values).fetchone() is not None


def _deletion(row: _Row) -> Statement:
    return Statement("DELETE FROM events WHERE position = ?", (row.position,))


def _dropping(session_id: str, through: int) -> tuple[Statement, ...]:
    """Returns what drops a session's events through a sequence, as retention does: its watchers read anew.

    A watch of all sessions reads the session anew when its place is before the session's first kept event.
    """
    place = (
        "coalesce((SELECT min(position) - 1 FROM events WHERE session_id = :session AND sequence > :through),"
        " (SELECT max(position) FROM events), (SELECT pruned_through FROM log_state), 0)"
    )
    update = (
        f"UPDATE sessions SET pruned_position = max(pruned_position, {place}),"
        " pruned_through = max(pruned_through, :through), head_sequence = max(head_sequence, :through)"
        " WHERE session_id = :session"
    )
    delete = "DELETE FROM events WHERE session_id = :session AND sequence <= :through"
    values = {"session": session_id, "through": through}
    return (Statement(update, values), Statement(delete, values))


def _log(db: sqlite3.Connection, session_id: str) -> _Log | None:
    query = f"SELECT {_LOG_COLUMNS} FROM sessions WHERE session_id = ?"
    row = db.execute(query, (session_id,)).fetchone()
    return _Log(*row) if row else None
