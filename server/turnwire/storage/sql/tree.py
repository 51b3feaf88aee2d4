"""The tree of a session's messages, and the path through it. Everything here runs inside the writer's transaction.

Each message names the one before it (`previous`), so the messages of a session are a tree. The path is one line of it
from the beginning to its tip: the messages with `on_path`, in the order of their places, which grow along every line of
the tree. Every change of the path moves the tip: the messages after the last one that stays leave, and a line joins. A
message that leaves by a choice is an alternative, and can be chosen again. One that is taken back cannot, until it is
restored: `taken_back` has the sequence of the event that reports it, and the rows of `undos` are the stack of these
events.
"""

import itertools
from collections.abc import Iterable

from turnwire.domain.errors import MessageNotFound, NothingToRestore
from turnwire.ports.commit import PathEnd, Rewound, SelectPath
from turnwire.storage.rows import NOT_TAKEN_BACK
from turnwire.storage.sql.alternatives import OFF_PATH, ON_PATH, TREE_ROW, TreeRow, branch_of
from turnwire.storage.sql.database import Database

_NEWEST_END = f"""
WITH RECURSIVE down (id, message_id, depth) AS (
    SELECT id, message_id, 0 FROM messages WHERE message_id = ?
    UNION ALL
    SELECT child.id, child.message_id, depth + 1 FROM down JOIN messages AS child ON child.id = (
        SELECT id FROM messages WHERE {OFF_PATH} AND previous = down.message_id ORDER BY place DESC LIMIT 1
    )
)
SELECT {TREE_ROW} FROM down JOIN messages ON messages.id = down.id WHERE depth > 0 ORDER BY depth
"""
"""Reads the messages that follow one off the path, the newest alternative each time. Takes message and session."""

_SUBTREE = f"""
WITH RECURSIVE under (id, message_id) AS (
    SELECT id, message_id FROM messages WHERE {OFF_PATH} AND previous = ?
    UNION ALL
    SELECT child.id, child.message_id FROM under JOIN messages AS child
    ON child.session = ? AND child.previous = under.message_id
    AND child.on_path = 0 AND child.taken_back = {NOT_TAKEN_BACK}
)
SELECT id FROM under
"""
"""All messages off the path after a message. Takes session, message and session."""


def put_behind(db: Database, source: int, target: int) -> None:
    """Appends the messages of a session to those of another one. A message off the path itself says what it follows."""
    [(place,)] = db.rows("SELECT coalesce(max(place), 0) FROM messages WHERE session = ? AND queued = 0", (target,))
    previous = _shown_id(db, target, "place > ? ORDER BY place DESC", 0) or ""
    db.run(
        "UPDATE messages SET session = ?, place = place + ?, previous = CASE"
        " WHEN previous = '' AND (on_path = 1 OR taken_back <> ?) THEN ? ELSE previous END WHERE session = ?",
        (target, place, NOT_TAKEN_BACK, previous, source),
    )


def take_back(db: Database, session: int, first_message_id: str, sequence: int) -> Rewound:
    """Takes a message and all later ones back; "" the complete conversation, and what could begin it instead.

    `sequence` is that of the event that reports it. Raises MessageNotFound: it is not part of the conversation.
    """
    first = _find(db, session, first_message_id) if first_message_id else None
    if first is None and first_message_id:
        raise MessageNotFound(first_message_id)
    taken_back = NOT_TAKEN_BACK + sequence
    begins_with = first_message_id or _shown_id(db, session, "place > ? ORDER BY place", 0) or ""
    behind = f"UPDATE messages SET on_path = 0, taken_back = ? WHERE {ON_PATH} AND place >= ?"
    left = db.run(behind, (taken_back, session, 0 if first is None else first.place))
    beginnings = 0
    if first is None:
        others = f"UPDATE messages SET taken_back = ? WHERE {OFF_PATH} AND previous = ''"
        beginnings = db.run(others, (taken_back, session))
    if left or beginnings:
        db.run("INSERT INTO undos (session, sequence, first) VALUES (?, ?, ?)", (session, sequence, begins_with))
    return Rewound(left, None if first is None else first.previous or None)


def restore(db: Database, session: int, session_id: str) -> Rewound:
    """Restores what the newest undo took back. What was added since follows it.

    Raises:
        NothingToRestore: nothing was taken back, or a turn began since, or the path changed.
    """
    [(branched_at,)] = db.rows("SELECT branched_at FROM sessions WHERE id = ?", (session,))
    [(started_at,)] = db.rows("SELECT coalesce(max(start_sequence), 0) FROM turns WHERE session = ?", (session,))
    undo = "SELECT sequence, first FROM undos WHERE session = ? ORDER BY sequence DESC LIMIT 1"
    sequence, first = db.row(undo, (session,)) or (None, "")
    if sequence is None or max(branched_at, started_at) > sequence:
        words = "nothing is hidden" if sequence is None else "a turn began since, or the path changed"
        raise NothingToRestore(f"there is nothing to restore: {words}", session_id)
    block = (session, NOT_TAKEN_BACK + sequence)
    in_block, was_on_path = "session = ? AND on_path = 0 AND taken_back = ?", "(previous <> '' OR message_id = ?)"
    [(count, begin, end)] = db.rows(
        f"SELECT count(*), min(place), max(place) FROM messages WHERE {in_block} AND {was_on_path}", (*block, first)
    )
    db.run(
        f"UPDATE messages SET on_path = CASE WHEN {was_on_path} THEN 1 ELSE 0 END, taken_back = ? WHERE {in_block}",
        (first, NOT_TAKEN_BACK, *block),
    )
    db.run("DELETE FROM undos WHERE session = ? AND sequence = ?", (session, sequence))
    if not count:  # the conversation was empty, except for what could have begun it
        return Rewound(0, _shown_id(db, session, "place > ? ORDER BY place DESC", 0))
    after = _shown_id(db, session, "place > ? ORDER BY place", end)
    if after is not None:
        tip = _shown_id(db, session, "place = ?", end)
        db.run("UPDATE messages SET previous = ? WHERE message_id = ?", (tip, after))
    return Rewound(count, _shown_id(db, session, "place < ? ORDER BY place DESC", begin))


def select_path(db: Database, session: int, change: SelectPath) -> tuple[Rewound, dict[str, str]]:
    """Carries a change out. Costs what leaves and what joins the path.

    Also returns the new turns of messages on the path, by their ids: of those that now have other answers after them.

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
        return Rewound(0, change.message_id), {}
    line = joining[::-1]
    if change.end is PathEnd.NEWEST:
        behind = db.rows(_NEWEST_END, (change.message_id, session))
        line += [TreeRow(*row) for row in behind]
    behind_kept = f"UPDATE messages SET on_path = 0 WHERE {ON_PATH} AND place > ?"
    left = db.run(behind_kept, (session, 0 if kept is None else kept.place))
    _join(db, line)
    before = [kept] if kept is not None else []
    turns = {
        one.message_id: behind.branch_turn
        for one, behind in itertools.pairwise([*before, *line])
        if behind.branch_turn not in (None, one.turn_id)
    }
    return Rewound(left + len(line), kept.message_id if kept is not None else None, len(line)), turns


def end_of_path(db: Database, session: int) -> tuple[int, str]:
    """Returns the highest place of a session, and the last message of its path; "" for none."""
    highest = "SELECT max(place) FROM messages WHERE session = ? AND on_path = {} AND queued = {}"
    found = ((on_path, queued) for on_path in (0, 1) for queued in (0, 1))
    places = ", ".join(f"coalesce(({highest.format(*one)}), 0)" for one in found)
    [(place,)] = db.rows(f"SELECT {db.dialect.greatest}({places})", (session,) * 4)
    return place, _shown_id(db, session, "place > ? ORDER BY place DESC", 0) or ""


def order_queue(db: Database, session: int, message_ids: Iterable[str]) -> None:
    """Orders the waiting messages; see `ports.commit.OrderQueue`."""
    waiting = "FROM messages WHERE session = ? AND on_path = 1 AND queued = 1 ORDER BY place"
    rows = db.rows(f"SELECT id, place, message_id {waiting}", (session,))
    order = {message_id: number for number, message_id in enumerate(message_ids)}
    wanted = sorted(rows, key=lambda row: order.get(row[2], -1))
    moved = [(old[1], row[0]) for old, row in zip(rows, wanted, strict=True) if row[0] != old[0]]
    # first out of the way: no two messages may share a place, not even for a moment
    db.run_many("UPDATE messages SET place = -place WHERE id = ?", [(row,) for _, row in moved])
    db.run_many("UPDATE messages SET place = ? WHERE id = ?", moved)


def leave_place(db: Database, session: int, message_id: str) -> None:
    """Makes the message after a message of the conversation follow the one before it."""
    db.run(
        "UPDATE messages SET previous = (SELECT previous FROM messages WHERE message_id = ?)"
        f" WHERE {ON_PATH} AND previous = ? AND place > (SELECT place FROM messages WHERE message_id = ?)",
        (message_id, session, message_id, message_id),
    )


def carry_branches(db: Database, session: int, message_id: str) -> None:
    """Moves what follows a message off the path with it to the end of the session, where it was put."""
    row = db.row(
        f"SELECT place, (SELECT min(place) FROM messages WHERE {OFF_PATH} AND previous = ?) FROM messages"
        " WHERE message_id = ? AND queued = 0",
        (session, message_id, message_id),
    )
    place, first = row or (0, None)
    if first is None or first > place:
        return
    move = f"UPDATE messages SET place = place + ? WHERE id IN ({_SUBTREE})"
    db.run(move, (place - first + 1, session, message_id, session))


def keep_turn(db: Database, session: int, message_id: str, turn_id: str) -> None:
    """Makes what follows a message off the path keep the turn that the message has, before it gets another one."""
    db.run(
        "UPDATE messages SET branch_turn = (SELECT turn_id FROM messages WHERE message_id = ?)"
        f" WHERE {OFF_PATH} AND previous = ? AND branch_turn IS NULL"
        " AND (SELECT turn_id FROM messages WHERE message_id = ?) <> ?",
        (message_id, session, message_id, message_id, turn_id),
    )


def _join(db: Database, line: list[TreeRow]) -> None:
    """Adds a line of messages to the path."""
    db.run_many("UPDATE messages SET on_path = 1, branch_turn = NULL WHERE id = ?", [(row.id,) for row in line])


def _find(db: Database, session: int, message_id: str) -> TreeRow | None:
    query = f"SELECT {TREE_ROW} FROM messages WHERE {ON_PATH} AND message_id = ?"
    row = db.row(query, (session, message_id))
    return None if row is None else TreeRow(*row)


def _shown_id(db: Database, session: int, where: str, at: int) -> str | None:
    """Returns the id of one message of the path by its place; None when there is none."""
    query = f"SELECT message_id FROM messages WHERE {ON_PATH} AND {where} LIMIT 1"
    row = db.row(query, (session, at))
    return None if row is None else str(row[0])
