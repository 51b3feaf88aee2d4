"""Whole sessions as statements: an import begins, is published or joins; a session loses events, and is removed."""

from collections.abc import Collection
from contextlib import closing

from turnwire.domain.errors import IdTaken, StorageError
from turnwire.ports.commit import JoinSession, SessionState
from turnwire.storage.rows import Rows, SessionHead
from turnwire.storage.sql.columns import MESSAGE_BYTES, session_row
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.tree import put_behind
from turnwire.storage.sql.words import WordIndex

STEP_ROWS = 100
"""Rows of a session that one step removes, with all that belongs to a message: some milliseconds of work."""
STEP_BYTES = 512 * 1024
"""Maximum size of the messages that one step removes, with their words in the index; each may have files, too."""


def former(db: Database, tenant: str, session_id: str, joins: str) -> tuple[int, int, int | None]:
    """Returns what an imported session begins with.

    These are the last sequence of an earlier session of its id, the bytes of its events that are left, and the number
    of the session that it is to join.

    Raises:
        IdTaken: an event of another tenant's session of that id is left.
    """
    [(last, kept_bytes, owner)] = db.rows(
        "SELECT coalesce(max(sequence), 0), coalesce(sum(length(facts)), 0), coalesce(max(nullif(tenant, ?)), '')"
        " FROM events WHERE session_id = ?",
        (tenant, session_id),
    )
    if owner:
        raise IdTaken.of("session", session_id)
    return last, kept_bytes, session_row(db, tenant, joins) if joins else None


def publish(db: Database, session: int, session_id: str, messages: int) -> int:
    """Makes an imported session a live one. Costs the same however long it is, except for a count.

    Returns the bytes of its files that no message names. Raises StorageError: messages are missing.
    """
    _check_count(db, session, session_id, messages)
    db.run("UPDATE sessions SET state = ? WHERE id = ?", (SessionState.LIVE, session))
    return _let_files_go(db, session)


def join(db: Database, target: int, change: JoinSession) -> tuple[int, int, int]:
    """Appends what was imported for a session to its conversation. Costs some microseconds a message.

    Returns the bytes that the session gains, those of files that no message names, and `branched_at` of what joins.

    Raises:
        StorageError: nothing was imported for it under the id, or messages are missing.
    """
    found = db.row(
        "SELECT id, stored_bytes - body_bytes, branched_at FROM sessions"
        " WHERE session_id = ? AND joins = ? AND state = 'importing'",
        (change.imported_id, target),
    )
    if found is None:
        raise _not_whole(change.imported_id)
    imported, moved_bytes, branched_at = found
    _check_count(db, imported, change.imported_id, change.messages)
    put_behind(db, imported, target)
    db.run("UPDATE turns SET session = ? WHERE session = ?", (target, imported))
    file_bytes = _let_files_go(db, imported)
    db.run("DELETE FROM sessions WHERE id = ?", (imported,))
    return moved_bytes, file_bytes, branched_at


def _check_count(db: Database, row: int, session_id: str, messages: int) -> None:
    if db.row("SELECT count(*) FROM messages WHERE session = ?", (row,)) != (messages,):
        raise _not_whole(session_id)


def _not_whole(session_id: str) -> StorageError:
    return StorageError(f"session {session_id} is incomplete", {"id": session_id})


def _let_files_go(db: Database, row: int) -> int:
    """Removes the files of an imported session that no message names. Returns their bytes."""
    came_early = [file for (file,) in db.rows("SELECT file FROM imported_files WHERE session = ?", (row,))]
    db.run("DELETE FROM imported_files WHERE session = ?", (row,))
    return remove_unused(db, came_early)


def remove(db: Database, words: WordIndex, session: SessionHead, session_id: str, rows: Rows) -> int:
    """Makes a session invisible, and removes some of its rows; of a small one, all.

    Events, of which readers get only the last, and files, which count until they are removed, stay until their turn
    comes. Returns the bytes of the files that are gone.
    """
    row, last = session.id, session.head_sequence
    if session.state != SessionState.DELETING:
        if session.state == SessionState.IMPORTING:  # its last event is that of an earlier session, which stays
            last = session.pruned_through
        update = "UPDATE sessions SET state = ?, head_sequence = ?, pruned_through = ? WHERE id = ?"
        db.run(update, (SessionState.DELETING, last, last, row))
        db.run("DELETE FROM open_calls WHERE session = ?", (row,))
        for table in ("permissions", "questions"):
            db.run(f"DELETE FROM {table} WHERE session = ? AND open = 1", (row,))
        db.run("DELETE FROM turns WHERE session = ? AND ended = 0", (row,))
    left, file_bytes = STEP_ROWS, 0
    some, is_all = _first_of(db, _MESSAGES, row, left)
    if some:
        file_bytes += remove_messages(db, words, session, some, rows)
    if not is_all:
        return file_bytes
    left -= len(some)
    some, is_all = _first_of(db, _CAME_EARLY, row, left)
    if some:
        among, key = db.dialect.among, db.dialect.keys(some)
        db.run(f"DELETE FROM imported_files WHERE session = ? AND file {among}", (row, key))
        file_bytes += remove_unused(db, some)
    if not is_all:
        return file_bytes
    left -= len(some)
    for table in _TABLES:
        row_id = db.dialect.row_id
        first = f"DELETE FROM {table} WHERE {row_id} IN (SELECT {row_id} FROM {table} WHERE session = ? LIMIT ?)"
        left -= db.run(first, (row, left))
    left -= db.run(_REMOVE_EVENTS, (session_id, last, left))
    if left > 0:
        db.run("DELETE FROM sessions WHERE id = ?", (row,))
    return file_bytes


def _first_of(db: Database, query: str, session: int, count: int) -> tuple[list[int], bool]:
    """Returns the first rows of a query for rows and bytes, as many as one step removes, and whether these are all."""
    rows, size = list[int](), 0
    with closing(db.each(query, (session,))) as found:
        for row, row_bytes in found:
            if len(rows) == count or size > STEP_BYTES:
                return rows, False
            rows.append(row)
            size += row_bytes
    return rows, True


def remove_messages(db: Database, words: WordIndex, session: SessionHead, messages: list[int], rows: Rows) -> int:
    """Removes messages, and the files that no others use. Returns the bytes of these files.

    Adds the changes of the index of words to the rows.
    """
    files = files_of(db, messages)
    for message in messages:
        words.take_out(rows, session.tenant, session.found_in, message)
    db.run(f"DELETE FROM messages WHERE id {db.dialect.among}", (db.dialect.keys(messages),))
    return remove_unused(db, files)


def remove_unused(db: Database, files: Collection[int]) -> int:
    """Removes those of the files that nothing uses any more. Returns their bytes."""
    if not files:
        return 0
    removed = db.rows(_REMOVE_UNUSED.format(among=db.dialect.among), (db.dialect.keys(files),))
    return sum(size for (size,) in removed)


def files_of(db: Database, messages: list[int]) -> list[int]:
    """Returns the rows of the files that some messages use."""
    query = f"SELECT DISTINCT file FROM message_files WHERE message {db.dialect.among}"
    return [file for (file,) in db.rows(query, (db.dialect.keys(messages),))]


_REMOVE_UNUSED = (
    "DELETE FROM files WHERE id {among} AND NOT EXISTS (SELECT 1 FROM message_files WHERE file = files.id)"
    " AND NOT EXISTS (SELECT 1 FROM imported_files WHERE file = files.id) RETURNING length(content)"
)
"""Removes the files that nothing uses. Returns their bytes. One statement: the time of one for each is quadratic in
SQLite."""

_MESSAGES = f"SELECT id, {MESSAGE_BYTES} FROM messages WHERE session = ? ORDER BY id"

_CAME_EARLY = (
    "SELECT file, length(content) FROM imported_files JOIN files ON files.id = file WHERE session = ? ORDER BY file"
)

_TABLES = ("turns", "requests", "permissions", "questions", "undos")
"""Tables with rows of a session besides its messages and events."""

_REMOVE_EVENTS = (
    "DELETE FROM events WHERE position IN"
    " (SELECT position FROM events WHERE session_id = ? AND sequence <= ? ORDER BY sequence LIMIT ?)"
)

_KEPT_FROM = "SELECT min(coalesce(nullif(first_sequence, 0), start_sequence)) FROM turns"
"""The first event of the turns that have not ended, which are few. 0 keeps everything, because it is unknown."""


def prune(db: Database, session: int, session_id: str, through: int) -> tuple[int, int]:
    """Drops a session's events up to a sequence, except from the first event of a turn that has not ended on.

    Returns:
        The sequence up to which it could drop them, and their bytes.
    """
    few = db.dialect.hint("turns_unfinished")
    [(kept_from,)] = db.rows(f"{_KEPT_FROM} {few} WHERE ended = 0 AND session = ?", (session,))
    if kept_from is not None:
        through = min(through, kept_from - 1)
    last = db.row(
        "SELECT sequence, position FROM events WHERE session_id = ? AND sequence <= ? ORDER BY sequence DESC LIMIT 1",
        (session_id, through),
    )
    size = 0
    if last is not None:
        gone = "FROM events WHERE session_id = ? AND sequence <= ?"
        [(size,)] = db.rows(f"SELECT coalesce(sum(length(facts)), 0) {gone}", (session_id, through))
        db.run(f"DELETE {gone}", (session_id, through))
        greatest = db.dialect.greatest
        db.run(
            f"UPDATE sessions SET pruned_through = {greatest}(pruned_through, ?),"
            f" pruned_position = {greatest}(pruned_position, ?),"
            " stored_bytes = stored_bytes - ? WHERE id = ?",
            (*last, size, session),
        )
    return through, size
