"""Upkeep of the index while the server runs: removes what is gone, adds what an older version has left."""

import sqlite3
from collections.abc import Iterable

import aiosqlite
import msgspec

from turnwire.domain.searching.words import VERSION
from turnwire.storage.sqlite.connection import transaction
from turnwire.storage.sqlite.part_rows import DISPLAY_BYTES
from turnwire.storage.sqlite.reading.fitting import fitting
from turnwire.storage.sqlite.reading.rows import read_messages
from turnwire.storage.sqlite.searching.entries import IndexRow, add_rows, index_message, remove_some
from turnwire.storage.sqlite.steps import Steps

STEP_MESSAGES = 32
STEP_REMOVALS = 64
STEP_BYTES = 100_000
"""Of one step, which holds up commits for some milliseconds."""
PAUSE_SECONDS = 0.02
"""Between steps, for calls. 100,000 messages take about two minutes."""

_ANY_WORK = "SELECT EXISTS (SELECT 1 FROM search_removals) OR EXISTS (SELECT 1 FROM search_backlog)"


def adopt_words(db: sqlite3.Connection) -> None:
    """Empties an index that has other words than this version makes, and notes all messages as to be indexed.

    Idempotent, and one transaction.
    """
    (stored,) = db.execute("SELECT version FROM search_state").fetchone()
    if stored == VERSION:
        return
    with transaction(db):
        db.execute("INSERT INTO search_index (search_index) VALUES ('delete-all')")
        for table in ("search_entries", "search_removals", "search_backlog"):
            db.execute(f"DELETE FROM {table}")
        db.execute("INSERT INTO search_backlog (below) SELECT max(id) + 1 FROM messages HAVING count(*)")
        db.execute("UPDATE search_state SET version = ?", (VERSION,))


def forget_words(db: sqlite3.Connection) -> None:
    """Lets the next start index all messages anew; see `adopt_words`."""
    db.execute("UPDATE search_state SET version = ''")


def any_work(db: sqlite3.Connection) -> bool:
    """Returns whether something is to be removed or added. Costs two looks at empty tables."""
    return bool(db.execute(_ANY_WORK).fetchone()[0])


def upkeep(connection: aiosqlite.Connection) -> Steps:
    """Returns the work that keeps the index in step with what is stored.

    What is removed or added meanwhile is part of the commit that does it, so no order of steps, commits and crashes
    loses anything.

    Args:
        connection: The writing connection.
    """
    return Steps(connection, work_some, PAUSE_SECONDS, "search upkeep")


def work_some(db: sqlite3.Connection) -> bool:
    """Carries out a step. Returns False when there is nothing to do."""
    if not any_work(db):
        return False
    with transaction(db):
        if not remove_some(db, STEP_REMOVALS, STEP_BYTES):
            _index_some(db)
    return True


def _index_some(db: sqlite3.Connection) -> None:
    """Indexes the newest messages of the backlog, and notes how far that is."""
    backlog, below = db.execute("SELECT id, below FROM search_backlog").fetchone()
    newest = f"SELECT id, {DISPLAY_BYTES} FROM messages WHERE id < ? ORDER BY id DESC LIMIT ?"
    found = db.execute(newest, (below, STEP_MESSAGES))
    rows, _ = fitting(found, lambda row: row[1], STEP_BYTES)
    if not rows:
        db.execute("DELETE FROM search_backlog WHERE id = ?", (backlog,))
        return
    ids = [row for row, _ in rows]
    entered = [index_row for row in ids for index_row in _index_one(db, row)]
    db.execute("UPDATE search_backlog SET below = ? WHERE id = ?", (ids[-1], backlog))
    add_rows(db, entered)


def _index_one(db: sqlite3.Connection, row: int) -> Iterable[IndexRow]:
    """Enters a message; see `index_message`. One that cannot be read is left out; `turnwire doctor` finds it."""
    query = "SELECT tenant, session FROM messages JOIN sessions ON sessions.id = session WHERE messages.id = ?"
    tenant, session = db.execute(query, (row,)).fetchone()
    try:
        [message] = read_messages(db, "messages.id = ?", (row,), "place")
    except msgspec.DecodeError:
        return ()
    if [part.index for part in message.parts] != list(range(len(message.parts))):
        return ()
    return index_message(db, tenant, session, row, message)
