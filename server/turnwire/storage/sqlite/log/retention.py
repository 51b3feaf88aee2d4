"""Forgetting old events, in small steps between commits: by age and by count."""

import sqlite3
from datetime import datetime, timedelta

from turnwire.ports.clock import Clock, PatientClock, utc_now
from turnwire.storage.accounts import Delta
from turnwire.storage.sqlite.log.pruning import MAX_PRUNED, PRUNE_SLACK, prune
from turnwire.storage.sqlite.writing.events import last_position

STEP_EVENTS = 96
"""Of one step, which holds up commits for some milliseconds."""
STEP_SESSIONS = 500
"""Looked at in one step."""

_HOUR = timedelta(hours=1)

_OLD_POSITION = (
    "SELECT coalesce(max(position), 0) FROM log_hours WHERE hour <= ?1 AND position"
    " < coalesce((SELECT min(position) FROM log_hours WHERE hour > ?1 AND hour <= ?2), 9223372036854775807)"
)
"""The newest position whose hour is old, and before which none of a younger hour was noted: the clock may have been
behind for a while. Hours to come do not count: it was ahead."""


class Retention:
    """Which events are too old, and how far the search for them is. Used on the writer's thread.

    Everything of turns that have not ended stays. No order of steps, commits and crashes drops anything else: a step
    notes in its transaction what it has dropped, and the next start looks through all again.
    """

    def __init__(
        self,
        count: int,
        age: timedelta,
        clock: Clock | None = None,
        patient: Clock | None = None,
    ) -> None:
        """Args:
        count: How many of its newest events a session keeps.
        age: How long events are kept; up to two hours longer, never shorter.
        clock: The time now, which is noted; None is the real one.
        patient: The time that tells what is old; None is the clock's, and the real one with patience.
        """
        self._count = count
        self._age = age
        self._clock = clock or utc_now
        self._patient = patient or clock or PatientClock(utc_now, age)
        self._session = 0  # sessions up to this row were looked at for their count
        self._position = 0  # events up to this position were looked at for their age
        self._is_walking = False  # whether this look for old events goes on
        self._boundary = 0  # events up to this position are too old

    def step(self, db: sqlite3.Connection, deltas: list[Delta]) -> bool:
        """Carries out a step. Returns False when nothing is left to do for now."""
        if self._drop_over_count(db, deltas):
            return True
        if not self._is_walking:  # begin again: what was kept for a turn may be free by now
            self._position, self._is_walking = 0, True
            self._boundary = self._old_position(db)
        return self._drop_old(db, deltas)

    def _drop_over_count(self, db: sqlite3.Connection, deltas: list[Delta]) -> bool:
        """Looks through all sessions once: commits keep to the count, unless it was lowered."""
        rows = db.execute(
            "SELECT id, session_id, head_sequence - ?, pruned_through FROM sessions WHERE id > ? ORDER BY id LIMIT ?",
            (self._count, self._session, STEP_SESSIONS),
        ).fetchall()
        for row, session_id, wanted, pruned in rows:
            if wanted - pruned > PRUNE_SLACK:
                counted = _Counted(db, {row})
                through = min(wanted, pruned + MAX_PRUNED)
                is_more = prune(db, row, session_id, through)[0] == through < wanted
                deltas += counted.deltas()
                self._session = row - 1 if is_more else row
                return True
            self._session = row
        return bool(rows)

    def _old_position(self, db: sqlite3.Connection) -> int:
        """Notes where the log is now, and returns the position up to which events are too old."""
        now, newest = self._clock(), last_position(db)
        db.execute(
            "INSERT INTO log_hours (hour, position) SELECT ?1, ?2"
            " WHERE ?2 > coalesce((SELECT max(position) FROM log_hours), 0) ON CONFLICT (hour) DO NOTHING",
            (_hour(now), newest),
        )
        # a position was noted some time in its hour: what is before it is older than the end of that hour
        (last,) = db.execute(_OLD_POSITION, (_hour(self._patient() - self._age - _HOUR), _hour(now))).fetchone()
        db.execute("DELETE FROM log_hours WHERE position < ?", (last,))
        return int(last)

    def _drop_old(self, db: sqlite3.Connection, deltas: list[Delta]) -> bool:
        rows = db.execute(
            "SELECT position, session_id, sequence, sessions.id, pruned_through"
            " FROM events LEFT JOIN sessions USING (session_id)"
            " WHERE position > ? AND position <= ? ORDER BY position LIMIT ?",
            (self._position, self._boundary, STEP_EVENTS),
        ).fetchall()
        if not rows:
            self._is_walking = False
            return False
        # asked of the file, because the step before may have been rolled back
        is_all_gone = db.execute("SELECT min(position) FROM events").fetchone() == (rows[0][0],)
        newest = {  # what was kept for a turn that has ended meanwhile may be more than a step
            row: (session_id, min(sequence, pruned + MAX_PRUNED))
            for _, session_id, sequence, row, pruned in rows
            if row is not None
        }
        counted = _Counted(db, set(newest))
        reached = {row: prune(db, row, session_id, sequence)[0] for row, (session_id, sequence) in newest.items()}
        deltas += counted.deltas()
        gone_through = 0
        for position, _, sequence, row, _ in rows:
            if not is_all_gone or (row is not None and sequence > reached[row]):
                break
            if row is None:  # told that a session was deleted
                db.execute("DELETE FROM events WHERE position = ?", (position,))
            gone_through = position
        # nothing is left up to there, so a watch of all sessions that begins before reads all of them anew
        db.execute("UPDATE log_state SET pruned_through = max(pruned_through, ?)", (gone_through,))
        self._position = rows[-1][0]
        return True


class _Counted:
    """Notes what some sessions have stored before a step, and tells what has changed after it."""

    def __init__(self, db: sqlite3.Connection, sessions: set[int]) -> None:
        """Takes the rows of the sessions."""
        self._db = db
        self._sessions = sessions
        self._before = self._read()

    def deltas(self) -> list[Delta]:
        """Returns the changes so far. Sessions that are not live count nowhere."""
        after = self._read()
        changes = ((tenant, after.get(row, ("", 0))[1] - size) for row, (tenant, size) in self._before.items())
        return [Delta(tenant, stored_bytes=size) for tenant, size in changes if size]

    def _read(self) -> dict[int, tuple[str, int]]:
        among = ",".join(map(str, self._sessions))
        rows = self._db.execute(f"SELECT id, tenant, stored_bytes FROM live_sessions WHERE id IN ({among})")
        return {row: (tenant, size) for row, tenant, size in rows}


def _hour(at: datetime) -> int:
    return int(at.timestamp() // 3600)
