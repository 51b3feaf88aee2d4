"""Reads open calls page by page."""

import sqlite3
from operator import itemgetter

from turnwire.domain.conversation.messages import Part
from turnwire.domain.pages import MAX_PAGE_BYTES, decode_token, encode_token
from turnwire.ports.pages import OpenCall, OpenCallPage, Page
from turnwire.storage.rows import parts_of
from turnwire.storage.sqlite.message_rows import MESSAGE_BYTES
from turnwire.storage.sqlite.reading.fitting import fitting
from turnwire.storage.sqlite.reading.pages import cut, limit_of
from turnwire.storage.sqlite.reading.rows import session_row

_CALLS = f"""
SELECT sessions.session_id, messages.message_id, messages.turn_id, messages.id, part_index,
    {MESSAGE_BYTES} / (SELECT count(*) FROM tool_calls WHERE message = messages.id), since_us, open_calls.tool_call_id
FROM open_calls INDEXED BY {{index}}
CROSS JOIN messages ON messages.id = open_calls.message
CROSS JOIN turns ON turns.turn_id = messages.turn_id AND turns.ended = 0
CROSS JOIN live_sessions AS sessions ON sessions.id = open_calls.session
WHERE {{where}} AND (since_us, open_calls.tool_call_id) > (?, ?)
ORDER BY since_us, open_calls.tool_call_id LIMIT ?
"""
"""The sixth is a share of what its message has.

A turn whose end could not be stored with its messages has left calls that nobody waits for: `turns.ended`.
"""


def open_calls(
    db: sqlite3.Connection,
    tenant: str,
    session_id: str,
    tools: frozenset[str],
    page: Page,
    *,
    max_bytes: int | None = None,
) -> OpenCallPage:
    """Returns open calls; see `TenantStore.open_calls`. Raises HeavyRead: they have more bytes."""
    names = sorted(tools)
    listed = f"open calls of {session_id or tenant} {names}"
    after = decode_token(page.token, listed, int, str) if page.token else (-(2**62), "")
    owner = session_row(db, tenant, session_id) if session_id else tenant
    where = "open_calls.session = ?" if session_id else "open_calls.tenant = ?"
    if names:
        where += f" AND tool IN ({','.join('?' * len(names))})"
    index = "open_calls_of_sessions" if session_id else "open_calls_of_tenants"
    rows = db.execute(_CALLS.format(index=index, where=where), (owner, *names, *after, limit_of(page)))
    found, left_out = fitting(rows, itemgetter(5), MAX_PAGE_BYTES, light_bytes=max_bytes)
    found, more = cut(found, page, left_out)
    parts = {row: _parts(db, row) for row in {one[3] for one in found}}
    calls = tuple(OpenCall(one[0], one[1], one[2], parts[one[3]][one[4]]) for one in found)
    return OpenCallPage(calls, encode_token(listed, *found[-1][-2:]) if more else "")


def _parts(db: sqlite3.Connection, row: int) -> tuple[Part, ...]:
    return parts_of(*db.execute("SELECT parts, provider_states FROM messages WHERE id = ?", (row,)).fetchone())
