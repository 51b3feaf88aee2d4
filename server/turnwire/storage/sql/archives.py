"""Whole sessions as records of an archive, read separately from all other reads.

The reading connection would be held for as long as a large session takes, so an archive has its own connection. Each
session is read in one snapshot, which neither another process nor a checkpoint changes.
"""

import contextlib
import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import closing
from datetime import datetime
from operator import attrgetter
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
from turnwire.storage.sql.columns import COLUMNS, TURN, message_of, session_row
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.database import Database, Dialect
from turnwire.storage.sql.files import files
from turnwire.storage.sql.sessions import session
from turnwire.storage.sql.turns import turns_begun

BATCH_RECORDS = 200
BATCH_BYTES = 2**20
"""Size of the texts of a batch; a single record may be larger."""


def _asked(dialect: Dialect) -> str:
    """Returns SQL for whether the message of a turn still exists."""
    message_id = dialect.field("turns.body", "user_message_id")
    return (
        f"EXISTS (SELECT 1 FROM messages AS asked WHERE asked.message_id = {message_id}"
        " AND asked.session = turns.session AND asked.queued = 0)"
    )


_MESSAGES = f"""
SELECT place,
    (SELECT ended FROM turns WHERE turns.turn_id = messages.turn_id AND turns.session = messages.session AND {{asked}}),
    CASE WHEN on_path = 0 AND taken_back = {NOT_TAKEN_BACK} AND NOT EXISTS (
        SELECT 1 FROM messages AS before WHERE before.message_id = messages.previous AND before.queued = 1
    ) THEN previous END,
    coalesce((
        SELECT turn_id FROM turns WHERE turns.session = messages.session AND {{asked}} AND turns.turn_id = coalesce(
            branch_turn, (SELECT turn_id FROM messages AS before WHERE before.message_id = messages.previous)
        )
    ), ''),
    {COLUMNS}
FROM messages
WHERE messages.session = ? AND messages.on_path = ? AND messages.queued = 0
ORDER BY place
"""
"""In the order of an index, so that nothing is sorted."""


@contextlib.asynccontextmanager
async def opened_archive(
    opened: Callable[[], Awaitable[Connection[Database]]], tenant: str
) -> AsyncIterator["StoredSessions"]:
    """Opens a reader of whole sessions of a tenant; see `TenantStore.archive`."""
    connection = await opened()
    try:
        yield StoredSessions(connection, tenant)
    finally:
        await connection.close()


class StoredSessions:
    """Implements `ports.moving.archives.SessionArchive`."""

    def __init__(self, connection: Connection[Database], tenant: str) -> None:
        """Takes a connection that nothing else uses."""
        self._connection = connection
        self._tenant = tenant

    async def records(self, session_id: str, *, include_files: bool) -> AsyncGenerator[tuple[Record, ...]]:
        """Yields the records of a session."""
        reading: Generator[Record] | None = None

        def read(db: Database) -> tuple[Record, ...]:
            nonlocal reading
            if reading is None:
                reading = _records(db, self._tenant, session_id, include_files=include_files)
            return _batch(reading)

        def end(_: Database) -> None:
            if reading is not None:
                reading.close()

        try:
            while batch := await self._connection.run(read):
                yield batch
        finally:
            await self._connection.run(end)


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
    """Returns the approximate bytes of a record, without encoding it."""
    match record:
        case ArchivedFile(_, content):
            return len(content)
        case ArchivedMessage(message):
            return message_bytes(message)
        case ArchivedTurn(turn):
            return len(turn.system or "") + sum(len(tool.input_schema_json) for tool in turn.tools)
        case _:
            return 0


def _records(db: Database, tenant: str, session_id: str, *, include_files: bool) -> Generator[Record]:
    with db.snapshot():
        row, found = session_row(db, tenant, session_id), session(db, tenant, session_id)
        yield ArchivedSession(found.without_first_words())
        turns = f"SELECT {TURN} FROM turns WHERE {turns_begun(db.dialect)} AND {_asked(db.dialect)} ORDER BY id"
        with closing(db.each(turns, (row,))) as stored:
            for turn_id, _, body, settings, *_ in stored:
                # without its sequences, which are those of this log
                yield ArchivedTurn(_ended(turn_of(turn_id, session_id, body, settings, 0, 0), found.updated_at))
        count, given = 0, set[str]()
        for message, hidden, branch in _messages(db, row):
            for file in message.all_files() if include_files else ():
                if file.sha256 not in given:
                    given.add(file.sha256)
                    yield ArchivedFile(file.sha256, files(db, tenant, [file.sha256])[file.sha256])
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
    """Whether its turn has ended; None without a turn."""


def _messages(db: Database, row: int) -> Iterator[tuple[Message, bool, Branch | None]]:
    """Yields the messages up to the first incomplete one, with whether each is hidden, and its branch."""
    with closing(_walk(db, row, hidden=False)) as shown, closing(_walk(db, row, hidden=True)) as hidden:
        for found in heapq.merge(shown, hidden, key=attrgetter("place")):
            message = found.message
            if message.status is MessageStatus.STREAMING or (
                found.ended == 0 and not all(call.status.settled for _, call in message.tool_calls())
            ):
                return
            kept = message if found.ended is not None else msgspec.structs.replace(message, turn_id="")
            yield kept, found.is_hidden, found.branch


def _walk(db: Database, row: int, *, hidden: bool) -> Generator[_Found]:
    """Yields the hidden messages, or the others, in order."""
    query = _MESSAGES.format(asked=_asked(db.dialect))
    with closing(db.each(query, (row, int(not hidden)))) as rows:
        for place, ended, previous, turn_id, *stored in rows:
            branch = None if previous is None else Branch(previous_message_id=previous, turn_id=turn_id)
            # the order of an archive says which message precedes another
            message = msgspec.structs.replace(message_of(db, tuple(stored)), previous_message_id="")
            yield _Found(place, message, hidden, branch, ended)


def _ended(turn: Turn, at: datetime) -> Turn:
    """Returns a turn; a running one as if it had been interrupted at a time."""
    if turn.status is TurnStatus.ENDED:
        return turn
    return msgspec.structs.replace(
        turn, status=TurnStatus.ENDED, ended_at=at, finish_reason=FinishReason.INTERRUPTED, steps=0
    )
