"""Reads the messages of tool calls."""

import sqlite3
from collections.abc import Collection
from operator import itemgetter

import msgspec

from turnwire.domain.conversation.messages import Message
from turnwire.domain.errors import ToolCallNotFound
from turnwire.storage.rows import NOT_TAKEN_BACK
from turnwire.storage.sqlite.message_rows import MESSAGE_BYTES
from turnwire.storage.sqlite.reading.fitting import check_light, fitting
from turnwire.storage.sqlite.reading.rows import read_messages, session_row

MAX_CALLERS = 100
"""Messages that call something of one name: some APIs name the calls of each answer alike."""

MAX_CALLERS_BYTES = 64 * 2**20
"""Of all these messages, unless one alone has more: an answer may have 32 MiB for its provider alone."""


_CALLING = (
    "SELECT calls.message FROM tool_calls AS calls CROSS JOIN messages AS made ON made.id = calls.message"
    " WHERE calls.tool_call_id {} AND made.session = ?"
)
"""The rows of messages of a session that make certain calls. CROSS JOIN keeps SQLite from going through all messages of
the session; calls of other sessions are left out before anything is counted."""


def message_of_call(
    db: sqlite3.Connection, tenant: str, session_id: str, part_id: str, *, max_bytes: int | None = None
) -> Message:
    """Returns the message of a tool call; see `TenantStore.message_of_call`. Raises HeavyRead: it has more bytes."""
    row = session_row(db, tenant, session_id)
    measured = f"SELECT total({MESSAGE_BYTES}) FROM messages WHERE id IN ({_CALLING.format('= ?')})"
    (size,) = db.execute(measured, (part_id, row)).fetchone()
    check_light(size, max_bytes)
    calling = f"messages.id IN ({_CALLING.format('= ?')}) AND taken_back = {NOT_TAKEN_BACK}"
    found = read_messages(db, calling, (part_id, row), "place")
    if not found:
        raise ToolCallNotFound(part_id)
    return found[0]


def callers(db: sqlite3.Connection, tenant: str, session_id: str, message_ids: Collection[str]) -> tuple[Message, ...]:
    """Returns messages that call; see `TenantStore.callers`."""
    where = f"message_id IN ({','.join('?' * len(message_ids))}) AND +session = ? AND on_path = 1 AND queued = 0"
    return read_messages(db, where, (*message_ids, session_row(db, tenant, session_id)), "place")


def caller_sizes(
    db: sqlite3.Connection, tenant: str, session_id: str, part_ids: frozenset[str], call_ids: frozenset[str]
) -> dict[str, int]:
    """Returns the messages that call, and their bytes; see `TenantStore.caller_sizes`.

    Reads the others no further than their calls.
    """
    row = session_row(db, tenant, session_id)
    shown = "session = ? AND on_path = 1 AND queued = 0"
    named = msgspec.json.encode(part_ids).decode(), msgspec.json.encode(call_ids).decode()
    by_part = f"{_CALLING.format('IN (SELECT value FROM json_each(?))')} LIMIT {MAX_CALLERS}"
    by_call = (
        f"SELECT id FROM messages WHERE {shown} AND EXISTS (SELECT 1 FROM tool_calls"
        " WHERE message = messages.id AND call_id IN (SELECT value FROM json_each(?)))"
        f" ORDER BY place DESC LIMIT {MAX_CALLERS}"
    )
    found = [id for (id,) in db.execute(by_part, (named[0], row))] if part_ids else []
    if call_ids:
        found += [id for (id,) in db.execute(by_call, (row, named[1]))]
    where = f"messages.id IN ({','.join(map(str, found))}) AND +session = ? AND on_path = 1 AND queued = 0"
    sized = f"SELECT message_id, {MESSAGE_BYTES} FROM messages WHERE {where} ORDER BY place DESC LIMIT {MAX_CALLERS}"
    return dict(fitting(db.execute(sized, (row,)), itemgetter(1), MAX_CALLERS_BYTES)[0])
