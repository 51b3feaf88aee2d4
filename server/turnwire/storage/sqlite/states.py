"""Whole sessions as statements: what an import begins, publishes and joins, and removing one step by step."""

from collections.abc import Iterable
from contextlib import closing

from turnwire.domain.errors import IdTaken, StorageError
from turnwire.ports.commit import JoinSession, SessionState
from turnwire.storage.rows import Rows, SessionHead
from turnwire.storage.sql.columns import MESSAGE_BYTES, session_row
from turnwire.storage.sql.words import WordIndex
from turnwire.storage.sqlite.database import SqliteDatabase
from turnwire.storage.sqlite.tree import put_behind

STEP_ROWS = 100
"""Rows of a session that one step removes, with all that belongs to a message: some milliseconds of work."""
STEP_BYTES = 512 * 1024
"""Of the messages that one step removes, whose words the index is given; each may bring files, too."""


def former(db: SqliteDatabase, tenant: str, session_id: str, joins: str) -> tuple[int, int, int | None]:
    """Returns what an imported session begins with; see `turnwire.storage.units.Engine.former`."""
    last, kept_bytes, owner = db.execute(
        "SELECT coalesce(max(sequence), 0), coalesce(sum(length(facts)), 0), coalesce(max(nullif(tenant, ?)), '')"
        " FROM events WHERE session_id = ?",
        (tenant, session_id),
    ).fetchone()
    if owner:
        raise IdTaken.of("session", session_id)
    return last, kept_bytes, session_row(db, tenant, joins) if joins else None


def publish(db: SqliteDatabase, session: int, session_id: str, messages: int) -> int:
    """Makes an imported session a live one. Costs the same however long it is, but for a count.

    Returns the bytes of the files that came with it and that no message names. Raises StorageError: messages are
    missing.
    """
    _check_count(db, session, session_id, messages)
    db.execute("UPDATE sessions SET state = ? WHERE id = ?", (SessionState.LIVE, session))
    return _let_files_go(db, session)


def join(db: SqliteDatabase, target: int, change: JoinSession) -> tuple[int, int, int]:
    """Puts what was imported for a session behind its conversation. Costs some microseconds a message.

    Returns the bytes that the session has more, those of files that no message names, and `branched_at` of what joins.

    Raises:
        StorageError: nothing was imported for it under the id, or messages are missing.
    """
    found = db.execute(
        "SELECT id, stored_bytes - body_bytes, branched_at FROM sessions"
        " WHERE session_id = ? AND joins = ? AND state = 'importing'",
        (change.imported_id, target),
    ).fetchone()
    if found is None:
        raise _not_whole(change.imported_id)
    imported, moved_bytes, branched_at = found
    _check_count(db, imported, change.imported_id, change.messages)
    put_behind(db, imported, target)
    db.execute("UPDATE turns SET session = ? WHERE session = ?", (target, imported))
    file_bytes = _let_files_go(db, imported)
    db.execute("DELETE FROM sessions WHERE id = ?", (imported,))
    return moved_bytes, file_bytes, branched_at


def _check_count(db: SqliteDatabase, row: int, session_id: str, messages: int) -> None:
    if db.execute("SELECT count(*) FROM messages WHERE session = ?", (row,)).fetchone() != (messages,):
        raise _not_whole(session_id)


def _not_whole(session_id: str) -> StorageError:
    return StorageError(f"session {session_id} is not all there", {"id": session_id})


def _let_files_go(db: SqliteDatabase, row: int) -> int:
    """Keeps of the files of an imported session those that its messages name. Returns the bytes of the others."""
    came_early = [file for (file,) in db.execute("SELECT file FROM imported_files WHERE session = ?", (row,))]
    db.execute("DELETE FROM imported_files WHERE session = ?", (row,))
    return remove_unused(db, came_early)


def remove(db: SqliteDatabase, words: WordIndex, session: SessionHead, session_id: str, rows: Rows) -> int:
    """Takes a session out of everybody's sight, and removes some of its rows; of a small one, all.

    What stays until its turn comes: events, of which readers get the last alone, and files, which count so long.
    Returns the bytes of the files that are gone.
    """
    row, last = session.id, session.head_sequence
    if session.state != SessionState.DELETING:
        if session.state == SessionState.IMPORTING:  # its last event is that of an earlier session, which stays
            last = session.pruned_through
        update = "UPDATE sessions SET state = ?, head_sequence = ?, pruned_through = ? WHERE id = ?"
        db.execute(update, (SessionState.DELETING, last, last, row))
        db.execute("DELETE FROM open_calls WHERE session = ?", (row,))
        for table in ("permissions", "questions"):
            db.execute(f"DELETE FROM {table} WHERE session = ? AND open = 1", (row,))
        db.execute("DELETE FROM turns WHERE session = ? AND ended = 0", (row,))
    left, file_bytes = STEP_ROWS, 0
    some, is_all = _first_of(db, _MESSAGES, row, left)
    if some:
        file_bytes += remove_messages(db, words, session, some, rows)
    if not is_all:
        return file_bytes
    left -= len(some)
    some, is_all = _first_of(db, _CAME_EARLY, row, left)
    if some:
        among = ",".join(map(str, some))
        db.execute(f"DELETE FROM imported_files WHERE session = ? AND file IN ({among})", (row,))
        file_bytes += remove_unused(db, some)
    if not is_all:
        return file_bytes
    left -= len(some)
    for table in _TABLES:
        first = f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE session = ? LIMIT ?)"
        left -= db.execute(first, (row, left)).rowcount
    left -= db.execute(_REMOVE_EVENTS, (session_id, last, left)).rowcount
    if left > 0:
        db.execute("DELETE FROM sessions WHERE id = ?", (row,))
    return file_bytes


def _first_of(db: SqliteDatabase, query: str, session: int, count: int) -> tuple[list[int], bool]:
    """Returns the first rows of a query for rows and bytes, as one step removes them, and whether these are all."""
    rows, size = list[int](), 0
    with closing(db.execute(query, (session,))) as found:
        for row, row_bytes in found:
            if len(rows) == count or size > STEP_BYTES:
                return rows, False
            rows.append(row)
            size += row_bytes
    return rows, True


def remove_messages(db: SqliteDatabase, words: WordIndex, session: SessionHead, messages: list[int], rows: Rows) -> int:
    """Removes messages, and the files that no others use. Returns the bytes of these files.

    Adds to the rows what changes in the index of words.
    """
    among = ",".join(map(str, messages))
    files = files_of(db, f"message IN ({among})")
    for message in messages:
        words.take_out(rows, session.tenant, session.found_in, message)
    db.execute(f"DELETE FROM messages WHERE id IN ({among})")
    return remove_unused(db, files)


def remove_unused(db: SqliteDatabase, files: Iterable[int]) -> int:
    """Removes the files among these that nothing uses any more. Returns their bytes."""
    removed = (db.execute(_REMOVE_UNUSED, (file,)).fetchone() for file in files)
    return sum(row[0] for row in removed if row)


def files_of(db: SqliteDatabase, where: str, *parameters: object) -> list[int]:
    """Returns the rows of the files that some messages use. `where` is SQL about `message_files`."""
    return [file for (file,) in db.execute(f"SELECT DISTINCT file FROM message_files WHERE {where}", parameters)]


_REMOVE_UNUSED = (
    "DELETE FROM files WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM message_files WHERE file = ?1)"
    " AND NOT EXISTS (SELECT 1 FROM imported_files WHERE file = ?1) RETURNING length(content)"
)
"""Removes a file that nothing uses. Returns its bytes."""

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
