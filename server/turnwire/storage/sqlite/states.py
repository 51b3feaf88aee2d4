"""Who knows of a session: what begins, publishes and removes it. All but `is_taken` runs inside a transaction."""

import sqlite3
from contextlib import closing

import msgspec

from turnwire.domain.errors import IdTaken, StorageError
from turnwire.ports.commit import JoinSession, PublishSession, SessionState
from turnwire.ports.moving.sessions import SessionNames
from turnwire.storage.sqlite.message_rows import MESSAGE_BYTES
from turnwire.storage.sqlite.reading.rows import session_row
from turnwire.storage.sqlite.searching.index import take_out
from turnwire.storage.sqlite.tree import put_behind
from turnwire.storage.sqlite.writing.messages import files_of, remove_unused
from turnwire.storage.sqlite.writing.unit import SessionRow, Unit

STEP_ROWS = 100
"""Rows of a session that one step removes, with all that belongs to a message: some milliseconds of work."""
STEP_BYTES = 512 * 1024
"""Of the messages that one step removes, whose words the index is given; each may bring files, too."""


def begin(db: sqlite3.Connection, row: SessionRow, session_id: str, joins: str) -> SessionRow:
    """Lets a new session be an imported one. Where one of its id was deleted, its sequences go on.

    Args:
        db: The writing connection.
        row: The row, just inserted.
        session_id: Its id.
        joins: The session of the tenant that it is to join; "" for none.

    Raises:
        IdTaken: an event is left of another tenant's session that had the id.
    """
    last, kept_bytes, owner = db.execute(
        "SELECT coalesce(max(sequence), 0), coalesce(sum(length(facts)), 0), coalesce(max(nullif(tenant, ?)), '')"
        " FROM events WHERE session_id = ?",
        (row.tenant, session_id),
    ).fetchone()
    if owner:
        raise IdTaken.of("session", session_id)
    target = session_row(db, row.tenant, joins) if joins else None
    pruned_through = max(last - 1, 0)
    db.execute(
        "UPDATE sessions SET state = ?, joins = ?, head_sequence = ?, pruned_through = ?,"
        " stored_bytes = stored_bytes + ? WHERE id = ?",
        (SessionState.IMPORTING, target, last, pruned_through, kept_bytes, row.id),
    )
    return row._replace(
        head_sequence=last,
        pruned_through=pruned_through,
        stored_bytes=row.stored_bytes + kept_bytes,
        state=SessionState.IMPORTING,
        joins=target,
    )


def publish(unit: Unit, change: PublishSession) -> None:
    """Makes the session of a commit a live one. Costs the same however long it is, but for a count.

    Raises:
        StorageError: it is not imported, or messages are missing.
    """
    if unit.state is not SessionState.IMPORTING:
        raise _not_whole(unit.session_id)
    _check_count(unit.db, unit.session.id, unit.session_id, change.messages)
    unit.state = SessionState.LIVE
    unit.db.execute("UPDATE sessions SET state = ? WHERE id = ?", (unit.state, unit.session.id))
    unit.file_bytes -= _let_files_go(unit.db, unit.session.id)


def join(unit: Unit, change: JoinSession) -> None:
    """Puts what was imported for the session of a commit behind its conversation. Costs some microseconds a message.

    Raises:
        StorageError: nothing was imported for it under the id, or messages are missing.
    """
    db, target = unit.db, unit.session.id
    found = db.execute(
        "SELECT id, stored_bytes - length(CAST(body AS BLOB)), branched_at FROM sessions"
        " WHERE session_id = ? AND joins = ? AND state = 'importing'",
        (change.imported_id, target),
    ).fetchone()
    if found is None:
        raise _not_whole(change.imported_id)
    imported, moved_bytes, branched_at = found
    _check_count(db, imported, change.imported_id, change.messages)
    put_behind(db, imported, target)
    db.execute("UPDATE turns SET session = ? WHERE session = ?", (target, imported))
    if branched_at:
        db.execute("UPDATE sessions SET branched_at = max(branched_at, 1) WHERE id = ?", (target,))
        unit.is_branched = True
    unit.added_bytes += moved_bytes
    unit.file_bytes -= _let_files_go(db, imported)
    db.execute("DELETE FROM sessions WHERE id = ?", (imported,))


def _check_count(db: sqlite3.Connection, row: int, session_id: str, messages: int) -> None:
    if db.execute("SELECT count(*) FROM messages WHERE session = ?", (row,)).fetchone() != (messages,):
        raise _not_whole(session_id)


def _not_whole(session_id: str) -> StorageError:
    return StorageError(f"session {session_id} is not all there", {"id": session_id})


def _let_files_go(db: sqlite3.Connection, row: int) -> int:
    """Keeps of the files of an imported session those that its messages name. Returns the bytes of the others."""
    came_early = [file for (file,) in db.execute("SELECT file FROM imported_files WHERE session = ?", (row,))]
    db.execute("DELETE FROM imported_files WHERE session = ?", (row,))
    return remove_unused(db, came_early)


def remove(unit: Unit) -> None:
    """Takes the session of a commit out of everybody's sight, and removes some of its rows; of a small one, all.

    What stays until its turn comes: events, of which readers get the last alone, and files, which count so long.
    """
    db, row = unit.db, unit.session
    last = row.head_sequence
    if unit.state is not SessionState.DELETING:
        if unit.state is SessionState.IMPORTING:  # its last event is that of an earlier session, which stays
            last = row.pruned_through
        unit.state = SessionState.DELETING
        update = "UPDATE sessions SET state = ?, head_sequence = ?, pruned_through = ? WHERE id = ?"
        db.execute(update, (unit.state, last, last, row.id))
        db.execute("DELETE FROM open_calls WHERE session = ?", (row.id,))
        for table in ("permissions", "questions"):
            db.execute(f"DELETE FROM {table} WHERE session = ? AND open = 1", (row.id,))
        db.execute("DELETE FROM turns WHERE session = ? AND ended = 0", (row.id,))
    _remove_rows(unit, last)


def _remove_rows(unit: Unit, last_sequence: int) -> None:
    """Removes some of what a session has, with its events up to a sequence; its own row once nothing else is left."""
    db, row, left = unit.db, unit.session.id, STEP_ROWS
    for query, remove_some in ((_MESSAGES, _remove_messages), (_CAME_EARLY, _remove_files)):
        rows, is_all = _first_of(db, query, row, left)
        if rows:
            remove_some(unit, rows)
        if not is_all:
            return
        left -= len(rows)
    for table in _TABLES:
        some = f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE session = ? LIMIT ?)"
        left -= db.execute(some, (row, left)).rowcount
    left -= db.execute(_REMOVE_EVENTS, (unit.session_id, last_sequence, left)).rowcount
    if left > 0:
        db.execute("DELETE FROM sessions WHERE id = ?", (row,))


def _first_of(db: sqlite3.Connection, query: str, session: int, count: int) -> tuple[list[int], bool]:
    """Returns the first rows of a query for rows and bytes, as one step removes them, and whether these are all."""
    rows, size = list[int](), 0
    with closing(db.execute(query, (session,))) as found:
        for row, row_bytes in found:
            if len(rows) == count or size > STEP_BYTES:
                return rows, False
            rows.append(row)
            size += row_bytes
    return rows, True


def _remove_messages(unit: Unit, rows: list[int]) -> None:
    among = ",".join(map(str, rows))
    files = files_of(unit.db, f"message IN ({among})")
    unit.rows.words += take_out(unit.db, unit.session.tenant, unit.session.found_in, rows)
    unit.db.execute(f"DELETE FROM messages WHERE id IN ({among})")
    unit.file_bytes -= remove_unused(unit.db, files)


def _remove_files(unit: Unit, rows: list[int]) -> None:
    among = ",".join(map(str, rows))
    unit.db.execute(f"DELETE FROM imported_files WHERE session = ? AND file IN ({among})", (unit.session.id,))
    unit.file_bytes -= remove_unused(unit.db, rows)


_MESSAGES = f"SELECT id, {MESSAGE_BYTES} FROM messages WHERE session = ? ORDER BY id"

_CAME_EARLY = (
    "SELECT file, length(content) FROM imported_files JOIN files ON files.id = file WHERE session = ? ORDER BY file"
)

_TABLES = ("turns", "requests", "permissions", "questions", "undos")
"""Where a session has rows besides its messages and events."""

_REMOVE_EVENTS = (
    "DELETE FROM events WHERE position IN"
    " (SELECT position FROM events WHERE session_id = ? AND sequence <= ? ORDER BY sequence LIMIT ?)"
)


def keep_file(unit: Unit, sha256: str) -> None:
    """Notes that a session that is imported has a file, which no message of it may name yet."""
    unit.db.execute(
        "INSERT INTO imported_files (session, file) SELECT ?, id FROM files WHERE tenant = ? AND sha256 = ?"
        " ON CONFLICT DO NOTHING",
        (unit.session.id, unit.session.tenant, sha256),
    )


def is_taken(db: sqlite3.Connection, tenant: str, names: SessionNames) -> bool:
    """Returns whether something has one of these ids; see `TenantStore.is_taken`."""
    session = (
        "SELECT 1 FROM sessions WHERE session_id = ?1"
        " UNION ALL SELECT 1 FROM events WHERE session_id = ?1 AND tenant <> ?2 LIMIT 1"
    )
    if names.session_id and db.execute(session, (names.session_id, tenant)).fetchone():
        return True
    for table, column, ids in (
        ("turns", "turn_id", names.turn_ids),
        ("messages", "message_id", names.message_ids),
        ("tool_calls", "tool_call_id", names.call_ids),
    ):
        query = f"SELECT 1 FROM {table} WHERE {column} IN (SELECT value FROM json_each(?)) LIMIT 1"
        if ids and db.execute(query, (msgspec.json.encode(ids).decode(),)).fetchone():
            return True
    return False
