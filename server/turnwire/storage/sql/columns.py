"""Sessions, messages and turns as statements read them: the columns, and the values of these."""

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

import msgspec

from turnwire.domain.conversation.messages import Message, MessageStatus, with_drafts
from turnwire.domain.conversation.sessions import Session, begun
from turnwire.domain.errors import SessionNotFound
from turnwire.storage.rows import draft_of, message_from, moment, name_message, parts_of
from turnwire.storage.sql.database import Database, Dialect

HEADER = (
    "messages.id, messages.message_id, (SELECT session_id FROM sessions WHERE id = messages.session),"
    " messages.turn_id, messages.previous, messages.times,"
    " messages.sent_context, messages.body, NULL, NULL"
)
"""The columns that `message_of` takes, for a message without its parts."""

WITH_PARTS = HEADER.replace("NULL, NULL", "messages.parts, NULL")
"""With its parts, but without what is for the provider alone, of which an answer may have 32 MiB."""

COLUMNS = HEADER.replace("NULL, NULL", "messages.parts, messages.provider_states")
"""All columns of a message."""

MESSAGE_BYTES = "(length(messages.parts) + coalesce(length(messages.provider_states), 0))"
"""The stored size of a message's parts, as SQL. No engine reads a BLOB to find its length."""

PARTS_BYTES = "length(messages.parts)"
"""The same without what is for the provider alone."""

TURN = (
    "turns.turn_id, (SELECT session_id FROM sessions WHERE id = turns.session), turns.body, turns.settings,"
    " turns.start_sequence, turns.end_sequence"
)
"""The columns that `turn_of` takes."""

TURN_HEADER = TURN.replace("turns.settings", "NULL")
"""See `Turn.header`: the settings may take a megabyte per turn, and are not read."""

Columns = tuple[int, str, str, str, str, bytes, bytes | None, str, bytes | None, bytes | None]
"""The values of `COLUMNS`."""

_BESIDE_BODY = "head_sequence, queue_revision, updated_at_us, archived_at_us, first_words"

SESSION_COLUMNS = f"body, {_BESIDE_BODY}"
"""The columns from which `session_of` makes a session."""

_session = msgspec.json.Decoder(Session).decode


def stored_bytes(dialect: Dialect) -> str:
    """Returns SQL for the bytes of a message that count in `sessions.stored_bytes`."""
    return f"({dialect.byte_length('messages.body')} + coalesce(length(messages.sent_context), 0) + {MESSAGE_BYTES})"


def total(expression: str) -> str:
    """Returns SQL for the sum of whole numbers, as a whole number: 0 without rows."""
    return f"CAST(coalesce(sum({expression}), 0) AS BIGINT)"


def one_session(dialect: Dialect) -> str:
    """Returns SQL for the row of a tenant's session.

    In this index the session of another tenant is as absent as one that never existed.
    """
    return f"FROM sessions {dialect.hint('sessions_of_tenants')} WHERE state = 'live' AND tenant = ? AND session_id = ?"


def session_header(dialect: Dialect) -> str:
    """Returns SQL for `SESSION_COLUMNS` without tools, which may be large and which lists do not show."""
    return f"{dialect.without('body', 'tools')}, {_BESIDE_BODY}"


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


def session_row(db: Database, tenant: str, session_id: str) -> int:
    """Returns the row of a tenant's session. Raises SessionNotFound."""
    row = db.row(f"SELECT id {one_session(db.dialect)}", (tenant, session_id))
    if row is None:
        raise SessionNotFound(session_id)
    return int(row[0])


def number(db: Database, statement: str, parameters: Sequence[Any] = ()) -> int:
    """Returns the number in the first row that a statement finds; 0 when it finds none, or NULL."""
    row = db.row(statement, parameters)
    return 0 if row is None else row[0] or 0


def message_of(db: Database, columns: Columns) -> Message:
    """Returns a stored message, with its drafts if it streams.

    Raises:
        ValueError: it is damaged (`msgspec.DecodeError`).
    """
    row, message_id, session_id, turn_id, previous, times, sent, body, parts, states = columns
    found = () if parts is None else parts_of(parts, states)
    message = message_from(body, times, sent, found)
    if parts is not None and message.status is MessageStatus.STREAMING:
        drafts = db.rows("SELECT body FROM drafts WHERE message = ? ORDER BY n", (row,))
        message = with_drafts(message, [draft_of(draft) for (draft,) in drafts])
    name_message(message, message_id, session_id, turn_id, previous)
    return message


def read_messages(
    db: Database, where: str, parameters: Sequence[Any], order: str, *, columns: str = COLUMNS
) -> tuple[Message, ...]:
    """Returns messages. `where` and `order` are SQL; so are the columns, which are some of the above."""
    rows = db.rows(f"SELECT {columns} FROM messages WHERE {where} ORDER BY {order}", parameters)
    return tuple(message_of(db, row) for row in rows)


def each_message(
    db: Database, where: str, parameters: Sequence[Any], order: str, *, columns: str = COLUMNS
) -> Generator[Message]:
    """Yields messages like `read_messages`, one at a time. Use it inside a snapshot, and close it."""
    query = f"SELECT {columns} FROM messages WHERE {where} ORDER BY {order}"
    with closing(db.each(query, parameters)) as rows:
        for row in rows:
            yield message_of(db, row)
