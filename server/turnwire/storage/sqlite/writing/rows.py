"""What a transaction has yet to write, by table: one statement each, when its commits are applied.

Here are the rows that nothing reads while a commit is applied, but for commits of the same session. What is found by a
key of a row just written, such as the calls of a message, is written at once.
"""

import itertools
import sqlite3
from dataclasses import dataclass, field

from turnwire.storage.sqlite.accounts import ADD_USAGE
from turnwire.storage.sqlite.searching.index import IndexChange, change_index

EventRow = tuple[int, str, int, int, str, str, str, bytes, str]
"""The columns of an event, in the order of `_EVENT`."""

_EVENT = "position, session_id, sequence, at_us, turn_id, kind, message_id, facts, tenant"

_EVENTS = {
    size: f"INSERT INTO events ({_EVENT}) VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?, ?)'] * size)}"
    for size in (64, 16, 4, 1)
}
"""By how many rows they insert: a few sizes, so that SQLite need not parse them again. For each row of its own the
thread would wait for the interpreter."""

_SESSION = "UPDATE sessions SET head_sequence = ?, updated_at_us = ?, stored_bytes = ? WHERE id = ?"

_NEW_TURN = (
    "INSERT INTO turns (ended, body, start_sequence, end_sequence, turn_id, session, first_sequence)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)

_TURN = "UPDATE turns SET ended = ?, body = ?, start_sequence = ?, end_sequence = ? WHERE turn_id = ?"


@dataclass
class Rows:
    """The rows of one transaction. Used on the writer's thread."""

    sessions: dict[str, tuple[object, ...]] = field(default_factory=dict)
    """By id, those that a commit has changed: the columns of `_SESSION`. Another commit of the same session reads its
    rows, so it has them written first."""
    new_turns: list[tuple[object, ...]] = field(default_factory=list)
    turns: list[tuple[object, ...]] = field(default_factory=list)
    usage: list[tuple[object, ...]] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    words: list[IndexChange] = field(default_factory=list)
    """What changes in the index of words, which wants all of them at once, last."""

    def write(self, db: sqlite3.Connection) -> None:
        """Writes all but the words, for what reads or removes some of it."""
        for statement, rows in (
            (_SESSION, list(self.sessions.values())),
            (_NEW_TURN, self.new_turns),
            (_TURN, self.turns),
            (ADD_USAGE, self.usage),
        ):
            if rows:
                db.executemany(statement, rows)
        at = 0
        for size, statement in _EVENTS.items():
            while len(self.events) - at >= size:
                db.execute(statement, tuple(itertools.chain.from_iterable(self.events[at : at + size])))
                at += size
        self._clear()

    def finish(self, db: sqlite3.Connection) -> None:
        """Writes all. Called once before the end of the transaction, last."""
        self.write(db)
        change_index(db, self.words)
        self.words.clear()

    def drop(self, words: int) -> None:
        """Drops what was added since all was written, and the words but for so many."""
        self._clear()
        del self.words[words:]

    def _clear(self) -> None:
        self.sessions.clear()
        for rows in (self.new_turns, self.turns, self.usage, self.events):
            rows.clear()
