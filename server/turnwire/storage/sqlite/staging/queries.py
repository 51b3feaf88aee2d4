"""What is not all there yet, and what is in the way of it."""

import sqlite3

import msgspec

from turnwire.domain.principal import STAGING_MARK, removed_id, staged_for
from turnwire.ports.moving.sessions import SessionNames

_BEHIND_MARK = chr(ord(STAGING_MARK) + 1)


def staged_sessions(db: sqlite3.Connection) -> tuple[tuple[str, str], ...]:
    """Returns the sessions that are not all there; see `Store.staged_sessions`."""
    query = "SELECT tenant, session_id FROM sessions WHERE tenant >= ? AND tenant < ? ORDER BY id"
    rows = db.execute(query, (STAGING_MARK, _BEHIND_MARK))
    return tuple((staged_for(tenant), session_id) for tenant, session_id in rows)


def removed_sessions(db: sqlite3.Connection) -> frozenset[str]:
    """Returns the ids that sessions had that are being removed: nobody reads their events, but for the last."""
    query = "SELECT tenant FROM sessions WHERE tenant >= ? AND tenant < ?"
    return frozenset(removed_id(tenant) for (tenant,) in db.execute(query, (STAGING_MARK, _BEHIND_MARK))) - {""}


def is_left(db: sqlite3.Connection, tenant: str, session_id: str) -> bool:
    """Returns whether something is left of a deleted session of an id: of another tenant, or while it is removed."""
    events = "SELECT 1 FROM events WHERE session_id = ? AND tenant <> ? LIMIT 1"
    return db.execute(events, (session_id, tenant)).fetchone() is not None or session_id in removed_sessions(db)


def is_taken(db: sqlite3.Connection, tenant: str, names: SessionNames) -> bool:
    """Returns whether something has one of these ids; see `TenantStore.is_taken`."""
    session = "SELECT 1 FROM sessions WHERE session_id = ?"
    if db.execute(session, (names.session_id,)).fetchone() or is_left(db, tenant, names.session_id):
        return True
    for table, column, ids in (
        ("turns", "turn_id", names.turn_ids),
        ("messages", "message_id", names.message_ids),
        ("parts", "tool_call_id", names.call_ids),
    ):
        query = f"SELECT 1 FROM {table} WHERE {column} IN (SELECT value FROM json_each(?)) LIMIT 1"
        if ids and db.execute(query, (msgspec.json.encode(ids).decode(),)).fetchone():
            return True
    return False
