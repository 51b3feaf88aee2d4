"""Alternatives: the messages with the same message before them, on the path and off it."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

import msgspec

from turnwire.domain.conversation.messages import Message
from turnwire.domain.errors import MessageNotFound
from turnwire.domain.pages import decode_token, encode_token
from turnwire.ports.conversations import AlternativesOf
from turnwire.ports.pages import AlternativesPage, Page
from turnwire.ports.store import MAX_RESTORABLE
from turnwire.storage.rows import NOT_TAKEN_BACK, Row
from turnwire.storage.sql.columns import PARTS_BYTES, WITH_PARTS, read_messages, session_row
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.pages import check_light, fitting_page, limit_of

ON_PATH = "session = ? AND on_path = 1 AND queued = 0"
"""Messages on the path, as SQL."""

OFF_PATH = f"session = ? AND on_path = 0 AND taken_back = {NOT_TAKEN_BACK}"
"""Messages off the path that can be chosen, as SQL. SQLite uses the index `messages_off_path` for this wording only."""

_BATCH = 500
"""Ids in one statement, so that no list of them is long and other reads run between two statements."""


_UNDO = """
SELECT undos.sequence, undos.first FROM undos JOIN sessions ON sessions.id = undos.session
WHERE undos.session = ? AND undos.sequence > sessions.branched_at
AND undos.sequence > (SELECT coalesce(max(start_sequence), 0) FROM turns WHERE turns.session = undos.session)
ORDER BY undos.sequence DESC LIMIT 1
"""
"""Finds the undo that a restore would revert. `storage/sql/tree.py` has the same condition."""


class TreeRow(NamedTuple):
    """A message in the tree of its session; see `storage/sql/tree.py`."""

    id: int
    message_id: str
    place: int
    previous: str
    on_path: int
    taken_back: int
    queued: int
    turn_id: str
    branch_turn: str | None

    @property
    def is_on_path(self) -> bool:
        """Whether it is part of the conversation."""
        return bool(self.on_path) and not self.queued


TREE_ROW = ", ".join(f"messages.{name}" for name in TreeRow._fields)
"""The columns of a `TreeRow`."""

_UP = f"""
WITH RECURSIVE up ({", ".join(TreeRow._fields)}) AS (
    SELECT {TREE_ROW} FROM messages WHERE message_id = ? AND session = ?
    UNION ALL
    SELECT {TREE_ROW} FROM up JOIN messages ON messages.message_id = up.previous
    WHERE up.on_path = 0 AND up.taken_back = {NOT_TAKEN_BACK} AND up.previous <> '' AND messages.session = ?
)
SELECT * FROM up
"""
"""A message and those before it, up to the first one that is on the path or was taken back."""

_LISTED = f"""
SELECT place, id, {PARTS_BYTES} FROM messages WHERE {OFF_PATH} AND previous = ? AND place > ?
UNION ALL SELECT place, id, {PARTS_BYTES} FROM messages WHERE message_id = ? AND place > ?
ORDER BY place LIMIT ?
"""

_COUNTED = f"""
WITH one AS (
    SELECT message_id, on_path, place, session, previous,
        lag(place) OVER siblings AS since, lead(place) OVER siblings AS until
    FROM messages WHERE session = ? AND queued = 0 AND taken_back = {NOT_TAKEN_BACK} AND message_id {{among}}
    WINDOW siblings AS (PARTITION BY previous ORDER BY place)
)
SELECT previous, message_id, on_path, place,
    ({{others}} AND other.place >= coalesce(since, 0) AND other.place < one.place),
    CASE WHEN until IS NULL THEN ({{others}} AND other.place >= one.place) ELSE 0 END
FROM one ORDER BY previous, place
"""
"""Counts the alternatives off the path between each message and the one before it of those that share them, and behind
the last of these: so each is counted once, however many of the messages share it."""

_OTHERS = f"""SELECT count(*) FROM messages AS other {{hint}}
    WHERE other.session = one.session AND other.previous = one.previous
    AND other.on_path = 0 AND other.taken_back = {NOT_TAKEN_BACK}"""


def branch_of(db: Database, session: int, message_id: str) -> tuple[list[TreeRow], TreeRow | None]:
    """Returns a message and those before it that are off the path, last first, and the one on the path before them.

    Raises:
        MessageNotFound: the message does not exist or waits, or it or one before it was taken back.
    """
    rows = [TreeRow(*row) for row in db.rows(_UP, (message_id, session, session))]
    if not rows:
        raise MessageNotFound(message_id)
    last = rows[-1]
    if last.is_on_path:
        return rows[:-1], last
    if not last.on_path and last.taken_back == NOT_TAKEN_BACK and not last.previous:
        return rows, None
    raise MessageNotFound(message_id)


def alternatives_of(
    db: Database, tenant: str, session_id: str, asked: AlternativesOf, page: Page, *, max_bytes: int | None = None
) -> AlternativesPage:
    """Returns a page of alternatives; see `TenantStore.alternatives`. Raises HeavyRead: they have more bytes."""
    listing = f"alternatives of {session_id} {asked.message_id} {asked.previous_message_id}"
    [after] = decode_token(page.token, listing, int) if page.token else [0]
    with db.snapshot():
        session = session_row(db, tenant, session_id)
        previous = _previous(db, session, asked)
        on_path, _ = shown_behind(db, session, previous) or ("", 0)
        found = db.each(_LISTED, (session, previous, after, on_path, after, limit_of(page)))
        rows, more = fitting_page(found, itemgetter(2), page)
        check_light(sum(one[2] for one in rows), max_bytes)
        ids = db.dialect.keys([one[1] for one in rows])
        messages = read_messages(db, f"messages.id {db.dialect.among}", (ids,), "place", columns=WITH_PARTS)
        messages = with_alternatives(db, session, messages)
    return AlternativesPage(messages, on_path, encode_token(listing, rows[-1][0]) if more else "")


def _previous(db: Database, session: int, asked: AlternativesOf) -> str:
    """Returns the message that the alternatives follow; "" when they begin the conversation."""
    if not asked.message_id:
        if asked.previous_message_id:
            branch_of(db, session, asked.previous_message_id)
        return asked.previous_message_id
    off_path, shown = branch_of(db, session, asked.message_id)
    one = off_path[0] if off_path else shown
    return one.previous if one is not None else ""


def has_branches(db: Database, session: int) -> bool:
    """Returns whether anything is off the path of a session. Costs next to nothing."""
    return db.row(f"SELECT 1 FROM messages WHERE {OFF_PATH} LIMIT 1", (session,)) is not None


def alternatives(db: Database, session: int, message_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Returns the number of alternatives, and the index among them, of the messages that have any."""
    if not has_branches(db, session):
        return {}
    found = dict[str, tuple[int, int]]()
    others = _OTHERS.format(hint=db.dialect.hint("messages_off_path"))
    counted = _COUNTED.format(others=others, among=db.dialect.among)
    for ids in _batches(list(message_ids)):
        rows = db.rows(counted, (session, db.dialect.keys(ids)))
        for previous, siblings in itertools.groupby(rows, itemgetter(0)):
            found.update(_numbered(db, session, previous, list(siblings)))
    return found


def _numbered(db: Database, session: int, previous: str, siblings: list[Row]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yields the numbers of messages with the same one before them, as `_COUNTED` finds them."""
    count, index = sum(since + behind for *_, since, behind in siblings), 0
    shown = shown_behind(db, session, previous) if count and not all(row[2] for row in siblings) else None
    for _, message_id, on_path, place, since, _ in siblings:
        index += since
        if count and on_path:
            yield message_id, (count + 1, index)
        elif shown is not None:
            yield message_id, (count + 1, index + (shown[1] < place))
        elif count > 1:
            yield message_id, (count, index)


def with_alternatives(db: Database, session: int, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Returns messages with the numbers of their alternatives."""
    found = alternatives(db, session, (message.message_id for message in messages))
    return tuple(counted(message, found) for message in messages) if found else messages


def counted(message: Message, found: dict[str, tuple[int, int]]) -> Message:
    """Returns a message with the numbers found for it."""
    count, index = found.get(message.message_id, (0, 0))
    return msgspec.structs.replace(message, alternative_count=count, alternative_index=index)


def shown_behind(db: Database, session: int, previous: str) -> tuple[str, int] | None:
    """Returns id and place of the message on the path that follows another one; "" is the beginning."""
    before = f"coalesce((SELECT place FROM messages WHERE {ON_PATH} AND message_id = ?), 0)"
    row = db.row(
        f"SELECT message_id, place, previous FROM messages WHERE {ON_PATH} AND place > {before} ORDER BY place LIMIT 1",
        (session, session, previous),
    )
    return None if row is None or row[2] != previous else (row[0], row[1])


def _batches(message_ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (message_ids[at : at + _BATCH] for at in range(0, len(message_ids), _BATCH))


def restorable(db: Database, tenant: str, session_id: str) -> tuple[str, ...]:
    """Returns what would be restored; see `TenantStore.restorable`."""
    session = session_row(db, tenant, session_id)
    with db.snapshot():
        undo = db.row(_UNDO, (session,))
        if undo is None:
            return ()
        sequence, first = undo
        taken_back = (
            "SELECT message_id FROM messages WHERE session = ? AND on_path = 0 AND taken_back = ?"
            " AND (previous <> '' OR message_id = ?) ORDER BY place LIMIT ?"
        )
        rows = db.rows(taken_back, (session, NOT_TAKEN_BACK + sequence, first, MAX_RESTORABLE))
        return tuple(message_id for (message_id,) in rows)
