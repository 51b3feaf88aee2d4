"""Rows of sessions and messages as values."""

import sqlite3
from collections.abc import Iterator

import msgspec

from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.sessions import Session, begun
from turnwire.domain.errors import SessionNotFound
from turnwire.storage.rows import moment
from turnwire.storage.sqlite.message_rows import COLUMNS, message_of

_session = msgspec.json.Decoder(Session).decode

ONE_SESSION = "FROM sessions INDEXED BY sessions_of_tenants WHERE state = 'live' AND tenant = ? AND session_id = ?"
"""The row of a session. In this index the session of another tenant is as absent as one that never was."""

DELETING = "FROM sessions WHERE state <> 'live' AND state = 'deleting'"
"""Sessions that are being removed. The first condition is that of the index."""

EVENTS_OF_TENANT = "FROM events INDEXED BY events_of_tenants WHERE tenant = ?"
"""A tenant's events by position. SQLite must not choose the table instead, which has those of all tenants."""


_BESIDE_BODY = "head_sequence, queue_revision, updated_at_us, archived_at_us, first_words"

SESSION_COLUMNS = f"body, {_BESIDE_BODY}"
"""What `session_of` makes a session of."""

SESSION_HEADER = f"json_remove(body, '$.tools'), {_BESIDE_BODY}"
"""The same without tools, which may be large and which lists do not show."""


def session_of(  # noqa: PLR0917 - the columns
    body: str, head_sequence: int, queue_revision: int, updated_at_us: int, archived_at_us: int, first_words: str
) -> Session:
    """Returns a session from its row."""
    session = msgspec.structs.replace(
        _session(body),
        head_sequence=head_sequence,
        queue_revision=queue_revision,
        updated_at=moment(updated_at_us),
        archived_at=moment(archived_at_us) if archived_at_us else None,
    )
    return begun(session, first_words)


def session_row(db: sqlite3.Connection, tenant: str, session_id: str) -> int:
    """Returns the row of a tenant's session. Raises SessionNotFound."""
    row = db.execute(f"SELECT id {ONE_SESSION}", (tenant, session_id)).fetchone()
    if row is None:
        raise SessionNotFound(session_id)
    return int(row[0])


def removed_sessions(db: sqlite3.Connection) -> frozenset[str]:
    """Returns the ids of sessions that are being removed: nobody reads their events, but for the last."""
    return frozenset(session_id for (session_id,) in db.execute(f"SELECT session_id {DELETING}"))


def read_messages(
    db: sqlite3.Connection, where: str, parameters: tuple[object, ...], order: str, *, columns: str = COLUMNS
) -> tuple[Message, ...]:
    """Returns messages. `where` and `order` are SQL; so are the columns (`message_rows.py`)."""
    return tuple(each_message(db, where, parameters, order, columns=columns))


def each_message(
    db: sqlite3.Connection, where: str, parameters: tuple[object, ...], order: str, *, columns: str = COLUMNS
) -> Iterator[Message]:
    """As `read_messages`, one after the other."""
    for row in db.execute(f"SELECT {columns} FROM messages WHERE {where} ORDER BY {order}", parameters):
        yield message_of(db, row)
