"""Pages of the log: events with the present content of the rows of their messages and turns."""

import itertools
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import msgspec

from turnwire.domain.conversation.events import Event, SessionDeleted
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import SessionNotFound
from turnwire.ports.codec import Codec
from turnwire.ports.pages import Bounds, EventPage, PrunedSession
from turnwire.storage.rows import KINDS, Facts, is_of_turn, kind_of, moment, turn_of, unpacked
from turnwire.storage.sql.alternatives import alternatives, counted, with_alternatives
from turnwire.storage.sql.columns import MESSAGE_BYTES, TURN_HEADER, WITH_PARTS, number, one_session, read_messages
from turnwire.storage.sql.database import Database, Dialect
from turnwire.storage.sql.pages import HeavyRead
from turnwire.storage.sql.sessions import removed_sessions

PAGE_BYTES = 64 * 1024
"""Size of a page: about one write to a watcher; more would only wait in memory."""

PAGE_EVENTS = 256
"""Maximum events made for one page, so that other reads wait for it no longer than some milliseconds."""

AT_ONCE = 64
"""Number of events whose subjects are read together."""

SMALL_BYTES = 16 * 1024
"""Size up to which messages are read together: a mebibyte of all together at most."""

_HEADS = f"""
SELECT message_id, sessions.session_id, messages.session, branched_at, {MESSAGE_BYTES}
FROM messages JOIN sessions ON sessions.id = messages.session WHERE message_id {{among}}
"""

_LOG_STATE = """
SELECT pruned_through, coalesce((SELECT timeline FROM timelines ORDER BY id DESC LIMIT 1), '') FROM log_state
"""

COLUMNS = "session_id, sequence, at_us, turn_id, kind, message_id, facts"
"""The columns that `_logged` takes."""


class Logged(msgspec.Struct, frozen=True):
    """A row of the log."""

    session_id: str
    sequence: int
    at_us: int
    turn_id: str
    kind: str
    message_id: str
    facts: bytes


def _logged(  # noqa: PLR0917 - the columns
    session_id: str, sequence: int, at_us: int, turn: bytes | str, kind: int, message: bytes | str, facts: bytes
) -> Logged:
    ids = unpacked("trn", turn), unpacked("msg", message)
    return Logged(session_id, sequence, at_us, ids[0], KINDS[kind], ids[1], facts)


def _of_tenant(dialect: Dialect) -> str:
    """Returns SQL for a tenant's events by position. SQLite must not scan the table, which has the events of all."""
    return f"FROM events {dialect.hint('events_of_tenants')} WHERE tenant = ?"


def session_bounds(db: Database, tenant: str, session_id: str) -> Bounds:
    """Returns the range of kept sequences; see `TenantStore.session_bounds`."""
    row = db.row(f"SELECT pruned_through, head_sequence {one_session(db.dialect)}", (tenant, session_id))
    if row is None:
        raise SessionNotFound(session_id)
    return Bounds(*row)


def log_bounds(db: Database, tenant: str) -> Bounds:
    """Returns the range of kept positions; see `TenantStore.log_bounds`."""
    newest = f"SELECT position {_of_tenant(db.dialect)} AND position < ? ORDER BY position DESC LIMIT 1"
    query = f"SELECT pruned_through, coalesce(({newest}), 0), newest_dropped FROM log_state"
    with db.snapshot():
        horizon = db.horizon()
        [(pruned, last, dropped)] = db.rows(query, (tenant, horizon))
    return Bounds(pruned, max(pruned, last, min(dropped, horizon - 1)))


def session_events(
    db: Database,
    tenant: str,
    session_id: str,
    after: int,
    *,
    codec: Codec,
    kinds: frozenset[str] | None,
    max_bytes: int | None = None,
) -> EventPage:
    """Returns a page of a session's events; see `TenantStore.session_events`.

    With `max_bytes` it ends before an event that is about more than that; raises HeavyRead when that is the first one.
    """
    query = (
        f"SELECT sequence, {COLUMNS} FROM events {db.dialect.hint('events_in_order')}"
        " WHERE session_id = ? AND sequence > ? AND tenant = ? ORDER BY sequence"
    )
    with db.snapshot():
        earliest = number(db, f"SELECT pruned_through {one_session(db.dialect)}", (tenant, session_id))
        rows = db.each(query, (session_id, max(after, earliest), tenant))
        events, frames, last = _made(db, codec, rows, kinds, max_bytes)
    return EventPage(events, frames, last or after, earliest)


def log_events(
    db: Database,
    tenant: str,
    after: int,
    *,
    codec: Codec,
    kinds: frozenset[str] | None,
    max_bytes: int | None = None,
) -> EventPage:
    """Returns a page of all events; see `TenantStore.log_events`, and `session_events` for `max_bytes`."""
    newer = (
        f"SELECT session_id, pruned_through, pruned_position FROM sessions {db.dialect.hint('sessions_pruned')}"
        " WHERE state = 'live' AND tenant = ? AND pruned_position > 0 AND pruned_position > ?"
    )
    query = f"SELECT position, {COLUMNS} {_of_tenant(db.dialect)} AND position > ? AND position < ? ORDER BY position"
    with db.snapshot():
        [(pruned, timeline)] = db.rows(_LOG_STATE)
        lost = tuple(PrunedSession(*row) for row in db.rows(newer, (tenant, after)))
        horizon = db.horizon()
        rows = db.each(query, (tenant, max(after, pruned), horizon))
        events, frames, last = _made(db, codec, rows, kinds, max_bytes, of_all=True)
    return EventPage(events, frames, last or after, pruned, lost, settled=last or horizon - 1, timeline=timeline)


def _made(
    db: Database,
    codec: Codec,
    rows: Generator[Any],
    kinds: frozenset[str] | None,
    max_bytes: int | None,
    *,
    of_all: bool = False,
) -> tuple[tuple[Event, ...], tuple[bytes, ...], int]:
    """Returns the events of a page, their frames, and the position of the last one; 0 without events.

    In a page of all sessions events have their positions. Reads events of all kinds until the page is full, so that a
    filter does not block other readers. Of a session that is being removed only the last event is replayed, as if all
    others were gone.
    """
    events, frames, size, last, removed = list[Event](), list[bytes](), 0, 0, removed_sessions(db)
    subjects = Subjects(db, max_bytes)
    with closing(rows):
        while some := [(order, _logged(*columns)) for order, *columns in itertools.islice(rows, AT_ONCE)]:
            wanted = [_is_replayed(logged, removed) and (kinds is None or logged.kind in kinds) for _, logged in some]
            subjects.read([logged for (_, logged), is_wanted in zip(some, wanted, strict=True) if is_wanted])
            for (order, logged), is_wanted in zip(some, wanted, strict=True):
                try:
                    event = event_of(subjects, logged, int(order) if of_all else 0) if is_wanted else None
                except HeavyRead:
                    if not last:
                        raise
                    return tuple(events), tuple(frames), last
                last = int(order)
                size += len(logged.facts)
                if event is not None:
                    events.append(event)
                    frames.append(codec.encode_event(event))
                    size += len(frames[-1])
                if size >= PAGE_BYTES or len(frames) >= PAGE_EVENTS:
                    return tuple(events), tuple(frames), last
    return tuple(events), tuple(frames), last


def _is_replayed(logged: Logged, removed: frozenset[str]) -> bool:
    return logged.session_id not in removed or logged.kind == SessionDeleted.__name__


class _Head(NamedTuple):
    """The header of a message, known before the message is read."""

    session_id: str
    session: int
    branched_at: int
    size_bytes: int


class Subjects:
    """The messages and turns of events, each read once, because a message of a thousand calls has thousands of events.

    Small ones are read together for several events, because PostgreSQL would otherwise get a query for each of them.
    """

    def __init__(self, db: Database, max_bytes: int | None = None) -> None:
        """Takes the connection, in the snapshot that reads the events, and the bytes of a light message."""
        self._db = db
        self._max_bytes = max_bytes
        self._heads = dict[str, _Head]()
        self._small = dict[str, Message]()
        self._turns = dict[str, tuple[str, Turn]]()
        self._large: Message | None = None  # the one that was read last

    def read(self, logged: Sequence[Logged]) -> None:
        """Reads the subjects of further events; `message` and `turn` then know only these."""
        among, keys = self._db.dialect.among, self._db.dialect.keys
        self._heads.clear()
        self._small.clear()
        self._turns.clear()
        if message_ids := {one.message_id for one in logged if one.message_id}:
            heads = self._db.rows(_HEADS.format(among=among), (keys(message_ids),))
            self._heads.update((message_id, _Head(*head)) for message_id, *head in heads)
        if small := {name: head for name, head in self._heads.items() if head.size_bytes <= SMALL_BYTES}:
            where = f"messages.message_id {among}"
            found = read_messages(self._db, where, (keys(small),), "messages.id", columns=WITH_PARTS)
            numbers = dict[str, tuple[int, int]]()
            for session in {head.session for head in small.values() if head.branched_at}:
                names = [name for name, head in small.items() if head.session == session]
                numbers.update(alternatives(self._db, session, names))
            found = tuple(counted(message, numbers) for message in found) if numbers else found
            self._small.update((message.message_id, message) for message in found)
        if turn_ids := {one.turn_id for one in logged if not one.message_id and is_of_turn(one.kind)}:
            turns = self._db.rows(f"SELECT {TURN_HEADER} FROM turns WHERE turn_id {among}", (keys(turn_ids),))
            self._turns.update((row[0], (row[1], turn_of(*row))) for row in turns)

    def message(self, session_id: str, message_id: str) -> Message | None:
        """Returns a message; None when it is gone, in case another session now has a message of this id.

        Raises HeavyRead: it has more bytes.
        """
        head = self._heads.get(message_id)
        if head is None or head.session_id != session_id:
            return None
        if self._max_bytes is not None and head.size_bytes > self._max_bytes:
            raise HeavyRead
        if message_id in self._small:
            return self._small[message_id]
        if self._large is None or self._large.message_id != message_id:
            found = read_messages(self._db, "messages.message_id = ?", (message_id,), "place", columns=WITH_PARTS)
            [self._large] = with_alternatives(self._db, head.session, found) if head.branched_at else found
        return self._large

    def turn(self, session_id: str, turn_id: str) -> Turn | None:
        """Returns a turn without its settings; None when it is gone."""
        owner, turn = self._turns.get(turn_id, ("", None))
        return turn if owner == session_id else None


def event_of(subjects: Subjects, logged: Logged, position: int) -> Event | None:
    """Returns a stored event; None when its subject is gone and it means nothing without it.

    `position` is that of the event; 0 leaves it out.

    Raises:
        HeavyRead: its message has more bytes.
        ValueError: the log is damaged.
    """
    subject: Message | Turn | None = None
    if logged.message_id:
        subject = subjects.message(logged.session_id, logged.message_id)
    elif is_of_turn(logged.kind):
        subject = subjects.turn(logged.session_id, logged.turn_id)
    facts, at = Facts(logged.kind, logged.message_id, logged.facts), moment(logged.at_us)
    kind = kind_of(facts, logged.session_id, at, subject)
    if kind is None:
        return None
    return Event(
        session_id=logged.session_id,
        kind=kind,
        at=at,
        turn_id=logged.turn_id,
        sequence=logged.sequence,
        position=position,
    )
