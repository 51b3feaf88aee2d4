"""Messages as rows: one row each, with JSON of the message, of its parts, and of what only providers understand."""

import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from turnwire.domain.conversation.messages import Draft, Message, MessageStatus, Part, with_drafts

HEADER = (
    "messages.id, messages.message_id, (SELECT session_id FROM sessions WHERE id = messages.session),"
    " messages.turn_id, messages.previous, messages.body, NULL, NULL"
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

STORED_BYTES = f"(length(CAST(messages.body AS BLOB)) + {MESSAGE_BYTES})"
"""What a message counts in `sessions.stored_bytes`, as SQL."""

encode = msgspec.json.Encoder().encode
_message = msgspec.json.Decoder(Message).decode
_parts = msgspec.json.Decoder(tuple[Part, ...]).decode
_states = msgspec.json.Decoder(list[tuple[int, str]]).decode
_draft = msgspec.json.Decoder(Draft).decode


class MessageRow(NamedTuple):
    """The columns that say what a message is."""

    body: str
    parts: bytes
    provider_states: bytes | None

    @property
    def size_bytes(self) -> int:
        """What it counts in `sessions.stored_bytes`."""
        return len(self.body.encode()) + len(self.parts) + len(self.provider_states or b"")


def message_row(message: Message) -> MessageRow:
    """Returns how a message is stored."""
    header = msgspec.structs.replace(message, **_BESIDE_BODY)
    states = [(n, part.provider_state) for n, part in enumerate(message.parts) if part.provider_state is not None]
    parts = message.parts
    if states:
        parts = tuple(msgspec.structs.replace(part, provider_state=None) for part in parts)
    return MessageRow(encode(header).decode(), encode(parts), encode(states) if states else None)


_BESIDE_BODY: dict[str, Any] = {
    "parts": (),
    # columns say these
    "message_id": "",
    "session_id": "",
    "turn_id": "",
    "previous_message_id": "",
    # others say these
    "alternative_count": 0,
    "alternative_index": 0,
}
"""What the body of a message leaves out."""

Columns = tuple[int, str, str, str, str, str, bytes | None, bytes | None]
"""The values of `COLUMNS`."""


def message_of(db: sqlite3.Connection, columns: Columns) -> Message:
    """Returns a stored message, with its drafts if it streams.

    Raises:
        ValueError: it is damaged (`msgspec.DecodeError`).
    """
    row, message_id, session_id, turn_id, previous, body, parts, states = columns
    message = _message(body)
    # nothing else refers to the message yet, so this is quicker than a copy
    fill = msgspec.structs.force_setattr
    if parts is not None:
        fill(message, "parts", parts_of(parts, states))
        if message.status is MessageStatus.STREAMING:
            message = _with_drafts(db, row, message)
    fill(message, "message_id", message_id)
    fill(message, "session_id", session_id)
    fill(message, "turn_id", turn_id)
    fill(message, "previous_message_id", previous)
    return message


def parts_of(parts: bytes, states: bytes | None = None) -> tuple[Part, ...]:
    """Returns stored parts. Raises ValueError (`msgspec.DecodeError`) for damaged ones."""
    found = _parts(parts)
    for index, state in _states(states) if states is not None else ():
        if index >= len(found):
            raise msgspec.DecodeError("a state has no part")
        msgspec.structs.force_setattr(found[index], "provider_state", state)
    return found


def put_draft(db: sqlite3.Connection, message_id: str, session: int, draft: Draft) -> bool:
    """Adds a draft behind those that a message of a session has. Returns False when there is no such message."""
    add = (
        "INSERT INTO drafts (message, n, body)"
        " SELECT id, (SELECT coalesce(max(n), 0) + 1 FROM drafts WHERE message = messages.id), ?"
        " FROM messages WHERE message_id = ? AND session = ?"
    )
    return db.execute(add, (encode(draft), message_id, session)).rowcount == 1


def _with_drafts(db: sqlite3.Connection, row: int, message: Message) -> Message:
    rows: Iterable[tuple[bytes]] = db.execute("SELECT body FROM drafts WHERE message = ? ORDER BY n", (row,))
    return with_drafts(message, [_draft(body) for (body,) in rows])
