"""Hides messages and shows them again. Everything here runs inside the writer's transaction."""

import sqlite3

from turnwire.domain.errors import MessageNotFound, NothingToRestore
from turnwire.ports.commit import HideMessages, Rewound, ShowMessages
from turnwire.storage.sqlite.hiding.marks import NEVER_HIDDEN, OFF_PATH, OFF_THE_PATH, SHOWN
from turnwire.storage.sqlite.hiding.paths import take_back_beginnings

_BLOCK = f"session = :session AND hidden = 1 AND hidden_at IN (:hidden_at, {NEVER_HIDDEN} + :hidden_at)"
"""What one event hid. An older version stored the sequence alone."""


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
        query = f"SELECT place, previous FROM messages WHERE message_id = :id AND {SHOWN}"
        row = db.execute(query, {"id": from_message_id, "session": session}).fetchone()
        if row is None:
            raise MessageNotFound(from_message_id)
        values["place"], kept = row[0], row[1] or None
    hidden = db.execute(
        f"UPDATE messages SET hidden = 1, hidden_at = :hidden_at WHERE {SHOWN} AND place >= :place", values
    ).rowcount
    if not from_message_id:
        take_back_beginnings(db, session, OFF_PATH, OFF_THE_PATH + sequence)
    return Rewound(hidden, kept)


def _show(db: sqlite3.Connection, session: int, session_id: str) -> Rewound:
    """Shows what was hidden last: such messages follow each other, and only newer ones can come behind them."""
    values: dict[str, object] = {"session": session, "never": NEVER_HIDDEN}
    hidden_at, newest = db.execute(
        "SELECT (SELECT max(hidden_at % :never) FROM messages WHERE session = :session AND hidden = 1), max("
        "(SELECT coalesce(max(start_sequence), 0) FROM turns WHERE session = :session),"
        " (SELECT branched_at FROM sessions WHERE id = :session))",
        values,
    ).fetchone()
    if hidden_at == 1:  # hidden for ever, or off the path
        hidden_at = None
    if hidden_at is None or newest > hidden_at:
        words = "nothing is hidden" if hidden_at is None else "a turn began since, or the path changed"
        raise NothingToRestore(f"there is nothing to restore: {words}", session_id)
    values["hidden_at"] = hidden_at
    take_back_beginnings(db, session, OFF_THE_PATH + hidden_at, OFF_PATH)
    first, last, shown = db.execute(
        f"SELECT min(place), max(place), count(*) FROM messages WHERE {_BLOCK}", values
    ).fetchone()
    if first is None:  # a conversation was cleared that was empty, but for what could have begun it
        return Rewound(0, _shown_id(db, session, "place > :at ORDER BY place DESC", 0))
    kept = _shown_id(db, session, "place < :at ORDER BY place DESC", first)
    db.execute(f"UPDATE messages SET hidden = 0, hidden_at = :never WHERE {_BLOCK}", values)
    after = _shown_id(db, session, "place > :at ORDER BY place", last)
    if after is not None:
        end = _shown_id(db, session, "place = :at", last)
        db.execute("UPDATE messages SET previous = ? WHERE message_id = ?", (end, after))
    return Rewound(shown, kept)


def _shown_id(db: sqlite3.Connection, session: int, where: str, at: int) -> str | None:
    """Returns the id of one message of the conversation by its place; None when there is none."""
    query = f"SELECT message_id FROM messages WHERE {SHOWN} AND {where} LIMIT 1"
    row = db.execute(query, {"session": session, "at": at}).fetchone()
    return None if row is None else str(row[0])


def leave_place(db: sqlite3.Connection, session: int, message_id: str) -> None:
    """Lets the message behind a message of the conversation follow the one before it."""
    values = {"session": session, "id": message_id}
    db.execute(
        "UPDATE messages SET previous = (SELECT previous FROM messages WHERE message_id = :id)"
        f" WHERE {SHOWN} AND previous = :id AND place > (SELECT place FROM messages WHERE message_id = :id)",
        values,
    )
