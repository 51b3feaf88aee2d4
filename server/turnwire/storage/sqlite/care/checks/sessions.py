"""Sessions, turns and permission requests: columns agree with values, and what waits has something to wait for."""

import sqlite3
from collections.abc import Iterator

import msgspec

from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice, PermissionRequest
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.principal import is_staging, removed_id
from turnwire.storage.sqlite.care.findings import Finding, Problem, Severity, Statement
from turnwire.storage.sqlite.care.inspection import Inspection
from turnwire.storage.sqlite.part_rows import PART_BYTES

UNREADABLE_SESSION = Problem("sessions.body", Severity.ERROR, "the settings of a session cannot be read")
WRONG_TENANT = Problem(
    "sessions.tenant", Severity.ERROR, "the tenant of a session, or of its turn, is not the one that it is filed under"
)
WRONG_STORED = Problem("sessions.stored", Severity.ERROR, "the bytes that a session has stored are counted wrongly")
UNREADABLE_TURN = Problem("turns.body", Severity.ERROR, "a turn cannot be read")
UNREADABLE_PERMISSION = Problem("permissions.body", Severity.ERROR, "a permission request cannot be read")
STAGED = Problem(
    "sessions.staged", Severity.NOTE, "a session is being stored or removed in parts, or the next start removes it"
)
WRONG_ENDED = Problem("turns.ended", Severity.ERROR, "the mark that a turn has ended does not agree with the turn")
WRONG_SEQUENCES = Problem("turns.sequences", Severity.ERROR, "a turn starts or ends at a sequence that cannot be")
WITHOUT_MESSAGE = Problem("turns.message", Severity.ERROR, "a turn has not ended, and its user message is missing")
SEVERAL_RUN = Problem("turns.several", Severity.ERROR, "several turns of one session run")
UNFINISHED = Problem(
    "turns.unfinished", Severity.NOTE, "a turn has not ended: it runs, or the next start of a server takes it over"
)
WRONG_PERMISSION_TENANT = Problem(
    "permissions.tenant", Severity.ERROR, "a permission request is filed under another tenant than its session"
)
WRONG_OPEN = Problem("permissions.open", Severity.ERROR, "the mark of an open permission request is wrong")
OPEN_TOO_LONG = Problem("permissions.ended", Severity.ERROR, "a permission request is open, and its turn is not")

_OWN = "(SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM {} WHERE session = sessions.id)"

_STORED = " + ".join(
    (
        "length(CAST(sessions.body AS BLOB))",
        *(_OWN.format(table) for table in ("turns", "messages", "permissions", "questions")),
        f"(SELECT coalesce(sum({PART_BYTES}), 0)"
        " FROM messages JOIN parts ON parts.message = messages.id WHERE messages.session = sessions.id)",
        "(SELECT coalesce(sum(length(frame)), 0) FROM events WHERE events.session_id = sessions.session_id)",
    )
)

_session = msgspec.json.Decoder(Session).decode
_turn = msgspec.json.Decoder(Turn).decode
_permission = msgspec.json.Decoder(PermissionRequest).decode


def check_sessions(inspection: Inspection) -> Iterator[Finding]:
    """Reads the settings of each session. Who owns it is never repaired: nothing says which of the two is right."""
    rows = inspection.db.execute(f"SELECT session_id, tenant, body, stored_bytes, {_STORED} FROM sessions ORDER BY id")
    for session_id, tenant, body, counted, stored in rows:
        inspection.advance("sessions", 1)
        try:
            session = _session(body)
        except msgspec.DecodeError:
            session = None
        if session is None or session.session_id != session_id:
            yield Finding(UNREADABLE_SESSION, session_id)
        elif session.tenant != tenant:
            yield Finding(WRONG_TENANT, session_id)
        if is_staging(tenant):
            yield Finding(STAGED, session_id)
        if counted != stored and not removed_id(tenant):
            repair = Statement(f"UPDATE sessions SET stored_bytes = {_STORED} WHERE session_id = ?", (session_id,))
            yield Finding(WRONG_STORED, session_id, (repair,))


def check_turns(inspection: Inspection) -> Iterator[Finding]:
    """Compares each turn with its columns, its session and its user message."""
    rows = inspection.db.execute(
        "SELECT turns.id, turn_id, ended, turns.body, start_sequence, end_sequence, session_id, head_sequence, tenant"
        " FROM turns JOIN sessions ON sessions.id = turns.session ORDER BY turns.id"
    )
    for row, turn_id, ended, body, start, end, session_id, head, tenant in rows:
        inspection.advance("turns", 1)
        if is_staging(tenant):  # filed under names of its future session
            continue
        try:
            turn = _turn(body)
        except msgspec.DecodeError:
            turn = None
        if turn is None or (turn.turn_id, turn.session_id) != (turn_id, session_id):
            yield Finding(UNREADABLE_TURN, turn_id)
            continue
        if turn.tenant != tenant:
            yield Finding(WRONG_TENANT, turn_id)
        has_ended = turn.status is TurnStatus.ENDED
        if bool(ended) != has_ended:
            repair = Statement("UPDATE turns SET ended = ? WHERE id = ?", (has_ended, row))
            yield Finding(WRONG_ENDED, turn_id, (repair,))
        if max(start, end) > head or (end and start > end):
            yield Finding(WRONG_SEQUENCES, turn_id)
        if not has_ended:
            yield Finding(UNFINISHED, turn_id)
            if not _has_message(inspection.db, session_id, turn.user_message_id):
                yield Finding(WITHOUT_MESSAGE, turn_id)
    several = (
        "SELECT session_id FROM turns JOIN sessions ON sessions.id = turns.session"
        " WHERE ended = 0 AND json_extract(turns.body, '$.status') = ? GROUP BY session HAVING count(*) > 1"
    )
    for (session_id,) in inspection.db.execute(several, (TurnStatus.RUNNING,)):
        yield Finding(SEVERAL_RUN, session_id)


def check_permissions(inspection: Inspection) -> Iterator[Finding]:
    """Compares each permission request with its columns and its turn."""
    rows = inspection.db.execute(
        "SELECT permissions.id, permission_id, open, permissions.body, session_id, session,"
        " permissions.tenant, sessions.tenant"
        " FROM permissions JOIN sessions ON sessions.id = permissions.session ORDER BY permissions.id"
    )
    for row, permission_id, is_open, body, session_id, session, tenant, owner in rows:
        inspection.advance("permissions", 1)
        if is_staging(owner):
            continue
        if tenant != owner:
            repair = Statement("UPDATE permissions SET tenant = ? WHERE id = ?", (owner, row))
            yield Finding(WRONG_PERMISSION_TENANT, permission_id, (repair,))
        try:
            permission = _permission(body)
        except msgspec.DecodeError:
            permission = None
        if permission is None or (permission.permission_id, permission.session_id) != (permission_id, session_id):
            yield Finding(UNREADABLE_PERMISSION, permission_id)
            continue
        if permission.answer is None and not _runs(inspection.db, session, permission.turn_id):
            yield Finding(OPEN_TOO_LONG, permission_id, (_cancellation(row, permission),))
        elif bool(is_open) != (permission.answer is None):
            repair = Statement("UPDATE permissions SET open = ? WHERE id = ?", (permission.answer is None, row))
            yield Finding(WRONG_OPEN, permission_id, (repair,))


def _has_message(db: sqlite3.Connection, session_id: str, message_id: str) -> bool:
    query = (
        "SELECT 1 FROM messages JOIN sessions ON sessions.id = messages.session WHERE message_id = ? AND session_id = ?"
    )
    return db.execute(query, (message_id, session_id)).fetchone() is not None


def _runs(db: sqlite3.Connection, session: int, turn_id: str) -> bool:
    # the turn itself, not the mark, which may be wrong too
    query = "SELECT 1 FROM turns WHERE turn_id = ? AND session = ? AND json_extract(body, '$.status') <> ?"
    return db.execute(query, (turn_id, session, TurnStatus.ENDED)).fetchone() is not None


def _cancellation(row: int, permission: PermissionRequest) -> Statement:
    """Returns the end that every open request gets when its turn ends."""
    cancelled = permission.closed(PermissionAnswer(PermissionChoice.CANCELLED))
    body = msgspec.json.encode(cancelled).decode()
    return Statement("UPDATE permissions SET open = 0, body = ? WHERE id = ?", (body, row))
