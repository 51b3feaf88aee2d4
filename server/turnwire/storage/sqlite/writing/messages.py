"""Messages, their drafts, and the files that they refer to."""

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from turnwire.domain.conversation.messages import Branch, Message, MessageStatus
from turnwire.domain.errors import IdTaken, StorageError
from turnwire.ports.commit import PutDraft, PutFile, PutMessage
from turnwire.storage.sqlite.message_rows import STORED_BYTES, message_row, put_draft
from turnwire.storage.sqlite.open_calls.filing import file_calls
from turnwire.storage.sqlite.searching.index import add_message, take_out
from turnwire.storage.sqlite.tree import (
    NOT_TAKEN_BACK,
    carry_branches,
    keep_turn,
    leave_place,
    put_away,
    put_off_path,
)
from turnwire.storage.sqlite.writing.unit import Unit


class _Stored(NamedTuple):
    """A message as it is stored."""

    row: int
    session: int
    queued: int
    previous: str
    size_bytes: int
    has_drafts: int
    has_files: int
    is_indexed: int


def put_message(unit: Unit, change: PutMessage) -> None:
    """Writes a message, indexes it, and notes the message before it.

    It is looked up first: what a new one has is not looked for, and what it counts is known.

    Raises:
        IdTaken: the id is that of a message of another session.
        StorageError: a file is not stored.
    """
    db, message, session = unit.db, change.message, unit.session
    found = db.execute(_FIND, (message.message_id,)).fetchone()
    stored = None if found is None else _Stored(*found)
    if stored is not None and stored.session != session.id:
        raise IdTaken.of("message", message.message_id)
    if change.at_end:
        leave_place(db, session.id, message.message_id)
    if unit.is_branched:
        keep_turn(db, session.id, message.message_id, message.turn_id)
    is_indexed = stored is not None and bool(stored.is_indexed)
    if stored is not None and is_indexed:  # before it is written: the index has to be given what it had
        unit.rows.words += take_out(db, session.tenant, session.found_in, (stored.row,), message)
    row, previous = _write(unit, change, stored)
    _put_references(unit, row, message, stored)
    if change.is_hidden:
        put_away(db, row)
    if change.branch is not None:
        _put_off_path(unit, row, change.branch)
    elif unit.is_branched:
        carry_branches(db, session.id, message.message_id)
    unit.rows.words += add_message(db, session.tenant, session.found_in, row, message, is_new=not is_indexed)
    unit.previous[message.message_id] = previous


def _write(unit: Unit, change: PutMessage, stored: _Stored | None) -> tuple[int, str]:
    """Writes the row of a message. Returns it, and the id of the message before it.

    For a statement that returns something SQLite copies each page that it changes, so what is needed is read first.
    """
    db, message, session = unit.db, change.message, unit.session
    columns, queued = message_row(message), message.status is MessageStatus.QUEUED
    unit.added_bytes += columns.size_bytes - (stored.size_bytes if stored is not None else 0)
    if stored is not None and not change.at_end and queued == stored.queued:
        db.execute(_UPDATE, (message.turn_id, *columns, stored.row))
        return stored.row, stored.previous
    wanted = {"session": session.id, "queued": queued, "message_id": message.message_id}
    place, previous = db.execute(_END, wanted).fetchone()
    if stored is not None:
        db.execute(_MOVE, (queued, place, previous, message.turn_id, *columns, stored.row))
        return stored.row, str(previous)
    new = (message.message_id, session.id, queued, place, NOT_TAKEN_BACK, message.turn_id, previous, *columns)
    return db.execute(_INSERT, new).lastrowid or 0, str(previous)


def _put_references(unit: Unit, row: int, message: Message, stored: _Stored | None) -> None:
    """Keeps what is found by the message in step with it: its calls, its files, and no drafts."""
    db, calls = unit.db, message.tool_calls()
    if calls:
        values = [(part.part_id, row, call.call_id) for part, call in calls]
        (known,) = db.execute("SELECT count(*) FROM tool_calls WHERE message = ?", (row,)).fetchone()
        if known != len(calls):  # a message gets its calls once, and is put again for each of their results
            db.execute("DELETE FROM tool_calls WHERE message = ?", (row,))
            db.executemany("INSERT INTO tool_calls (tool_call_id, message, call_id) VALUES (?, ?, ?)", values)
        file_calls(unit, row, calls)
    if stored is not None and stored.has_drafts:
        db.execute("DELETE FROM drafts WHERE message = ?", (row,))
    before = set(files_of(db, "message = ?", row)) if stored is not None and stored.has_files else set()
    files = {_file_row(unit, sha256) for sha256 in {file.sha256 for file in message.all_files()}}
    if files == before:
        return
    db.executemany("DELETE FROM message_files WHERE message = ? AND file = ?", [(row, one) for one in before - files])
    db.executemany("INSERT INTO message_files (message, file) VALUES (?, ?)", [(row, one) for one in files - before])
    unit.file_bytes -= remove_unused(db, before - files)


def add_draft(unit: Unit, change: PutDraft) -> None:
    """Adds a draft to a message. Raises StorageError when the session has no such message."""
    message_id = change.draft.message.message_id
    if not put_draft(unit.db, message_id, unit.session.id, change.draft):
        raise StorageError(f"message {message_id} is not stored", {"id": message_id})


def _put_off_path(unit: Unit, row: int, branch: Branch) -> None:
    """Puts a new message off the path. The number of the first event says that a path has been changed at some time."""
    put_off_path(unit.db, row, branch.previous_message_id, branch.turn_id)
    unit.db.execute("UPDATE sessions SET branched_at = max(branched_at, 1) WHERE id = ?", (unit.session.id,))
    unit.is_branched = True


def remove_message(unit: Unit, message_id: str) -> None:
    """Removes a message of the session, and the files that no other message uses."""
    found = unit.db.execute(_FIND, (message_id,)).fetchone()
    if found is None or _Stored(*found).session != unit.session.id:
        return
    stored = _Stored(*found)
    files = files_of(unit.db, "message = ?", stored.row)
    unit.rows.words += take_out(unit.db, unit.session.tenant, unit.session.found_in, (stored.row,))
    unit.db.execute("DELETE FROM messages WHERE id = ?", (stored.row,))
    unit.added_bytes -= stored.size_bytes
    unit.file_bytes -= remove_unused(unit.db, files)


def put_file(unit: Unit, change: PutFile) -> None:
    """Stores the bytes of a file, once for each tenant."""
    added = unit.db.execute(
        "INSERT INTO files (tenant, sha256, content) VALUES (?, ?, ?) ON CONFLICT (tenant, sha256) DO NOTHING",
        (unit.session.tenant, change.sha256, change.content),
    ).rowcount
    unit.file_bytes += added * len(change.content)


def remove_unused(db: sqlite3.Connection, files: Iterable[int]) -> int:
    """Removes the files among these that nothing uses any more. Returns their bytes."""
    removed = (db.execute(_REMOVE_UNUSED, (file,)).fetchone() for file in files)
    return sum(row[0] for row in removed if row)


def _file_row(unit: Unit, sha256: str) -> int:
    """Returns the row of a file of the session's tenant."""
    query = "SELECT id FROM files WHERE tenant = ? AND sha256 = ?"
    row = unit.db.execute(query, (unit.session.tenant, sha256)).fetchone()
    if row is None:
        raise StorageError(f"file {sha256} is not stored", {"sha256": sha256})
    return int(row[0])


def files_of(db: sqlite3.Connection, where: str, *parameters: object) -> list[int]:
    """Returns the rows of the files that some messages use. `where` is SQL about `message_files`."""
    return [file for (file,) in db.execute(f"SELECT DISTINCT file FROM message_files WHERE {where}", parameters)]


_REMOVE_UNUSED = (
    "DELETE FROM files WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM message_files WHERE file = ?1)"
    " AND NOT EXISTS (SELECT 1 FROM imported_files WHERE file = ?1) RETURNING length(content)"
)
"""Removes a file that nothing uses. Returns its bytes."""

_FIND = (
    f"SELECT id, session, queued, previous, {STORED_BYTES}, EXISTS (SELECT 1 FROM drafts WHERE message = messages.id),"
    " EXISTS (SELECT 1 FROM message_files WHERE message = messages.id),"
    " EXISTS (SELECT 1 FROM search_entries WHERE message = messages.id) FROM messages WHERE message_id = ?"
)
"""One statement: each gives up the interpreter, which the event loop wants too."""

_END = """
SELECT 1 + max(
    (SELECT coalesce(max(place), 0) FROM messages WHERE session = :session AND on_path = 1 AND queued = :queued),
    (SELECT coalesce(max(place), 0) FROM messages WHERE session = :session AND on_path = 0 AND queued = :queued)
), CASE WHEN :queued THEN '' ELSE coalesce(
    (SELECT message_id FROM messages
     WHERE session = :session AND on_path = 1 AND queued = 0 AND message_id <> :message_id
     ORDER BY place DESC LIMIT 1), ''
) END
"""
"""The place behind all others, and the message before it."""

_INSERT = (
    "INSERT INTO messages (message_id, session, queued, place, taken_back, turn_id, previous, body, parts,"
    " provider_states, version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, random())"
)

_CHANGES = "turn_id = ?, body = ?, parts = ?, provider_states = ?, version = random() WHERE id = ?"

_UPDATE = f"UPDATE messages SET {_CHANGES}"

_MOVE = f"UPDATE messages SET queued = ?, place = ?, previous = ?, {_CHANGES}"
