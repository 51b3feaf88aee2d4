"""Waiting messages: the queue of a session as a list."""

import sqlite3

from turnwire.domain.conversation.turns import BusyPolicy, QueueEntry
from turnwire.domain.pages import decode_token, encode_token
from turnwire.ports.pages import Page, QueuePage
from turnwire.storage.sqlite.part_rows import DISPLAY_BYTES
from turnwire.storage.sqlite.reading.fitting import MAX_PAGE_BYTES, fitting
from turnwire.storage.sqlite.reading.pages import cut, limit_of
from turnwire.storage.sqlite.reading.rows import read_messages, session_row


def queue(db: sqlite3.Connection, tenant: str, session_id: str, page: Page) -> QueuePage:
    """Returns waiting messages; see `TenantStore.queue`."""
    listing = f"queue of {session_id}"
    db.execute("BEGIN")  # so that messages and revision are of the same moment
    try:
        row = session_row(db, tenant, session_id)
        [after] = decode_token(page.token, listing, int) if page.token else [0]
        (revision,) = db.execute("SELECT queue_revision FROM sessions WHERE id = ?", (row,)).fetchone()
        found = db.execute(
            f"SELECT id, place, {DISPLAY_BYTES}, message_id, turn_id,"
            " (SELECT json_extract(turns.body, '$.busy_policy') FROM turns WHERE turns.turn_id = messages.turn_id)"
            " FROM messages WHERE session = ? AND hidden = 0 AND queued = 1 AND place > ? ORDER BY place LIMIT ?",
            (row, after, limit_of(page)),
        )
        rows, left_out = fitting(found, lambda one: one[2], None if page.size is None else MAX_PAGE_BYTES)
        rows, more = cut(rows, page, left_out)
        messages = read_messages(db, f"messages.id IN ({','.join(str(one[0]) for one in rows)})", (), "place")
    finally:
        db.execute("COMMIT")
    entries = (QueueEntry(message, turn, BusyPolicy(policy or BusyPolicy.QUEUE)) for *_, message, turn, policy in rows)
    return QueuePage(tuple(entries), messages, revision, encode_token(listing, rows[-1][1]) if more else "")
