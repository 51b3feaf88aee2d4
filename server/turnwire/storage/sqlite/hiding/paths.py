"""The path of a conversation, and what leaves and joins it. Everything here runs inside the writer's transaction.

Each message names the one before it (`previous`), so the messages of a session are a tree. Its path is one line of the
tree: the messages that are not hidden, in the order of their places. A message off the path is hidden with a mark of
its own, so all that passes hidden messages by passes it by. Places grow along every line of the tree.
"""

import itertools
import sqlite3
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from turnwire.domain.errors import MessageNotFound
from turnwire.ports.commit import PathEnd, Rewound, SelectPath
from turnwire.storage.sqlite.hiding.marks import NEVER_HIDDEN, OFF, OFF_PATH, OFF_THE_PATH, SHOWN


class NewPath(NamedTuple):
    """What a change of the path did."""

    rewound: Rewound
    turns: Mapping[str, str] = MappingProxyType({})
    """The turns that messages on the path have from now on, by their ids: those that have other answers behind them."""


class TreeRow(NamedTuple):
    """A message in the tree."""

    id: int
    message_id: str
    place: int
    previous: str
    is_hidden: int
    hidden_at: int
    queued: int
    turn_id: str
    branch_turn: str | None

    @property
    def is_shown(self) -> bool:
        """Whether it is on the path."""
        return not self.is_hidden and not self.queued


_COLUMNS = ", ".join(
    f"messages.{name}"
    for name in ("id", "message_id", "place", "previous", "hidden", "hidden_at", "queued", "turn_id", "branch_turn")
)

_UP = f"""
WITH RECURSIVE up (id, message_id, place, previous, hidden, hidden_at, queued, turn_id, branch_turn) AS (
    SELECT {_COLUMNS} FROM messages WHERE message_id = :id AND session = :session
    UNION ALL
    SELECT {_COLUMNS} FROM up JOIN messages ON messages.message_id = up.previous
    WHERE up.hidden_at = {OFF_PATH} AND up.previous <> '' AND messages.session = :session
)
SELECT * FROM up
"""
"""A message and those before it, up to the first one that is not off the path."""

_NEWEST_END = f"""
WITH RECURSIVE down (id, message_id, depth) AS (
    SELECT id, message_id, 0 FROM messages WHERE message_id = :id
    UNION ALL
    SELECT child.id, child.message_id, depth + 1 FROM down JOIN messages AS child ON child.id = (
        SELECT id FROM messages WHERE {OFF} AND previous = down.message_id ORDER BY place DESC LIMIT 1
    )
)
SELECT {_COLUMNS} FROM down JOIN messages ON messages.id = down.id WHERE depth > 0 ORDER BY depth
"""
"""What follows a message off the path, the newest of alternatives each time."""

_SUBTREE = f"""
WITH RECURSIVE under (id, message_id) AS (
    SELECT id, message_id FROM messages WHERE {OFF} AND previous = :id
    UNION ALL
    SELECT child.id, child.message_id FROM under JOIN messages AS child
    ON child.session = :session AND child.previous = under.message_id
    AND child.hidden_at = {OFF_PATH} AND child.hidden_at >= {OFF_THE_PATH}
)
SELECT id FROM under
"""
"""All messages off the path behind a message."""


def select_path(db: sqlite3.Connection, session: int, change: SelectPath) -> NewPath:
    """Carries a change out. Costs what leaves and what joins the path.

    Raises:
        MessageNotFound: see `SelectPath`.
    """
    joining, kept = branch_of(db, session, change.message_id)
    if change.end is PathEnd.BEFORE:
        if joining:
            joining = joining[1:]
        elif kept is not None:
            kept = _find(db, session, kept.previous)
    elif change.end is PathEnd.NEWEST and not joining:
        return NewPath(Rewound(0, change.message_id))
    line = joining[::-1]
    if change.end is PathEnd.NEWEST:
        behind = db.execute(_NEWEST_END, {"session": session, "id": change.message_id})
        line += [TreeRow(*row) for row in behind]
    left = _leave(db, session, kept)
    db.executemany(
        f"UPDATE messages SET hidden = 0, hidden_at = {NEVER_HIDDEN}, branch_turn = NULL WHERE id = ?",
        [(row.id,) for row in line],
    )
    before = [kept] if kept is not None else []
    turns = {
        one.message_id: behind.branch_turn
        for one, behind in itertools.pairwise([*before, *line])
        if behind.branch_turn not in (None, one.turn_id)
    }
    return NewPath(Rewound(left + len(line), kept.message_id if kept is not None else None, len(line)), turns)


def carry_branches(db: sqlite3.Connection, session: int, message_id: str) -> None:
    """Lets what follows a message off the path go with it to the end of the session, where it was put."""
    values: dict[str, object] = {"session": session, "id": message_id}
    row = db.execute(
        f"SELECT place, (SELECT min(place) FROM messages WHERE {OFF} AND previous = :id) FROM messages"
        " WHERE message_id = :id AND queued = 0",
        values,
    ).fetchone()
    place, first = row or (0, None)
    if first is None or first > place:
        return
    values["shift"] = place - first + 1
    db.execute(f"UPDATE messages SET place = place + :shift WHERE id IN ({_SUBTREE})", values)


def keep_turn(db: sqlite3.Connection, session: int, message_id: str, turn_id: str) -> None:
    """Lets what follows a message off the path remember the turn that the message has, before it gets another one."""
    db.execute(
        f"UPDATE messages SET branch_turn = (SELECT turn_id FROM messages WHERE message_id = :id)"
        f" WHERE {OFF} AND previous = :id AND branch_turn IS NULL"
        " AND (SELECT turn_id FROM messages WHERE message_id = :id) <> :turn_id",
        {"session": session, "id": message_id, "turn_id": turn_id},
    )


def take_back_beginnings(db: sqlite3.Connection, session: int, before: int, after: int) -> None:
    """Gives another mark to messages off the path that could begin the conversation."""
    db.execute(
        "UPDATE messages SET hidden_at = ? WHERE session = ? AND previous = '' AND hidden_at = ?"
        f" AND hidden_at >= {OFF_THE_PATH}",
        (after, session, before),
    )


def branch_of(db: sqlite3.Connection, session: int, message_id: str) -> tuple[list[TreeRow], TreeRow | None]:
    """Returns a message and those before it that are off the path, last first, and the one on it before them.

    Raises:
        MessageNotFound: there is no such message, it waits, or it or one before it was taken back.
    """
    rows = [TreeRow(*row) for row in db.execute(_UP, {"session": session, "id": message_id})]
    if not rows:
        raise MessageNotFound(message_id)
    last = rows[-1]
    if last.is_shown:
        return rows[:-1], last
    if last.hidden_at == OFF_PATH and not last.previous:
        return rows, None
    raise MessageNotFound(message_id)


def _find(db: sqlite3.Connection, session: int, message_id: str) -> TreeRow | None:
    query = f"SELECT {_COLUMNS} FROM messages WHERE {SHOWN} AND message_id = :id"
    row = db.execute(query, {"session": session, "id": message_id}).fetchone()
    return None if row is None else TreeRow(*row)


def _leave(db: sqlite3.Connection, session: int, kept: TreeRow | None) -> int:
    """Takes all behind a message off the path. Returns how many."""
    leave = f"UPDATE messages SET hidden = 1, hidden_at = :off WHERE {SHOWN} AND place > :place"
    values = {"session": session, "place": 0 if kept is None else kept.place, "off": OFF_PATH}
    return db.execute(leave, values).rowcount
