"""Alternatives: the messages with the same one before them, that on the path and those off it."""

import sqlite3
from collections.abc import Iterable, Sequence
from operator import itemgetter

import msgspec

from turnwire.domain.conversation.messages import Message
from turnwire.domain.pages import MAX_PAGE_BYTES, decode_token, encode_token
from turnwire.ports.conversations import AlternativesOf
from turnwire.ports.pages import AlternativesPage, Page
from turnwire.storage.rows import NOT_TAKEN_BACK
from turnwire.storage.sqlite.message_rows import PARTS_BYTES, WITH_PARTS
from turnwire.storage.sqlite.reading.fitting import check_light, fitting
from turnwire.storage.sqlite.reading.pages import cut, limit_of
from turnwire.storage.sqlite.reading.rows import read_messages, session_row
from turnwire.storage.sqlite.tree import OFF_PATH, ON_PATH, branch_of

_BATCH = 500
"""Ids in one statement: SQLite takes 32,766 variables, and long statements are parsed anew."""

_LISTED = f"""
SELECT place, id, {PARTS_BYTES} FROM messages WHERE {OFF_PATH} AND previous = :previous AND place > :after
UNION ALL SELECT place, id, {PARTS_BYTES} FROM messages WHERE message_id = :on_path AND place > :after
ORDER BY place LIMIT :limit
"""

_COUNTED = f"""
SELECT one.message_id, one.on_path, one.place, one.previous, count(*), sum(other.place < one.place)
FROM messages AS one JOIN messages AS other INDEXED BY messages_off_path
    ON other.session = one.session AND other.previous = one.previous
    AND other.on_path = 0 AND other.taken_back = {NOT_TAKEN_BACK}
WHERE one.session = ? AND one.queued = 0 AND one.taken_back = {NOT_TAKEN_BACK}
    AND one.message_id IN ({{}})
GROUP BY one.id
"""


def alternatives_of(
    db: sqlite3.Connection,
    tenant: str,
    session_id: str,
    asked: AlternativesOf,
    page: Page,
    *,
    max_bytes: int | None = None,
) -> AlternativesPage:
    """Returns a page of alternatives; see `TenantStore.alternatives`. Raises HeavyRead: they have more bytes."""
    listing = f"alternatives of {session_id} {asked.message_id} {asked.previous_message_id}"
    [after] = decode_token(page.token, listing, int) if page.token else [0]
    db.execute("BEGIN")  # so that everything is of the same moment
    try:
        session = session_row(db, tenant, session_id)
        previous = _previous(db, session, asked)
        on_path, _ = shown_behind(db, session, previous) or ("", 0)
        values = {"session": session, "previous": previous, "on_path": on_path, "after": after, "limit": limit_of(page)}
        found = db.execute(_LISTED, values)
        rows, left_out = fitting(found, itemgetter(2), None if page.size is None else MAX_PAGE_BYTES)
        rows, more = cut(rows, page, left_out)
        check_light(sum(one[2] for one in rows), max_bytes)
        where = f"messages.id IN ({','.join(str(one[1]) for one in rows)})"
        messages = read_messages(db, where, (), "place", columns=WITH_PARTS)
        messages = with_alternatives(db, session, messages)
    finally:
        db.execute("COMMIT")
    return AlternativesPage(messages, on_path, encode_token(listing, rows[-1][0]) if more else "")


def _previous(db: sqlite3.Connection, session: int, asked: AlternativesOf) -> str:
    """Returns the message that the alternatives follow; "" when they begin the conversation."""
    if not asked.message_id:
        if asked.previous_message_id:
            branch_of(db, session, asked.previous_message_id)
        return asked.previous_message_id
    off_path, shown = branch_of(db, session, asked.message_id)
    one = off_path[0] if off_path else shown
    return one.previous if one is not None else ""


def has_branches(db: sqlite3.Connection, session: int) -> bool:
    """Returns whether anything is off the path of a session. Costs next to nothing."""
    query = f"SELECT 1 FROM messages WHERE {OFF_PATH} LIMIT 1"
    return db.execute(query, {"session": session}).fetchone() is not None


def alternatives(db: sqlite3.Connection, session: int, message_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Returns how many alternatives messages have, and the place of each among its own. Without those of none."""
    if not has_branches(db, session):
        return {}
    found = dict[str, tuple[int, int]]()
    for ids in _batches(list(message_ids)):
        rows = db.execute(_COUNTED.format(",".join("?" * len(ids))), (session, *ids)).fetchall()
        for message_id, on_path, place, previous, count, index in rows:
            shown = None if on_path else shown_behind(db, session, previous)
            if on_path:
                found[message_id] = count + 1, index
            elif shown is not None:
                found[message_id] = count + 1, index + (shown[1] < place)
            elif count > 1:
                found[message_id] = count, index
    return found


def with_alternatives(db: sqlite3.Connection, session: int, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Returns messages with the numbers of their alternatives."""
    found = alternatives(db, session, (message.message_id for message in messages))
    return tuple(counted(message, found) for message in messages) if found else messages


def counted(message: Message, found: dict[str, tuple[int, int]]) -> Message:
    """Returns a message with the numbers that were found of it."""
    count, index = found.get(message.message_id, (0, 0))
    return msgspec.structs.replace(message, alternative_count=count, alternative_index=index)


def shown_behind(db: sqlite3.Connection, session: int, previous: str) -> tuple[str, int] | None:
    """Returns id and place of the message on the path that directly follows another one; "" asks for the first one."""
    before = f"coalesce((SELECT place FROM messages WHERE {ON_PATH} AND message_id = :previous), 0)"
    row = db.execute(
        f"SELECT message_id, place, previous FROM messages WHERE {ON_PATH} AND place > {before} ORDER BY place LIMIT 1",
        {"session": session, "previous": previous},
    ).fetchone()
    return None if row is None or row[2] != previous else (row[0], row[1])


def _batches(message_ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (message_ids[at : at + _BATCH] for at in range(0, len(message_ids), _BATCH))
