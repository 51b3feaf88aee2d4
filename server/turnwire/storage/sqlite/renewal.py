"""What an older codec has made: its events are dropped, its messages are made anew."""

import sqlite3

from turnwire.ports.codec import Codec
from turnwire.storage.accounts import Delta
from turnwire.storage.sqlite.connection import transaction
from turnwire.storage.sqlite.log.counted_steps import Counted, CountedSteps
from turnwire.storage.sqlite.log.renewing import renew_row
from turnwire.storage.sqlite.part_rows import DISPLAY_BYTES
from turnwire.storage.sqlite.reading.fitting import fitting
from turnwire.storage.sqlite.writing.changes import CommitWriter
from turnwire.storage.sqlite.writing.writer import GroupWriter

STEP_MESSAGES = 32
STEP_BYTES = 250_000
"""Of one step, which holds up commits for some milliseconds."""
PAUSE_SECONDS = 0.02
"""Between steps, for calls. A million messages take about 20 minutes."""


def adopt_codec(db: sqlite3.Connection, version: int) -> None:
    """Makes the database one of this version of the codec: gives up the events of an older one, notes its messages.

    What a newer version has made stays: readers skip what they do not know. Idempotent, and one transaction, which
    reads no messages and no events: those that were given up are removed in steps (`log/retention.py`).
    """
    (stored,) = db.execute("SELECT codec_version FROM log_state").fetchone()
    if stored == version:
        return
    with transaction(db):
        if stored < version:
            db.execute("UPDATE sessions SET pruned_through = head_sequence")
            db.execute(
                "UPDATE log_state"
                " SET pruned_through = max(pruned_through, coalesce((SELECT max(position) FROM events), 0))"
            )
            db.execute("DELETE FROM renewal_backlog")
            (newest,) = db.execute("SELECT max(id) FROM messages").fetchone()
            if newest is not None:
                db.execute("INSERT INTO renewal_backlog (below) VALUES (?)", (newest + 1,))
        db.execute("UPDATE log_state SET codec_version = ?", (version,))


class Renewal(CountedSteps):
    """Makes messages of an older codec anew, in small steps while the server runs, newest first.

    A step is no commit, has no events, and does not change when a session was updated. A message that is written
    meanwhile gets the form of today first. So no order of steps, commits and crashes loses anything.
    """

    def __init__(self, writer: GroupWriter, changes: CommitWriter, codec: Codec) -> None:
        """Args:
        writer: Carries the steps out. Close it after `aclose`.
        changes: Knows whether rows of an older codec may be there, and is told when none are left.
        codec: Makes display forms.
        """
        super().__init__(writer, self._renew, PAUSE_SECONDS, "renewal")
        self._codec = codec
        self._changes = changes
        self._is_begun = False
        self.is_done = not changes.is_renewing
        """Whether every stored message is of this codec, and stays so."""

    def _renew(self, db: sqlite3.Connection, deltas: list[Delta]) -> bool:
        if is_renewed(db):  # what an earlier step has done is on the disk
            self._changes.is_renewing = False
            self.is_done = True
            return False
        if not self._is_begun:  # who calls at the start comes first
            self._is_begun = True
            return True
        renew_some(db, self._codec, deltas)
        return True


def is_renewed(db: sqlite3.Connection) -> bool:
    """Returns whether no messages of an older codec are left."""
    return db.execute("SELECT 1 FROM renewal_backlog").fetchone() is None


def renew_some(db: sqlite3.Connection, codec: Codec, deltas: list[Delta]) -> None:
    """Carries out a step, inside a transaction; notes when nothing is left."""
    (below,) = db.execute("SELECT below FROM renewal_backlog").fetchone()
    newest = f"SELECT id, {DISPLAY_BYTES}, display_version, session FROM messages WHERE id < ? ORDER BY id DESC LIMIT ?"
    rows, _ = fitting(db.execute(newest, (below, STEP_MESSAGES)), lambda row: row[1], STEP_BYTES)
    if not rows:
        db.execute("DELETE FROM renewal_backlog")
        return
    old = [(row, session) for row, _, version, session in rows if version < codec.version]
    counted = Counted(db, {session for _, session in old})
    for row, _ in old:
        renew_row(db, codec, row)
    deltas += counted.deltas()
    db.execute("UPDATE renewal_backlog SET below = ?", (rows[-1][0],))
