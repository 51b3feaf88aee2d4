"""Staged sessions as SQL. Everything here runs inside the writer's transaction."""

import sqlite3

from turnwire.domain.errors import IdTaken, SessionNotFound, StorageError
from turnwire.domain.principal import is_staging, removed_id, staged_for
from turnwire.ports.commit import AdoptSession, DropStaged, MoveFiles
from turnwire.storage.accounts import Delta
from turnwire.storage.sqlite.listing.entries import list_session
from turnwire.storage.sqlite.searching.index import take_out
from turnwire.storage.sqlite.staging.queries import is_left
from turnwire.storage.sqlite.writing.unit import SessionRow, Unit, microseconds, session_text

MAX_DROPPED_BYTES = 512 * 1024
"""Of the messages that one step removes, whose words the index is told; each may bring files, too."""

_TABLES = ("turns", "requests", "permissions", "questions")
"""Where a session has rows besides its messages, and none that a message refers to."""

_DROP_EVENTS = (
    "DELETE FROM events WHERE position IN"
    " (SELECT position FROM events WHERE session_id = ? AND sequence <= ? ORDER BY sequence LIMIT ?)"
)


def adopt(db: sqlite3.Connection, change: AdoptSession) -> SessionRow:
    """Gives a staged session its id and its tenant. Costs the same however long the session is, but for one count.

    Raises:
        SessionNotFound: nothing is staged under this id for the session's tenant.
        IdTaken: the session's id is not free; that nothing has it the caller knows.
        StorageError: messages or files are missing.
    """
    session = change.session
    query = "SELECT id, tenant, branched_at FROM sessions WHERE session_id = ?"
    row = db.execute(query, (change.staged_id,)).fetchone()
    if row is None or not is_staging(row[1]) or staged_for(row[1]) != session.tenant:
        raise SessionNotFound(change.staged_id)
    if is_left(db, session.tenant, session.session_id):
        raise IdTaken.of("session", session.session_id)
    (found,) = db.execute("SELECT count(*) FROM messages WHERE session = ?", (row[0],)).fetchone()
    if found != change.messages or db.execute("SELECT 1 FROM files WHERE tenant = ? LIMIT 1", (row[1],)).fetchone():
        raise StorageError(f"session {session.session_id} is not all there", {"id": session.session_id})
    # the last event of a deleted session of this id, whose sequences go on
    last, kept_bytes = db.execute(
        "SELECT coalesce(max(sequence), 0), coalesce(sum(length(frame)), 0) FROM events WHERE session_id = ?",
        (session.session_id,),
    ).fetchone()
    pruned = max(last - 1, 0)
    archived_at_us = microseconds(session.archived_at) if session.archived_at else 0
    archived = archived_at_us > 0, archived_at_us
    db.execute(
        "UPDATE sessions SET session_id = ?, tenant = ?, body = ?, head_sequence = ?, pruned_through = ?,"
        " archived = ?, archived_at_us = ? WHERE id = ?",
        (
            session.session_id,
            session.tenant,
            session_text(session),
            last,
            pruned,
            *archived,
            row[0],
        ),
    )
    list_session(db, row[0], session, session.tenant)
    db.execute("UPDATE sessions SET stored_bytes = stored_bytes + ? WHERE id = ?", (kept_bytes, row[0]))
    return SessionRow(row[0], session.tenant, last, pruned, 0, row[2], archived_at_us, is_new=True)


def move_files(unit: Unit, change: MoveFiles) -> None:
    """Gives files of a staged session to a tenant, at least one. One that the tenant has already is used instead."""
    db, moved = unit.db, 0
    query = "SELECT id, sha256, length(content) FROM files WHERE tenant = ? ORDER BY id LIMIT 1"
    while (row := db.execute(query, (unit.session.tenant,)).fetchone()) is not None:
        file, sha256, size = row
        if moved and moved + size > change.max_bytes:
            unit.is_unfinished = True
            return
        moved += size + 1024  # so that empty files end a step too
        own = db.execute("SELECT id FROM files WHERE tenant = ? AND sha256 = ?", (change.tenant, sha256)).fetchone()
        if own is None:
            db.execute("UPDATE files SET tenant = ? WHERE id = ?", (change.tenant, file))
            unit.moved.append(Delta(change.tenant, stored_bytes=size))
        else:
            db.execute("UPDATE parts SET file = ? WHERE file = ?", (own[0], file))
            db.execute("UPDATE part_files SET file = ? WHERE file = ?", (own[0], file))
            db.execute("DELETE FROM files WHERE id = ?", (file,))


def drop_some(unit: Unit, change: DropStaged) -> None:
    """Removes a part of a staged session; the session itself once nothing else is left."""
    db, row = unit.db, unit.session
    if not is_staging(row.tenant):
        raise StorageError(f"session {unit.session_id} is not staged", {"id": unit.session_id})
    unit.is_unfinished = True
    if ids := _next_messages(db, row.id, change.max_rows):
        _drop_messages(unit, ids)
        return
    for table in _TABLES:
        some = f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE session = ? ORDER BY id LIMIT ?)"
        if db.execute(some, (row.id, change.max_rows)).rowcount:
            return
    if db.execute(_DROP_EVENTS, (removed_id(row.tenant), row.head_sequence, change.max_rows)).rowcount:
        return
    file = db.execute("SELECT id FROM files WHERE tenant = ? LIMIT 1", (row.tenant,)).fetchone()
    if file is not None:
        db.execute("DELETE FROM files WHERE id = ?", file)
        return
    db.execute("DELETE FROM sessions WHERE id = ?", (row.id,))
    unit.is_gone, unit.is_unfinished = True, False


def _next_messages(db: sqlite3.Connection, session: int, max_rows: int) -> list[int]:
    """Returns the rows of the first messages of a session, fewer than asked for where they are large."""
    query = "SELECT id, display_bytes FROM messages WHERE session = ? ORDER BY id LIMIT ?"
    ids, size = list[int](), 0
    for message, display_bytes in db.execute(query, (session, max_rows)).fetchall():
        ids.append(message)
        size += display_bytes
        if size > MAX_DROPPED_BYTES:
            break
    return ids


def _drop_messages(unit: Unit, ids: list[int]) -> None:
    """Removes messages, and the files that only they used, whoever owns these by now."""
    db, among = unit.db, ",".join(map(str, ids))
    used = f"SELECT id FROM parts WHERE message IN ({among})"
    files = db.execute(
        f"SELECT file FROM parts WHERE message IN ({among}) AND file IS NOT NULL"
        f" UNION SELECT file FROM part_files WHERE part IN ({used})"
    ).fetchall()
    unit.index_changes += take_out(db, unit.session.tenant, unit.session.id, ids)
    db.execute(f"DELETE FROM messages WHERE id IN ({among})")
    for (file,) in files:
        removed = db.execute(_REMOVE_UNUSED, (file,)).fetchone()
        if removed is not None:
            unit.moved.append(Delta(removed[0], stored_bytes=-removed[1]))


_REMOVE_UNUSED = (
    "DELETE FROM files WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM parts WHERE file = ?1)"
    " AND NOT EXISTS (SELECT 1 FROM part_files WHERE file = ?1) RETURNING tenant, length(content)"
)
