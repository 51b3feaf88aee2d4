"""Whole sessions as records of an archive, read apart from all other reads.

The only reading connection would be held for as long as a large session takes, so an archive has one of its own. Each
session is read in one transaction: another process or a checkpoint may run beside it, and it does not see them.
"""

import contextlib
import heapq
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from datetime import datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import msgspec

from turnwire.domain.archive.records import (
    ArchivedFile,
    ArchivedMessage,
    ArchivedSession,
    ArchivedTurn,
    Record,
    SessionEnd,
)
from turnwire.domain.conversation.messages import Branch, FinishReason, Message, MessageStatus
from turnwire.domain.conversation.sizes import message_bytes
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.storage.rows import NOT_TAKEN_BACK, turn_of
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sqlite.connection import opened
from turnwire.storage.sqlite.database import SqliteDatabase
from turnwire.storage.sqlite.message_rows import COLUMNS, message_of
from turnwire.storage.sqlite.reading.queries import TURN, session
from turnwire.storage.sqlite.reading.rows import session_row

BATCH_RECORDS = 200
BATCH_BYTES = 2**20
"""Of the texts of a batch; a record alone may be larger."""

_created = msgspec.json.Decoder(datetime).decode

_ASKED = (
    "EXISTS (SELECT 1 FROM messages AS asked WHERE asked.message_id = json_extract(turns.body, '$.user_message_id')"
    " AND asked.session = turns.session AND asked.queued = 0)"
)
"""Whether the message of a turn is still there."""

_MESSAGES = f"""
SELECT place,
    (SELECT ended FROM turns WHERE turns.turn_id = messages.turn_id AND turns.session = messages.session AND {_ASKED}),
    CASE WHEN on_path = 0 AND taken_back = {NOT_TAKEN_BACK} AND NOT EXISTS (
        SELECT 1 FROM messages AS before WHERE before.message_id = messages.previous AND before.queued = 1
    ) THEN previous END,
    coalesce((
        SELECT turn_id FROM turns WHERE turns.session = messages.session AND {_ASKED} AND turns.turn_id = coalesce(
            branch_turn, (SELECT turn_id FROM messages AS before WHERE before.message_id = messages.previous)
        )
    ), ''),
    {COLUMNS}
FROM messages
WHERE messages.session = ? AND messages.on_path = ? AND messages.queued = 0
ORDER BY place
"""
"""In the order of an index, so that SQLite sorts nothing."""

_TURNS = f"SELECT {TURN} FROM turns WHERE session = ? AND json_extract(body, '$.status') <> ? AND {_ASKED} ORDER BY id"


def session_ids(db: sqlite3.Connection, tenant: str) -> tuple[str, ...]:
    """Returns the ids of a tenant's sessions; see `TenantStore.session_ids`."""
    query = "SELECT json_quote(json_extract(body, '$.created_at')), session_id FROM live_sessions WHERE tenant = ?"
    rows = [(_created(created), session_id) for created, session_id in db.execute(query, (tenant,))]
    return tuple(session_id for _, session_id in sorted(rows))


@contextlib.asynccontextmanager
async def opened_archive(path: Path, tenant: str) -> AsyncIterator["StoredSessions"]:
    """Opens what reads whole sessions of a tenant; see `TenantStore.archive`."""
    connection = await Connection.open(partial(opened, path, read_only=True), is_reader=True)
    try:
        yield StoredSessions(connection, tenant)
    finally:
        await connection.close()


class StoredSessions:
    """Implements `ports.moving.archives.SessionArchive`."""

    def __init__(self, connection: Connection[SqliteDatabase], tenant: str) -> None:
        """Takes a connection that nothing else uses."""
        self._connection = connection
        self._tenant = tenant

    async def records(self, session_id: str, *, include_files: bool) -> AsyncGenerator[tuple[Record, ...]]:
        """Yields the records of a session."""
        reading: Iterator[Record] | None = None

        def read(db: sqlite3.Connection) -> tuple[Record, ...]:
            nonlocal reading
            if reading is None:
                db.execute("BEGIN")
                reading = _records(db, self._tenant, session_id, include_files=include_files)
            return _batch(reading)

        try:
            while batch := await self._connection.run(read):
                yield batch
        finally:
            await self._connection.run(_end)


def _end(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")


def _batch(reading: Iterator[Record]) -> tuple[Record, ...]:
    """Returns the next records; () at the end."""
    batch, size = list[Record](), 0
    for record in reading:
        batch.append(record)
        size += _size(record)
        if len(batch) >= BATCH_RECORDS or size >= BATCH_BYTES:
            break
    return tuple(batch)


def _size(record: Record) -> int:
    """Returns about how many bytes a record holds, without encoding it."""
    match record:
        case ArchivedFile(_, content):
            return len(content)
        case ArchivedMessage(message):
            return message_bytes(message)
        case ArchivedTurn(turn):
            return len(turn.system or "") + sum(len(tool.input_schema_json) for tool in turn.tools)
        case _:
            return 0


def _records(db: sqlite3.Connection, tenant: str, session_id: str, *, include_files: bool) -> Iterator[Record]:
    row, found = session_row(db, tenant, session_id), session(db, tenant, session_id)
    yield ArchivedSession(found.without_first_words())
    for turn_id, _, body, settings, *_ in db.execute(_TURNS, (row, TurnStatus.QUEUED)):
        # without its sequences, which are those of this log
        yield ArchivedTurn(_ended(turn_of(turn_id, session_id, body, settings, 0, 0), found.updated_at))
    count, files = 0, set[str]()
    for message, hidden, branch in _messages(db, row):
        for file in message.all_files() if include_files else ():
            if file.sha256 not in files:
                files.add(file.sha256)
                query = "SELECT content FROM files WHERE tenant = ? AND sha256 = ?"
                yield ArchivedFile(file.sha256, db.execute(query, (tenant, file.sha256)).fetchone()[0])
        yield ArchivedMessage(message, hidden, branch)
        count += 1
    yield SessionEnd(count)


class _Found(NamedTuple):
    """A message as a walk finds it."""

    place: int
    message: Message
    is_hidden: bool
    branch: Branch | None
    ended: int | None
    """Whether its turn has ended; None: it has no turn."""


def _messages(db: sqlite3.Connection, row: int) -> Iterator[tuple[Message, bool, Branch | None]]:
    """Yields the messages in order, up to the first that is not complete, whether each is hidden, and its branch."""
    walks = (_walk(db, row, hidden) for hidden in (False, True))
    for found in heapq.merge(*walks, key=attrgetter("place")):
        message = found.message
        if message.status is MessageStatus.STREAMING or (
            found.ended == 0 and not all(call.status.settled for _, call in message.tool_calls())
        ):
            return
        kept = message if found.ended is not None else msgspec.structs.replace(message, turn_id="")
        yield kept, found.is_hidden, found.branch


def _walk(db: sqlite3.Connection, row: int, hidden: bool) -> Iterator[_Found]:
    """Yields what is hidden, or what is not, in order."""
    for place, ended, previous, turn_id, *stored in db.execute(_MESSAGES, (row, not hidden)):
        branch = None if previous is None else Branch(previous_message_id=previous, turn_id=turn_id)
        # an archive says what is before a message by its order
        message = msgspec.structs.replace(message_of(db, tuple(stored)), previous_message_id="")
        yield _Found(place, message, hidden, branch, ended)


def _ended(turn: Turn, at: datetime) -> Turn:
    """Returns a turn; one that runs as if it had been interrupted at a time."""
    if turn.status is TurnStatus.ENDED:
        return turn
    return msgspec.structs.replace(
        turn, status=TurnStatus.ENDED, ended_at=at, finish_reason=FinishReason.INTERRUPTED, steps=0
    )
