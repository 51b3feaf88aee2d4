"""Dropping the oldest events of a session. Runs inside a transaction of the writing connection."""

import sqlite3

_KEPT_FROM = (
    "SELECT min(coalesce(nullif(first_sequence, 0), start_sequence))"
    " FROM turns INDEXED BY turns_unfinished WHERE ended = 0 AND session = ?"
)
"""INDEXED BY: the few turns that have not ended, instead of all of the session. 0 keeps everything: it is not known."""


def prune(db: sqlite3.Connection, session: int, session_id: str, through: int) -> tuple[int, int]:
    """Drops a session's events up to a sequence, but for those from the first one of a turn on that has not ended.

    Returns:
        The sequence up to which it could drop them, and how many bytes they had.
    """
    (kept_from,) = db.execute(_KEPT_FROM, (session,)).fetchone()
    if kept_from is not None:
        through = min(through, kept_from - 1)
    last = db.execute(
        "SELECT sequence, position FROM events WHERE session_id = ? AND sequence <= ? ORDER BY sequence DESC LIMIT 1",
        (session_id, through),
    ).fetchone()
    size = 0
    if last is not None:
        gone = "FROM events WHERE session_id = ? AND sequence <= ?"
        (size,) = db.execute(f"SELECT coalesce(sum(length(facts)), 0) {gone}", (session_id, through)).fetchone()
        db.execute(f"DELETE {gone}", (session_id, through))
        db.execute(
            "UPDATE sessions SET pruned_through = max(pruned_through, ?), pruned_position = max(pruned_position, ?),"
            " stored_bytes = stored_bytes - ? WHERE id = ?",
            (*last, size, session),
        )
    return through, size
