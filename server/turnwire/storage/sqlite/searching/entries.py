"""Adding to the index and removing from it. Everything here runs inside a transaction of the writing connection."""

import sqlite3
from collections.abc import Iterable, Iterator
from datetime import datetime

from turnwire.domain.conversation.messages import Message, MessageStatus
from turnwire.domain.principal import staged_for
from turnwire.domain.searching.content import searched_text
from turnwire.domain.searching.words import tokens
from turnwire.storage.sqlite.part_rows import PART_BYTES, part_of
from turnwire.storage.sqlite.reading.fitting import fitting
from turnwire.storage.sqlite.searching.facets import facets_of, indexed_words

NUMBER_BITS = 16
"""Of an entry's id, behind the second of its message. Entries of a second that has more go to the next one."""

MAX_BODY_CHARACTERS = 65_536
"""Of a part that is read again to show or remove an entry; of a larger one the entry has an excerpt."""

_LAST_SECOND = 2**38
"""After the year 9999; imported messages may have any time."""

_FINAL = frozenset(MessageStatus) - {MessageStatus.QUEUED, MessageStatus.STREAMING}

IndexRow = tuple[int, str]
"""A row of the index: its id, and its words."""

_ADD = "INSERT INTO search_entries (id, part, message, at_us, words, facets, excerpt) VALUES (?, ?, ?, ?, ?, ?, ?)"

_NEWEST = (
    "SELECT max(coalesce((SELECT max(id) FROM search_entries WHERE id BETWEEN ?1 AND ?2), ?1 - 1),"
    " coalesce((SELECT max(id) FROM search_removals WHERE id BETWEEN ?1 AND ?2), ?1 - 1))"
)

_PARTS = (
    f"SELECT part_index, parts.id, facets, {PART_BYTES}, (SELECT id FROM search_tenants WHERE tenant = ?2)"
    " FROM parts LEFT JOIN search_entries ON search_entries.part = parts.id WHERE parts.message = ?1"
)
_PART = f"{_PARTS} AND part_index = ?3"


def is_final(status: MessageStatus) -> bool:
    """Returns whether messages of a status are indexed: those that wait or stream are not."""
    return status in _FINAL


def index_message(
    db: sqlite3.Connection,
    tenant: str,
    session: int,
    message_row: int,
    message: Message,
    *,
    part_indexes: Iterable[int] | None = None,
) -> Iterator[IndexRow]:
    """Enters the parts of a message that are not in the index, unless the message waits or streams. Idempotent.

    Yields the rows for `add_rows`, which the same transaction has to add. A part that was rewritten has left the index
    (`part_rewritten`). That of a session that is stored in parts is filed for the tenant that is to own it; no search
    shows it before.

    Args:
        db: The writing connection.
        tenant: The owner of the session, or what stands in its place.
        session: The row of the session.
        message_row: The row of the message.
        message: The message with all its parts, which are stored.
        part_indexes: Those that may have left the index; None for all, as of a message that was not indexed before.
    """
    if not is_final(message.status):
        return
    owner = staged_for(tenant)
    if part_indexes is None:
        rows = db.execute(_PARTS, (message_row, owner)).fetchall()
    else:
        rows = [row for index in part_indexes for row in db.execute(_PART, (message_row, owner, index))]
    for index, part, filed, size, number in rows:
        facets = facets_of(number or tenant_number(db, owner), session, message.type, message.sender)
        if filed == facets or not (text := searched_text(message.parts[index].content)):
            continue
        if filed is not None:
            _take_out(db, part)
        entry, at_us, words = _free_id(db, message.created_at), _microseconds(message.created_at), tokens(text)
        excerpt = text if size > MAX_BODY_CHARACTERS else None
        db.execute(_ADD, (entry, part, message_row, at_us, len(words), facets, excerpt))
        yield entry, indexed_words(facets, words)


def add_rows(db: sqlite3.Connection, rows: Iterable[IndexRow]) -> None:
    """Adds rows to the index. Call it once in a transaction, last.

    FTS5 collects words in memory and writes them together. It writes them at once before each statement that SQLite may
    have to take back, as one with a trigger or RETURNING, and before a row with a lower id than the last one.
    """
    db.executemany("INSERT INTO search_index (rowid, terms) VALUES (?, ?)", sorted(rows))


def remove_some(db: sqlite3.Connection, count: int, characters: int) -> bool:
    """Takes the words of some entries that are gone out of the index. Returns whether there were any.

    A text that cannot be read any more lets the next start make the index anew.

    Args:
        db: The writing connection.
        count: Most entries.
        characters: Of their texts together, but for the last one.
    """
    found = db.execute(
        "SELECT id, facets, excerpt, body, text, output FROM search_removals ORDER BY id LIMIT ?", (count,)
    )
    rows, _ = fitting(found, lambda row: len(row[2] or row[3]) + len(row[4] or b"") + len(row[5] or b""), characters)
    for entry, facets, *stored in rows:
        try:
            text = entry_text(*stored)
        except ValueError:
            db.execute("UPDATE search_state SET version = ''")
            text = ""
        words = indexed_words(facets, tokens(text))  # FTS5 has to be told the same text again
        db.execute("INSERT INTO search_index (search_index, rowid, terms) VALUES ('delete', ?, ?)", (entry, words))
        db.execute("DELETE FROM search_removals WHERE id = ?", (entry,))
    return bool(rows)


def entry_text(excerpt: str | None, body: str, text: bytes | None, output: bytes | None) -> str:
    """Returns the text of an entry: its excerpt, or what its part says. Raises ValueError when that is damaged."""
    return searched_text(part_of(body, text, output).content) if excerpt is None else excerpt


def tenant_number(db: sqlite3.Connection, tenant: str) -> int:
    """Returns the short name of a tenant; gives it one if it has none."""
    found = known_tenant_number(db, tenant)
    if found is None:
        db.execute("INSERT INTO search_tenants (tenant) VALUES (?)", (tenant,))
        found = known_tenant_number(db, tenant)
    return found or 0


def known_tenant_number(db: sqlite3.Connection, tenant: str) -> int | None:
    """Returns the short name of a tenant; None when none of its messages was ever indexed."""
    row = db.execute("SELECT id FROM search_tenants WHERE tenant = ?", (tenant,)).fetchone()
    return None if row is None else int(row[0])


def first_id(at: datetime) -> int:
    """Returns the lowest id of the entries of a second."""
    return min(max(int(at.timestamp()), 0), _LAST_SECOND) << NUMBER_BITS


def _free_id(db: sqlite3.Connection, at: datetime) -> int:
    """Returns an id that no row of the index has."""
    first = first_id(at)
    while True:
        last = first + 2**NUMBER_BITS - 1
        (newest,) = db.execute(_NEWEST, (first, last)).fetchone()
        if newest < last:
            return int(newest) + 1
        first = last + 1


def _take_out(db: sqlite3.Connection, part: int) -> None:
    db.execute(
        "INSERT INTO search_removals (id, facets, excerpt, body, text, output)"
        " SELECT search_entries.id, facets, excerpt, CASE WHEN excerpt IS NULL THEN body END,"
        " CASE WHEN excerpt IS NULL THEN text END, CASE WHEN excerpt IS NULL THEN output END"
        " FROM search_entries JOIN parts ON parts.id = part WHERE part = ?",
        (part,),
    )
    db.execute("DELETE FROM search_entries WHERE part = ?", (part,))


def _microseconds(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
