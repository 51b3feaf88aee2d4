"""Messages, their parts and the files that these refer to."""

import sqlite3
from collections.abc import Iterable
from typing import Any

import msgspec

from turnwire.domain.conversation.messages import Branch, File, Message, MessageStatus, Part, ToolUse
from turnwire.domain.conversation.texts import texts_of, without_texts
from turnwire.domain.errors import IdTaken, StorageError
from turnwire.ports.codec import Codec, ShownPart
from turnwire.ports.commit import PutFile, PutMessage
from turnwire.storage.sqlite.hiding.changes import leave_place
from turnwire.storage.sqlite.hiding.marks import HIDDEN_FOR_EVER, NEVER_HIDDEN, OFF_PATH
from turnwire.storage.sqlite.hiding.paths import carry_branches, keep_turn
from turnwire.storage.sqlite.open_calls.filing import IS_FILED, file_call
from turnwire.storage.sqlite.part_rows import grown_row, part_row
from turnwire.storage.sqlite.searching.index import add_message, take_out
from turnwire.storage.sqlite.writing.unit import Unit, text

WHOLE_TEXT_BYTES = 4096
"""A text that grows to no more than this is written whole at each save."""


def put_message(unit: Unit, change: PutMessage, codec: Codec) -> None:
    """Writes a message with the parts that the change names, indexes it, and notes the message before it.

    Raises:
        IdTaken: the id is that of a message of another session.
        StorageError: a file is not stored.
    """
    message, session = change.message, unit.session
    growth = {one.part_index: one.offset for one in change.growth}
    form = codec.display_form(message, growth)
    is_new = not _take_message_out(unit, message.message_id, message)
    if change.at_end:
        leave_place(unit.db, session.id, message.message_id)
    values = {
        "message_id": message.message_id,
        "session": session.id,
        "queued": message.status is MessageStatus.QUEUED,
        "turn_id": message.turn_id,
        "at_end": change.at_end,
        "never_hidden": NEVER_HIDDEN,
        "body": text(msgspec.structs.replace(message, parts=(), **_ASSIGNED)),
        "display": form.head,
        "display_bytes": form.size_bytes,
    }
    if unit.is_branched:
        keep_turn(unit.db, session.id, message.message_id, message.turn_id)
    row = unit.db.execute(_PUT_MESSAGE, values).fetchone()
    if row is None:
        raise IdTaken.of("message", message.message_id)
    for index in change.part_indexes:
        part, shown = message.parts[index], form.parts[index]
        if index in growth:
            _grow_part(unit, row[0], part, shown, growth[index])
        else:
            _put_part(unit, row[0], part, shown)
    if change.is_hidden:
        hide = "UPDATE messages SET hidden = 1, hidden_at = ? WHERE id = ?"
        unit.db.execute(hide, (HIDDEN_FOR_EVER, row[0]))
    if change.branch is not None:
        _put_off_path(unit, row[0], change.branch)
    elif unit.is_branched:
        carry_branches(unit.db, session.id, message.message_id)
    unit.index_changes += add_message(unit.db, session.tenant, session.id, row[0], message, is_new=is_new)
    unit.previous[message.message_id] = str(row[1])


def _take_message_out(unit: Unit, message_id: str, changed: Message | None = None) -> bool:
    """Takes a message out of the index, or what changes of it. Returns whether the session has the message."""
    query = "SELECT id FROM messages WHERE message_id = ? AND session = ?"
    rows = [row for (row,) in unit.db.execute(query, (message_id, unit.session.id))]
    unit.index_changes += take_out(unit.db, unit.session.tenant, unit.session.id, rows, changed)
    return bool(rows)


def _put_off_path(unit: Unit, row: int, branch: Branch) -> None:
    """Puts a new message off the path. The number of the first event says that a path has been changed at some time."""
    unit.db.execute(
        "UPDATE messages SET hidden = 1, hidden_at = ?, previous = ?, branch_turn = ? WHERE id = ?",
        (OFF_PATH, branch.previous_message_id, branch.turn_id, row),
    )
    unit.db.execute("UPDATE sessions SET branched_at = max(branched_at, 1) WHERE id = ?", (unit.session.id,))
    unit.is_branched = True


def remove_message(unit: Unit, message_id: str) -> None:
    """Removes a message of the session, and the files that no other message uses."""
    where = "messages.message_id = ? AND messages.session = ?"
    files = files_of(unit.db, where, message_id, unit.session.id)
    _take_message_out(unit, message_id)
    unit.db.execute(f"DELETE FROM messages WHERE {where}", (message_id, unit.session.id))
    unit.file_bytes -= remove_unused(unit.db, files)


def put_file(unit: Unit, change: PutFile) -> None:
    """Stores the bytes of a file, once for each tenant."""
    added = unit.db.execute(
        "INSERT INTO files (tenant, sha256, content) VALUES (?, ?, ?) ON CONFLICT (tenant, sha256) DO NOTHING",
        (unit.session.tenant, change.sha256, change.content),
    ).rowcount
    unit.file_bytes += added * len(change.content)


def _put_part(unit: Unit, message_row: int, part: Part, shown: ShownPart) -> None:
    stored = part_row(part, shown)
    if isinstance(part.content, ToolUse):
        _put_tool_call(unit, (message_row, part.index, *stored, None, part.part_id), part.part_id, part.content)
        return
    file = _file_row(unit, part.content.sha256) if isinstance(part.content, File) else None
    unit.db.execute(_PUT_PART, (message_row, part.index, *stored, file, None))


def _grow_part(unit: Unit, message_row: int, part: Part, shown: ShownPart, offset: int) -> None:
    """Writes what is new of a part, which is all of it when nothing comes before.

    A short text stays in one piece: that is one statement, and costs no more than rewriting its page.

    Raises:
        StorageError: the store has another length of what comes before.
    """
    new, place = (texts_of(part).text or "").encode(), (message_row, part.index)
    is_short = offset + len(new) <= WHOLE_TEXT_BYTES
    if offset == 0:
        _put_part(unit, message_row, part if is_short else without_texts(part), shown)
    if is_short:
        if offset and not unit.db.execute(_LENGTHEN, (*grown_row(part, shown), new, *place, offset)).rowcount:
            raise _misfit(part, offset)
        return
    row, stored, grown = unit.db.execute(_GROWN, place).fetchone() or (0, None, 0)
    if stored != offset:
        raise _misfit(part, offset)
    unit.db.execute(_GROW, (*grown_row(part, shown), len(new), row))
    if new:
        unit.db.execute("INSERT INTO part_growth (part, at, text) VALUES (?, ?, ?)", (row, grown, new))


def _misfit(part: Part, offset: int) -> StorageError:
    return StorageError(f"not {offset} bytes of part {part.part_id} are stored", {"id": part.part_id})


def _put_tool_call(unit: Unit, values: tuple[object, ...], part_id: str, call: ToolUse) -> None:
    """Writes a tool call and the files of its result.

    Only a call that has or had files, or that opens or closes for clients, needs more statements.
    """
    db = unit.db
    query = f"{_PUT_PART} RETURNING id, EXISTS (SELECT 1 FROM part_files WHERE part = parts.id), {IS_FILED}"
    row, had_files, is_filed = db.execute(query, values).fetchone()
    file_call(unit, row, part_id, call, is_filed=bool(is_filed))
    hashes = {file.sha256 for file in call.stored_files()}
    files = {_file_row(unit, sha256) for sha256 in hashes}
    before: set[int] = set()
    if had_files:
        before = {file for (file,) in db.execute("SELECT file FROM part_files WHERE part = ?", (row,))}
    if files == before:
        return
    db.execute("DELETE FROM part_files WHERE part = ?", (row,))
    db.executemany("INSERT INTO part_files (part, file) VALUES (?, ?)", [(row, file) for file in sorted(files)])
    unit.file_bytes -= remove_unused(db, before - files)


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
    """Returns the rows of the files that some messages use, in their parts and in the results of their tool calls."""
    used = "JOIN messages ON messages.id = parts.message WHERE"
    rows = db.execute(
        f"SELECT file FROM parts {used} file IS NOT NULL AND {where}"
        f" UNION SELECT part_files.file FROM part_files JOIN parts ON parts.id = part_files.part {used} {where}",
        (*parameters, *parameters),
    )
    return [file for (file,) in rows]


_ASSIGNED: dict[str, Any] = {"previous_message_id": "", "alternative_count": 0, "alternative_index": 0}
"""What is not stored in a message's body: columns say it."""

_REMOVE_UNUSED = (
    "DELETE FROM files WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM parts WHERE file = ?1)"
    " AND NOT EXISTS (SELECT 1 FROM part_files WHERE file = ?1)"
    " AND NOT EXISTS (SELECT 1 FROM imported_files WHERE file = ?1) RETURNING length(content)"
)

_PUT_PART = (
    "INSERT INTO parts (message, part_index, body, text, output, shown, shown_between, file, tool_call_id)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (message, part_index) DO UPDATE SET body = excluded.body,"
    " text = excluded.text, output = excluded.output, shown = excluded.shown,"
    " shown_between = excluded.shown_between, file = excluded.file"
)

_GROWN = "SELECT id, length(text) + grown, grown FROM parts WHERE message = ? AND part_index = ? AND output IS NULL"

_LENGTHEN = (
    "UPDATE parts SET body = ?, shown = ?, shown_between = ?, text = CAST(coalesce(text, x'') || ? AS BLOB)"
    " WHERE message = ? AND part_index = ? AND grown = 0 AND length(text) = ? AND output IS NULL"
)

_GROW = "UPDATE parts SET body = ?, shown = ?, shown_between = ?, grown = grown + ? WHERE id = ?"

_PUT_MESSAGE = """
INSERT INTO messages (message_id, session, queued, place, turn_id, body, display, display_bytes, previous,
                      hidden_at)
VALUES (:message_id, :session, :queued,
        1 + max(
            (SELECT coalesce(max(place), 0) FROM messages WHERE session = :session AND hidden = 0 AND queued = :queued),
            (SELECT coalesce(max(place), 0) FROM messages WHERE session = :session AND hidden = 1 AND queued = :queued)
        ),
        :turn_id, :body, :display, :display_bytes,
        CASE WHEN :queued THEN '' ELSE coalesce(
            (SELECT message_id FROM messages
             WHERE session = :session AND hidden = 0 AND queued = 0 AND message_id <> :message_id
             ORDER BY place DESC LIMIT 1), ''
        ) END, :never_hidden)
ON CONFLICT (message_id) DO UPDATE SET
    queued = excluded.queued,
    place = CASE WHEN queued = excluded.queued AND NOT :at_end THEN place ELSE excluded.place END,
    previous = CASE WHEN queued = excluded.queued AND NOT :at_end THEN previous ELSE excluded.previous END,
    turn_id = excluded.turn_id,
    body = excluded.body,
    display = excluded.display,
    display_bytes = excluded.display_bytes
WHERE messages.session = excluded.session
RETURNING id, previous
"""
