"""Removing the blocks of uploads that are gone, in small steps between commits."""

import sqlite3

import aiosqlite

from turnwire.storage.sqlite.connection import transaction
from turnwire.storage.sqlite.steps import Steps
from turnwire.storage.sqlite.uploads import blocks

STEP_BLOCKS = 8
"""Of one step, 2 MiB: it holds up commits for some milliseconds. Two gigabytes at once would do so for seconds."""
STEP_UPLOADS = 64
"""Of one step: many small ones go as quickly as they can be made."""
PAUSE_SECONDS = 0.005
"""Between steps; what waits to be written comes first anyway. Two gigabytes take about 10 seconds: less than sending
them does, so that who uploads and deletes all the time does not fill the disk."""


def block_removal(connection: aiosqlite.Connection) -> Steps:
    """Returns the work that removes what `changes.remove` has marked.

    No order of steps, commits and crashes removes anything else.

    Args:
        connection: The writing connection.
    """
    return Steps(connection, _remove_some, PAUSE_SECONDS, "upload removal")


def _remove_some(db: sqlite3.Connection) -> bool:
    """Carries out a step. Returns False when nothing is left to remove."""
    some = db.execute("SELECT id FROM uploads WHERE removed = 1 ORDER BY id LIMIT ?", (STEP_UPLOADS,)).fetchall()
    if not some:
        return False
    left = STEP_BLOCKS
    with transaction(db):
        for row in some:
            left -= blocks.remove_some(db, row[0], left)
            if not left:  # more of this one may be there
                break
            db.execute("DELETE FROM uploads WHERE id = ?", row)
    return True
