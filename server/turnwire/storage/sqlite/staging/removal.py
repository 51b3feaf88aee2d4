"""Removing sessions: small ones at once, large ones out of everybody's sight first and then in steps.

Everything here runs inside the writer's transaction.
"""

import sqlite3

from turnwire.domain.conversation.sessions import Session
from turnwire.domain.principal import removal_name
from turnwire.ports.commit import Commit, RemoveSession
from turnwire.storage.sqlite.listing.entries import list_session
from turnwire.storage.sqlite.writing.messages import files_of, remove_session
from turnwire.storage.sqlite.writing.unit import Unit, session_text

MAX_MESSAGES = 100
"""Messages of a deleted session that one commit removes: others wait some milliseconds for it."""
MAX_EVENTS = 1_000
"""Events of a deleted session that one commit removes."""
MAX_BYTES = 512 * 1024
"""Of all that one such commit removes, with the files that only this session may use: pages are read to be given up,
and the index is told each word."""


def remove(unit: Unit, change: RemoveSession, commit: Commit) -> None:
    """Removes the session of a commit, or sets it aside: it is gone for all readers, and `DropStaged` removes the rest.

    What stays until then: events, of which readers are told the last alone, and files, which count until they go.
    """
    if change.staged_id and _is_large(unit):
        _set_aside(unit, change.staged_id, commit)
        unit.is_unfinished = True
    else:
        remove_session(unit)


def _is_large(unit: Unit) -> bool:
    db, row = unit.db, unit.session
    more_messages = "SELECT 1 FROM messages WHERE session = ? LIMIT 1 OFFSET ?"
    more_events = "SELECT 1 FROM events WHERE session_id = ? LIMIT 1 OFFSET ?"
    if row.stored_bytes > MAX_BYTES or _any(db, more_messages, row.id, MAX_MESSAGES):
        return True
    files = ",".join(map(str, files_of(db, "messages.session = ?", row.id)))
    too_large = f"SELECT 1 WHERE ? + (SELECT coalesce(sum(length(content)), 0) FROM files WHERE id IN ({files})) > ?"
    return _any(db, more_events, unit.session_id, MAX_EVENTS) or _any(db, too_large, row.stored_bytes, MAX_BYTES)


def _any(db: sqlite3.Connection, query: str, *values: object) -> bool:
    return db.execute(query, values).fetchone() is not None


def _set_aside(unit: Unit, staged_id: str, commit: Commit) -> None:
    """Makes it a staged session under another id. What lists of a tenant find without the session goes at once."""
    db, row = unit.db, unit.session
    name = removal_name(staged_id, unit.session_id, row.tenant)
    placeholder = Session(session_id=staged_id, tenant=name, created_at=commit.at, updated_at=commit.at)
    db.execute(
        "UPDATE sessions SET session_id = ?, tenant = ?, body = ?, pruned_through = head_sequence, pruned_position = 0"
        " WHERE id = ?",
        (staged_id, name, session_text(placeholder), row.id),
    )
    list_session(db, row.id, placeholder, name)
    db.execute("DELETE FROM open_calls WHERE session = ?", (row.id,))
    for table in ("permissions", "questions"):
        db.execute(f"DELETE FROM {table} WHERE session = ? AND open = 1", (row.id,))
    db.execute("DELETE FROM turns WHERE session = ? AND ended = 0", (row.id,))
