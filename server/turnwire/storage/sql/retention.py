"""The removal of old events, in small steps between commits: by age and by count."""

from datetime import timedelta
from itertools import takewhile
from typing import NamedTuple

from turnwire.ports.clock import Clock, PatientClock, utc_now
from turnwire.ports.commit import SessionState
from turnwire.storage.accounts import Delta, Ledger
from turnwire.storage.rows import microseconds
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.states import prune
from turnwire.storage.units import MAX_PRUNED, PRUNE_SLACK

STEP_EVENTS = 96
"""Maximum events of one step, which blocks commits for some milliseconds."""
STEP_SESSIONS = 500
"""Maximum sessions that one step examines."""

_SOME = (
    "SELECT position, session_id, sequence, at_us, sessions.id, pruned_through, sessions.tenant, sessions.state"
    " FROM events LEFT JOIN sessions USING (session_id) WHERE position > ? ORDER BY position LIMIT ?"
)


class _Row(NamedTuple):
    """An event with its session."""

    position: int
    session_id: str
    sequence: int
    at_us: int
    session: int | None
    """None when the session was deleted, which the event reports."""
    pruned: int
    tenant: str
    """The owner of the session."""
    state: str
    """The state of the session."""


class Retention:
    """Finds the events that are too old, and remembers how far the search is. Used on the writer's thread.

    Everything of turns that have not ended stays. No order of steps, commits and crashes drops anything else: a step
    records in its transaction what it has dropped, and the next start examines everything again.
    """

    def __init__(self, count: int, age: timedelta, clock: Clock | None = None) -> None:
        """Args:
        count: Number of its newest events that a session keeps.
        age: Time for which events are kept; up to a minute longer.
        clock: The present time; None uses the real clock, and with patience where it decides what is old.
        """
        self._count = count
        self._age = age
        self._clock = clock or utc_now
        self._patient = clock or PatientClock(utc_now, age)
        self._session = 0  # sessions up to this row were examined for their count
        self._position = 0  # events up to this position were examined for their age; 0 begins again

    def step(self, db: Database, ledger: Ledger) -> bool:
        """Carries out a step. Returns False when nothing is left to do for now."""
        return self._drop_over_count(db, ledger) or self._drop_old(db, ledger)

    def _drop_over_count(self, db: Database, ledger: Ledger) -> bool:
        """Examines all sessions once: commits keep to the count, unless it was lowered."""
        rows = db.rows(
            "SELECT id, session_id, head_sequence - ?, pruned_through, tenant, state FROM sessions WHERE id > ?"
            " ORDER BY id LIMIT ?",
            (self._count, self._session, STEP_SESSIONS),
        )
        for row, session_id, wanted, pruned, tenant, state in rows:
            if wanted - pruned > PRUNE_SLACK and db.owns(session_id):
                through = min(wanted, pruned + MAX_PRUNED)
                reached, size = prune(db, row, session_id, through)
                is_more = reached == through < wanted
                ledger.deltas += _freed(tenant, state, size)
                self._session = row - 1 if is_more else row
                return True
            self._session = row
        return bool(rows)

    def _drop_old(self, db: Database, ledger: Ledger) -> bool:
        """Reads the log from its beginning to the first event that is not old.

        Events that were kept for a turn may be free by the next time, so each time begins anew.
        """
        some = [_Row(*row) for row in db.rows(_SOME, (self._position, STEP_EVENTS))]
        old, is_more = self._old(some)
        if old:
            self._drop(db, ledger, old)
        self._position = some[-1].position if is_more else 0
        return is_more

    def _old(self, rows: list[_Row]) -> tuple[list[_Row], bool]:
        """Returns the old events before the first one that is not old, and whether more may follow.

        The clock may have been wrong for a while: an event from the future is as old as one after it, and one from the
        past is kept after one that is not old.
        """
        now, old_before = microseconds(self._clock()), microseconds(self._patient() - self._age)
        before = list(takewhile(lambda row: not old_before <= row.at_us <= now, rows))
        oldest_last = max((index for index, row in enumerate(before) if row.at_us < old_before), default=-1)
        return before[: oldest_last + 1], len(before) == STEP_EVENTS

    @staticmethod
    def _drop(db: Database, ledger: Ledger, old: list[_Row]) -> None:
        # read from the file, because the previous step may have been rolled back
        is_all_gone = db.row("SELECT min(position) FROM events") == (old[0].position,)
        newest = {  # what was kept for a turn that has ended since may be more than a step
            row.session: (row, min(row.sequence, row.pruned + MAX_PRUNED))
            for row in old
            if row.session is not None and db.owns(row.session_id)
        }
        reached = dict[int, int]()
        for session, (row, sequence) in newest.items():
            reached[session], size = prune(db, session, row.session_id, sequence)
            ledger.deltas += _freed(row.tenant, row.state, size)
        gone_through, newest_dropped = 0, 0
        for row in old:
            is_dropped = is_all_gone if row.session is None else row.sequence <= reached.get(row.session, 0)
            is_all_gone &= is_dropped
            if row.session is None and is_dropped:
                db.run("DELETE FROM events WHERE position = ?", (row.position,))
            if is_all_gone:  # nothing is left up to there, so a watch of all sessions from before reads them again
                gone_through = row.position
            if is_dropped:
                newest_dropped = row.position
        greatest = db.dialect.greatest
        db.run(
            f"UPDATE log_state SET pruned_through = {greatest}(pruned_through, ?),"
            f" newest_dropped = {greatest}(newest_dropped, ?)",
            (gone_through, newest_dropped),
        )


def _freed(tenant: str, state: str, size: int) -> list[Delta]:
    """Returns the change of an account when bytes of a session are freed. A session that is not live counts nowhere."""
    return [Delta(tenant, stored_bytes=-size)] if size and state == SessionState.LIVE else []
