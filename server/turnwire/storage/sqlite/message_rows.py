"""Messages as SQLite reads them: the columns, and a message of them."""

import sqlite3
from collections.abc import Iterable

from turnwire.domain.conversation.messages import Message, MessageStatus, with_drafts
from turnwire.storage.rows import draft_of, message_from, name_message, parts_of

HEADER = (
    "messages.id, messages.message_id, (SELECT session_id FROM sessions WHERE id = messages.session),"
    " messages.turn_id, messages.previous, messages.times,"
    " messages.sent_context, messages.body, NULL, NULL"
)
"""What `message_of` takes, for a message without its parts."""

WITH_PARTS = HEADER.replace("NULL, NULL", "messages.parts, NULL")
"""With its parts, but for what is for the provider alone, of which an answer may have 32 MiB."""

COLUMNS = HEADER.replace("NULL, NULL", "messages.parts, messages.provider_states")
"""With all of it."""

MESSAGE_BYTES = "(length(messages.parts) + coalesce(length(messages.provider_states), 0))"
"""What is stored of the parts of a message, as SQL. SQLite need not read a BLOB for its length."""

PARTS_BYTES = "length(messages.parts)"
"""The same without what is for the provider alone."""

STORED_BYTES = f"(length(CAST(messages.body AS BLOB)) + coalesce(length(messages.sent_context), 0) + {MESSAGE_BYTES})"
"""What a message counts in `sessions.stored_bytes`, as SQL."""

Columns = tuple[int, str, str, str, str, bytes, bytes | None, str, bytes | None, bytes | None]
"""The values of `COLUMNS`."""


def message_of(db: sqlite3.Connection, columns: Columns) -> Message:
    """Returns a stored message, with its drafts if it streams.

    Raises:
        ValueError: it is damaged (`msgspec.DecodeError`).
    """
    row, message_id, session_id, turn_id, previous, times, sent, body, parts, states = columns
    found = () if parts is None else parts_of(parts, states)
    message = message_from(body, times, sent, found)
    if parts is not None and message.status is MessageStatus.STREAMING:
        rows: Iterable[tuple[bytes]] = db.execute("SELECT body FROM drafts WHERE message = ? ORDER BY n", (row,))
        message = with_drafts(message, [draft_of(draft) for (draft,) in rows])
    name_message(message, message_id, session_id, turn_id, previous)
    return message
