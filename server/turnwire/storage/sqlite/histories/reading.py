"""Reads whole conversations: in pages at first, then what was stored since."""

import sqlite3
from collections.abc import Mapping, Sequence

import aiosqlite

from turnwire.domain.conversation.messages import Message
from turnwire.domain.errors import ConversationTooLarge, SessionNotFound
from turnwire.storage.histories import History, HistoryCache, check_conversation, message_bytes
from turnwire.storage.sqlite.connection import run
from turnwire.storage.sqlite.message_rows import MESSAGE_BYTES
from turnwire.storage.sqlite.reading import queries
from turnwire.storage.sqlite.reading.fitting import fitting
from turnwire.storage.sqlite.reading.rows import read_messages, session_row
from turnwire.storage.sqlite.writing.writer import GroupWriter

_PAGE_MESSAGES = 128
_PAGE_BYTES = 256 * 1024
"""Read at once: other reads wait for a few milliseconds at most, unless one message alone is larger."""

_MAX_ROUNDS = 20
"""How often a conversation may change while it is read, before it is read in one piece."""

_Placed = list[tuple[Message, int]]
"""Messages with their places."""


class Conversations:
    """Reads conversations, and keeps them in memory. Used on the event loop only."""

    def __init__(
        self, connection: aiosqlite.Connection, long: aiosqlite.Connection, writer: GroupWriter, kept: HistoryCache
    ) -> None:
        """Args:
        connection: Reads what is short.
        long: Reads the pages of a conversation but the first.
        writer: Says when what was seen is published.
        kept: Where commits are noted.
        """
        self._connection = connection
        self._long = long
        self._writer = writer
        self._kept = kept

    async def history(self, tenant: str, session_id: str) -> tuple[Message, ...]:
        """Returns the conversation as of one moment; see `TenantStore.history`."""
        history = self._kept.use(session_id)
        try:
            async with history.lock:
                if history.tenant in ("", tenant) and await self._follow(history, tenant, session_id):
                    check_conversation(history.size_bytes)
                    return tuple(history.messages)
        finally:
            self._kept.release(session_id, history)
        return await run(self._long, queries.history, tenant, session_id)

    async def kept_bytes(self, tenant: str, session_id: str) -> int | None:
        """Returns about how much memory the conversation takes; None when it has to be counted in the database."""
        history = self._kept.get(tenant, session_id)
        if history is None:
            return None
        size, ids = history.size_bytes, list(history.changed)
        return size + await run(self._connection, queries.history_bytes, tenant, session_id, ids) if ids else size

    async def _follow(self, history: History, tenant: str, session_id: str) -> bool:
        """Brings a history up to date. Returns False when it changes all the time."""
        for _ in range(_MAX_ROUNDS):
            if history.is_rewritten:
                await self._read_all(history, tenant, session_id)
            elif history.changed:
                await self._read_changed(history, tenant, session_id)
            else:
                return True
            # a commit that a read has seen, but that is not noted yet, may have changed other messages too
            await self._writer.published()
        return False

    async def _read_all(self, history: History, tenant: str, session_id: str) -> None:
        history.changed.clear()
        history.is_rewritten = False
        known = {message.message_id: message for message in history.messages}
        try:
            found, is_last = await run(self._connection, _page, tenant, session_id, 0, known)
            size = _size_of(found)
            while not is_last:
                page, is_last = await run(self._long, _page, tenant, session_id, found[-1][1], known)
                found += page
                size += _size_of(page)
                check_conversation(size)
        except BaseException as error:
            history.is_rewritten = True
            if isinstance(error, SessionNotFound | ConversationTooLarge):
                history.begin("", ())
            raise
        history.begin(tenant, found)

    async def _read_changed(self, history: History, tenant: str, session_id: str) -> None:
        ids = list(history.changed)[:_PAGE_MESSAGES]
        for message_id in ids:
            del history.changed[message_id]
        try:
            found = await run(self._connection, _some, tenant, session_id, ids)
        except BaseException:
            history.changed.update(dict.fromkeys(ids))
            raise
        history.take(ids, found)


def _size_of(page: _Placed) -> int:
    return sum(message_bytes(message) for message, _ in page)


def _page(
    db: sqlite3.Connection, tenant: str, session_id: str, after: int, known: Mapping[str, Message]
) -> tuple[_Placed, bool]:
    """Returns the messages after a place, as many as a page has, and whether they are the last ones.

    A message that is equal to a known one is that object: whoever compares by identity sees that it is the same.
    """
    rows = db.execute(
        f"SELECT id, place, {MESSAGE_BYTES} FROM messages"
        " WHERE session = ? AND on_path = 1 AND queued = 0 AND place > ? ORDER BY place LIMIT ?",
        (session_row(db, tenant, session_id), after, _PAGE_MESSAGES + 1),
    )
    fit, left_out = fitting(rows, lambda row: row[2], _PAGE_BYTES)
    page = fit[:_PAGE_MESSAGES]
    where = f"messages.id IN ({','.join(str(row) for row, *_ in page)})"
    messages = read_messages(db, where, (), "place")
    same = (other if other == one else one for one in messages if (other := known.get(one.message_id, one)))
    return list(zip(same, (place for _, place, _ in page), strict=True)), not left_out and len(fit) == len(page)


def _some(db: sqlite3.Connection, tenant: str, session_id: str, ids: Sequence[str]) -> _Placed:
    """Returns those of some messages that are part of the conversation, in order."""
    db.execute("BEGIN")  # so that messages and places are of the same moment
    try:
        where = f"messages.message_id IN ({','.join('?' * len(ids))}) AND session = ? AND on_path = 1 AND queued = 0"
        values = (*ids, session_row(db, tenant, session_id))
        places = [place for (place,) in db.execute(f"SELECT place FROM messages WHERE {where} ORDER BY place", values)]
        return list(zip(read_messages(db, where, values, "place"), places, strict=True))
    finally:
        db.execute("COMMIT")
