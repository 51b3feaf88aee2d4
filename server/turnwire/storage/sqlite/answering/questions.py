"""Reads messages that are to be answered."""

import sqlite3

from turnwire.domain.conversation.messages import Message, MessageType
from turnwire.domain.errors import MessageNotFound
from turnwire.ports.conversations import StoredQuestion
from turnwire.storage.sqlite.message_rows import MESSAGE_BYTES
from turnwire.storage.sqlite.reading.fitting import check_light
from turnwire.storage.sqlite.reading.rows import read_messages, session_row

_ON_PATH = "messages.message_id = ? AND session = ? AND on_path = 1"

_NEXT_ONE = (
    "messages.id = (SELECT id FROM messages WHERE session = ? AND on_path = 1 AND queued = 0"
    f" AND place > (SELECT place FROM messages WHERE {_ON_PATH} AND queued = 0) ORDER BY place LIMIT 1)"
)


def question_bytes(db: sqlite3.Connection, tenant: str, session_id: str, message_id: str) -> int:
    """Returns what is read to answer a message; see `TenantStore.question_bytes`."""
    row = session_row(db, tenant, session_id)
    answered = "SELECT json_extract(body, '$.parent_id') FROM messages WHERE message_id = ? AND session = ?"
    wanted = f"(message_id IN (?, ({answered})) AND +session = ?) OR {_NEXT_ONE}"
    (size,) = db.execute(
        f"SELECT total({MESSAGE_BYTES}) FROM messages WHERE {wanted}",
        (message_id, message_id, row, row, row, message_id, row),
    ).fetchone()
    return int(size)


def question(
    db: sqlite3.Connection, tenant: str, session_id: str, message_id: str, *, max_bytes: int | None = None
) -> StoredQuestion:
    """Returns a message that may be answered; see `TenantStore.question`. Raises HeavyRead: it has more bytes."""
    check_light(question_bytes(db, tenant, session_id, message_id), max_bytes)
    db.execute("BEGIN")  # so that everything is of the same moment
    try:
        row = session_row(db, tenant, session_id)
        found = read_messages(db, _ON_PATH, (message_id, row), "place")
        if not found:
            raise MessageNotFound(message_id)
        behind = read_messages(db, _NEXT_ONE, (row, message_id, row), "place")
        (head,) = db.execute("SELECT head_sequence FROM sessions WHERE id = ?", (row,)).fetchone()
        return StoredQuestion(found[0], next(iter(behind), None), _has_turn(db, row, found[0]), head)
    finally:
        db.execute("COMMIT")


def _has_turn(db: sqlite3.Connection, session: int, message: Message) -> bool:
    """Returns whether the turn that a message has or joined has not ended, or has left an answer that is not hidden.

    Only turns of its session count: an archive may name another's.
    """
    joined = (
        "SELECT coalesce(json_extract(body, '$.merged_into_turn_id'), turn_id) FROM turns"
        " WHERE turn_id = ? AND session = ?"
    )
    (turn_id,) = db.execute(joined, (message.turn_id, session)).fetchone() or (message.turn_id,)
    turn = db.execute("SELECT ended FROM turns WHERE turn_id = ? AND session = ?", (turn_id, session)).fetchone()
    answer = (
        "SELECT 1 FROM messages WHERE turn_id = ? AND turn_id <> '' AND session = ? AND on_path = 1"
        " AND json_extract(body, '$.type') = ? AND place > (SELECT place FROM messages WHERE message_id = ?) LIMIT 1"
    )
    answered = db.execute(answer, (turn_id, session, MessageType.ASSISTANT, message.message_id)).fetchone() is not None
    return answered or (turn is not None and not turn[0])
