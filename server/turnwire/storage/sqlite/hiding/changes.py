"""Hides messages and shows them again. Everything here runs inside the writer's transaction."""

import sqlite3

from turnwire.domain.errors import MessageNotFound, NothingToRestore
from turnwire.ports.commit import HideMessages, Rewound, ShowMessages

NEVER_HIDDEN = 2**40
"""Added to `messages.hidden_at`, so that it takes six bytes whether a message is hidden or not.

SQLite writes only the changed pages of a row whose size stays, else all of them: the text of a message as well. A row
that an older version wrote has 0 or the sequence alone, and is written whole when it is hidden or shown the next time.
"""

HIDDEN_FOR_EVER = NEVER_HIDDEN + 1
"""`hidden_at` of messages that were stored as hidden ones. The first event of a session never hides anything."""

_SHOWN = "session = :session AND hidden = 0 AND queued = 0"
_BLOCK = "session = :session AND hidden = 1 AND hidden_at = :hidden_at"


def rewind(
    db: sqlite3.Connection, session: int, session_id: str, change: HideMessages | ShowMessages, sequence: int
) -> Rewound:
    """Carries a change out.

    Args:
        db: The writing connection.
        session: The row of the session.
        session_id: Its id.
        change: What to do.
        sequence: That of the event that tells it.

    Raises:
        MessageNotFound: the message is not part of the conversation.
        NothingToRestore: nothing is hidden, or a turn began since.
    """
    if isinstance(change, HideMessages):
        return _hide(db, session, change.from_message_id, sequence)
    return _show(db, session, session_id)


def _hide(db: sqlite3.Connection, session: int, from_message_id: str, sequence: int) -> Rewound:
    values: dict[str, object] = {"session": session, "hidden_at": NEVER_HIDDEN + sequence, "place": 0}
    kept = None
    if from_message_id:
        query = f"SELECT place, previous FROM messages WHERE message_id = :id AND {_SHOWN}"
        row = db.execute(query, {"id": from_message_id, "session": session}).fetchone()
        if row is None:
            raise MessageNotFound(from_message_id)
        values["place"], kept = row[0], row[1] or None
    hidden = db.execute(
        f"UPDATE messages SET hidden = 1, hidden_at = :hidden_at WHERE {_SHOWN} AND place >= :place", values
    ).rowcount
    return Rewound(hidden, kept)


def _show(db: sqlite3.Connection, session: int, session_id: str) -> Rewound:
    """Shows what was hidden last: such messages follow each other, and only newer ones can come behind them."""
    values: dict[str, object] = {"session": session, "never": NEVER_HIDDEN}
    hidden_at, newest_turn = db.execute(
        "SELECT (SELECT max(hidden_at) FROM messages WHERE session = :session AND hidden = 1),"
        " (SELECT coalesce(max(start_sequence), 0) FROM turns WHERE session = :session)",
        values,
    ).fetchone()
    if hidden_at == HIDDEN_FOR_EVER:
        hidden_at = None
    if hidden_at is None or newest_turn > hidden_at % NEVER_HIDDEN:
        words = "nothing is hidden" if hidden_at is None else "a turn began since messages were hidden"
        raise NothingToRestore(f"there is nothing to restore: {words}", session_id)
    values["hidden_at"] = hidden_at
    first, last, shown = db.execute(
        f"SELECT min(place), max(place), count(*) FROM messages WHERE {_BLOCK}", values
    ).fetchone()
    kept = _shown_id(db, session, "place < :at ORDER BY place DESC", first)
    db.execute(f"UPDATE messages SET hidden = 0, hidden_at = :never WHERE {_BLOCK}", values)
    after = _shown_id(db, session, "place > :at ORDER BY place", last)
    if after is not None:
        end = _shown_id(db, session, "place = :at", last)
        db.execute("UPDATE messages SET previous = ? WHERE message_id = ?", (end, after))
    return Rewound(shown, kept)


def _shown_id(db: sqlite3.Connection, session: int, where: str, at: int) -> str | None:
    """Returns the id of one message of the conversation by its place; None when there is none."""
    query = f"SELECT message_id FROM messages WHERE {_SHOWN} AND {where} LIMIT 1"
    row = db.execute(query, {"session": session, "at": at}).fetchone()
    return None if row is None else str(row[0])


def leave_place(db: sqlite3.Connection, session: int, message_id: str) -> None:
    """Lets the message behind a message of the conversation follow the one before it."""
    values = {"session": session, "id": message_id}
    db.execute(
        "UPDATE messages SET previous = (SELECT previous FROM messages WHERE message_id = :id)"
        f" WHERE {_SHOWN} AND previous = :id AND place > (SELECT place FROM messages WHERE message_id = :id)",
        values,
    )
