"""Rows of sessions and messages as values."""

import itertools
import sqlite3

import msgspec

from turnwire.domain.conversation.messages import Message, Part
from turnwire.domain.errors import SessionNotFound

_message = msgspec.json.Decoder(Message).decode
_part = msgspec.json.Decoder(Part).decode


ONE_SESSION = "FROM sessions INDEXED BY sessions_of_tenants WHERE tenant = ? AND session_id = ?"
"""The row of a session. In this index the session of another tenant is as absent as one that never was."""

EVENTS_OF_TENANT = "FROM events INDEXED BY events_of_tenants WHERE tenant = ?"
"""A tenant's events by position. SQLite must not choose the table instead, which has those of all tenants."""


def session_row(db: sqlite3.Connection, tenant: str, session_id: str) -> int:
    """Returns the row of a tenant's session. Raises SessionNotFound."""
    row = db.execute(f"SELECT id {ONE_SESSION}", (tenant, session_id)).fetchone()
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
