"""What an older codec has made: its events are dropped, its display forms are made anew."""

import asyncio
import sqlite3

import aiosqlite

from turnwire.domain.errors import StorageError
from turnwire.ports.codec import Codec
from turnwire.storage.sqlite.accounts import count_totals
from turnwire.storage.sqlite.connection import run, transaction
from turnwire.storage.sqlite.reading.displays import outdated
from turnwire.storage.sqlite.reading.fitting import fitting
from turnwire.storage.sqlite.reading.rows import read_messages

STEP_MESSAGES = 32
STEP_BYTES = 1_000_000
"""Of one step, which holds up commits for some milliseconds."""
PAUSE_SECONDS = 0.05
"""Between steps, for calls. A million messages take about half an hour."""
RETRY_SECONDS = 60.0
"""After a step that failed, as on a full disk. Reading does not wait for it."""


def adopt_codec(db: sqlite3.Connection, version: int) -> None:
    """Makes the database one of this version of the codec: drops the events of an older one, indexes display forms.

    What a newer version has made stays: readers skip what they do not know. Idempotent, and one transaction.
    """
    (stored,) = db.execute("SELECT codec_version FROM log_state").fetchone()
    if stored == version:
        return
    with transaction(db):
        if stored < version:
            _drop_events(db)
        # An index of the outdated rows alone costs nothing once there are none.
        db.execute("DROP INDEX IF EXISTS messages_outdated")
        db.execute(f"CREATE INDEX messages_outdated ON messages (id) WHERE {outdated(version)}")
        db.execute("UPDATE log_state SET codec_version = ?", (version,))


class Renewal:
    """Makes display forms of an older codec anew, in small steps while the server runs, newest messages first.

    A step is a transaction of its own on the writing connection, between those of commits: it is no commit, has no
    events, and does not change when a session was updated. A message that is written meanwhile gets a display form of
    today and is outdated no more. So no order of steps, commits and crashes loses anything.
    """

    def __init__(self, connection: aiosqlite.Connection, codec: Codec) -> None:
        """Takes the writing connection, which the caller closes after `aclose`."""
        self._connection = connection
        self._codec = codec
        self._task: asyncio.Task[None] | None = None
        self.is_done = False
        """Whether every stored display form is of this codec, and stays so."""

    async def start(self) -> None:
        """Looks for outdated display forms and starts the task if there are any."""
        self.is_done = not await run(self._connection, _any_outdated, self._codec.version)
        if not self.is_done:
            self._task = asyncio.create_task(self._renew(), name="display renewal")

    async def aclose(self) -> None:
        """Ends the task; the next start goes on. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _renew(self) -> None:
        while not self.is_done:
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                self.is_done = not await run(self._connection, _renew_some, self._codec)
            except StorageError:
                await asyncio.sleep(RETRY_SECONDS)


def _drop_events(db: sqlite3.Connection) -> None:
    db.execute("UPDATE sessions SET pruned_through = head_sequence")
    db.execute(
        "UPDATE log_state SET pruned_through = max(pruned_through, coalesce((SELECT max(position) FROM events), 0))"
    )
    db.execute("DELETE FROM events")
    count_totals(db)


def _any_outdated(db: sqlite3.Connection, version: int) -> bool:
    return db.execute(f"SELECT 1 FROM messages WHERE {outdated(version)} LIMIT 1").fetchone() is not None


def _renew_some(db: sqlite3.Connection, codec: Codec) -> bool:
    """Carries out a step. Returns False when nothing is outdated."""
    found = db.execute(
        f"SELECT id, length(display) FROM messages WHERE {outdated(codec.version)} ORDER BY id DESC LIMIT ?",
        (STEP_MESSAGES,),
    )
    rows, _ = fitting(found, lambda row: row[1], STEP_BYTES)
    if not rows:
        return False
    messages = read_messages(db, f"messages.id IN ({','.join(str(row) for row, _ in rows)})", (), "messages.id")
    renewed = [(codec.encode_display(message), codec.version, message.message_id) for message in messages]
    with transaction(db):
        db.executemany("UPDATE messages SET display = ?, display_version = ? WHERE message_id = ?", renewed)
    return True
