"""Which reads may take long: they have a connection of their own, beside the one for all others.

Whoever lists a long conversation or all sessions waits for others who do the same, and nobody else does.
"""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from turnwire.storage.sqlite.reading.rows import session_row

LONG_MESSAGES = 128
"""A conversation of more messages is long: reading it takes more than a few milliseconds, and hundreds may be read at
the same moment."""

LONG_BYTES = 2**19
"""So is one with more bytes, all that is stored of it together."""

T = TypeVar("T")


def unless_long(
    db: sqlite3.Connection, query: Callable[..., T], tenant: str, session_id: str, *args: object
) -> T | None:
    """Returns what a query finds in a session's conversation; None, without reading it, when it is long."""
    row = session_row(db, tenant, session_id)
    counted = "SELECT count(*) FROM (SELECT 1 FROM messages WHERE session = ? AND on_path = 1 LIMIT ?)"
    (messages,) = db.execute(counted, (row, LONG_MESSAGES + 1)).fetchone()
    (stored,) = db.execute("SELECT stored_bytes FROM sessions WHERE id = ?", (row,)).fetchone()
    return None if messages > LONG_MESSAGES or stored > LONG_BYTES else query(db, tenant, session_id, *args)
