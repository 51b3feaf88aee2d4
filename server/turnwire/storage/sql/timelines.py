"""Timelines: which moments belong to the history of the log, whatever file it was restored from.

Each start of the server begins a timeline: a row with a random name and the position at which it begins. PostgreSQL
knows its history, so there a timeline begins when that does. A moment names a timeline and a position. A file that was
restored from a backup lacks everything after the backup, and its next start begins a timeline there. Moments after the
backup then lie beyond the end of their timeline, or the file does not have their timeline at all.
"""

import contextlib
import secrets
from collections.abc import Iterator, Sequence

from turnwire.domain.errors import StorageFull
from turnwire.ports.store import Moment, Standing
from turnwire.storage.sql.database import Database

KEPT_TIMELINES = 1000
"""Number of starts of the server that are remembered. Older moments count as unknown."""

TOKEN_KEY_BYTES = 32


class Timelines:
    """The timelines of one file; the newest one is that of this run. Never changes."""

    def __init__(self, rows: Sequence[tuple[int, str, int]]) -> None:
        """Takes the rows, oldest first: number from 1, name, and the position at which it begins. At least one."""
        ends = [start for _, _, start in rows[1:]]
        names = [name for _, name, _ in rows]
        self.current = names[-1]
        self._ends = dict(zip(names[:-1], ends, strict=True))
        self._is_complete = rows[0][0] == 1

    @classmethod
    def begin(cls, db: Database, position: int) -> "Timelines":
        """Begins the timeline of this run at the newest position of the log and forgets the oldest ones.

        Where the database continues the history of an earlier run, its timeline continues too. A full disk does not
        prevent a server from starting. The timeline is then not in the file, so that the moments of this run count as
        replaced in the next one.
        """
        name, begins = secrets.token_hex(8), False
        with _unless_full(db), db.transaction():
            begins = db.begins_history(position)
            if begins:
                db.run("INSERT INTO timelines (timeline, start_position) VALUES (?, ?)", (name, position))
                db.run("DELETE FROM timelines WHERE id <= (SELECT max(id) FROM timelines) - ?", (KEPT_TIMELINES,))
        rows = db.rows("SELECT id, timeline, start_position FROM timelines ORDER BY id")
        if begins and (not rows or rows[-1][1] != name):
            rows.append((rows[-1][0] + 1 if rows else 1, name, position))
        return cls(rows)

    def standing(self, moment: Moment) -> Standing:
        """Returns the relation of a moment to the log."""
        if moment.timeline == self.current:
            return Standing.PAST
        end = self._ends.get(moment.timeline)
        if end is not None:
            return Standing.PAST if moment.position <= end else Standing.REPLACED
        return Standing.REPLACED if self._is_complete else Standing.UNKNOWN


def token_key(db: Database) -> bytes:
    """Returns the key that seals resume tokens; makes it at the first start.

    It is a part of the data, so tokens are valid for a copy and for a restored backup too. On a full disk it lasts for
    this run, and the tokens of this run are unknown to the next one.
    """
    [(key,)] = db.rows("SELECT token_key FROM log_state")
    if not key:
        key = secrets.token_bytes(TOKEN_KEY_BYTES)
        with _unless_full(db):
            db.run("UPDATE log_state SET token_key = ? WHERE length(token_key) = 0", (key,))
            # perhaps the key of another server, which was quicker
            [(key,)] = db.rows("SELECT token_key FROM log_state")
    return bytes(key)


@contextlib.contextmanager
def _unless_full(db: Database) -> Iterator[None]:
    """Suppresses the error of a full disk."""
    try:
        yield
    except db.failures as error:
        if not isinstance(db.translate(error), StorageFull):
            raise
