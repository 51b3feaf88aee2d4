"""Rows of sessions and messages as values."""

import itertools
import sqlite3

import msgspec

from turnwire.domain.conversation.messages import Message, Part
from turnwire.domain.errors import SessionNotFound

_message = msgspec.json.Decoder(Message).decode
_part = msgspec.json.Decoder(Part).decode


def session_row(db: sqlite3.Connection, session_id: str) -> int:
    """Returns the row of a session. Raises SessionNotFound."""
    row = db.execute("SELECT id FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
    if row is None:
        raise SessionNotFound(session_id)
    return int(row[0])


def read_messages(
    db: sqlite3.Connection, where: str, parameters: tuple[object, ...], order: str
) -> tuple[Message, ...]:
    """Returns messages with their parts, in one query. `where` and `order` are SQL."""
    rows = db.execute(
        "SELECT messages.id, messages.body, previous, parts.body"
        " FROM messages LEFT JOIN parts ON parts.message = messages.id"
        f" WHERE {where} ORDER BY {order}, part_index",
        parameters,
    )
    found = []
    for (_, header, previous), group in itertools.groupby(rows, key=lambda row: row[:3]):
        parts = tuple(_part(body) for *_, body in group if body is not None)
        found.append(msgspec.structs.replace(_message(header), parts=parts, previous_message_id=previous))
    return tuple(found)
