"""Reading lists of sessions: an index has them in order, and another one those with a label or a directory.

Where few sessions have what a filter asks for, these are read and sorted; else the list goes through its order and
leaves out what does not pass.
"""

import sqlite3
from contextlib import closing
from typing import NamedTuple

import msgspec

from turnwire.domain.conversation.sessions import Session, SessionFilter, SessionOrder
from turnwire.domain.text import folded
from turnwire.storage.rows import facets_of, microseconds
from turnwire.storage.sqlite.reading.rows import SESSION_HEADER, session_of

STEP_SESSIONS = 2000
"""How many sessions a step looks at: some milliseconds, in which no other read goes on."""

STEP_BYTES = 16 * 2**20
"""How much of sessions a step reads, with the tools that lists leave out: 30 milliseconds without other reads."""

Place = tuple[int | str, str]
"""The sort key of a session, and its id."""


class Order(NamedTuple):
    """How an order is read."""

    index_name: str
    column: str
    kind: type[int] | type[str]
    """Of the column."""
    descends: bool


ORDERS = {
    SessionOrder.UPDATED: Order("sessions_by_update", "updated_at_us", int, True),
    SessionOrder.CREATED: Order("sessions_by_creation", "created_at_us", int, True),
    SessionOrder.TITLE: Order("sessions_by_title", "title_key", str, False),
}

_Key = tuple[int | str, str, int]
"""Sort key, id and row of a session."""


class Budget(NamedTuple):
    """What is wanted of a step."""

    sessions: int
    """Most sessions to find."""
    max_bytes: int | None
    """Of these sessions; None sets no limit."""


class Found(NamedTuple):
    """A session that passes the filter."""

    place: Place
    size_bytes: int
    session: Session


class Step(NamedTuple):
    """What a step has found."""

    found: list[Found]
    """In order; no more than fit, and one that does not. None has tools."""
    place: Place | None
    """Where the next step begins; None when there are no more sessions."""


def step(db: sqlite3.Connection, tenant: str, wanted: SessionFilter, place: Place | None, budget: Budget) -> Step:
    """Carries out a step of a list.

    Args:
        db: The reading connection.
        tenant: Whose sessions.
        wanted: Filter and order.
        place: Where the last step ended; None at the beginning.
        budget: How many sessions to find.
    """
    db.execute("BEGIN")  # so that everything is of the same moment
    try:
        few = _few(db, tenant, wanted, place)
        keys = few if few is not None else _next_keys(db, tenant, wanted, place, budget.sessions)
        passing = keys if few is not None else _passing(db, tenant, wanted, keys)
        found = _read(db, passing[: budget.sessions], budget.max_bytes)
        is_last = few is not None or len(keys) < _looked_at(wanted, budget.sessions)
    finally:
        db.execute("COMMIT")
    if len(found) < min(len(passing), budget.sessions):
        return Step(found, found[-1].place)
    return Step(found, None if is_last else keys[-1][:2])


def _looked_at(wanted: SessionFilter, count: int) -> int:
    return STEP_SESSIONS if wanted.leaves_out else min(count, STEP_SESSIONS)


def _few(db: sqlite3.Connection, tenant: str, wanted: SessionFilter, place: Place | None) -> list[_Key] | None:
    """Returns all sessions that pass, in order, where few have a label or the directory of the filter; else None."""
    query = "SELECT session FROM session_facets WHERE tenant = ? AND facet = ? LIMIT ?"
    for facet in facets_of(wanted.directory, wanted.labels):
        rows = [row for (row,) in db.execute(query, (tenant, facet, STEP_SESSIONS + 1))]
        if len(rows) <= STEP_SESSIONS:
            return _sorted(_of_rows(db, tenant, wanted, rows), wanted, place)
    return None


def _sorted(keys: list[_Key], wanted: SessionFilter, place: Place | None) -> list[_Key]:
    descends = ORDERS[wanted.order].descends
    # both halves of a place are of one kind each, which no type can say
    behind = [key for key in keys if place is None or (key[:2] < place if descends else key[:2] > place)]
    return sorted(behind, reverse=descends)


def _next_keys(
    db: sqlite3.Connection, tenant: str, wanted: SessionFilter, place: Place | None, count: int
) -> list[_Key]:
    """Returns the next sessions in the order of an index, whether or not they pass the rest of the filter."""
    order = ORDERS[wanted.order]
    where, parameters = (
        f"INDEXED BY {order.index_name} WHERE state = 'live' AND tenant = ? AND archived = ?",
        list[object](),
    )
    if place is not None:
        where += f" AND ({order.column}, session_id) {'<' if order.descends else '>'} (?, ?)"
        parameters += place
    if wanted.updated_since is not None and wanted.order is SessionOrder.UPDATED:
        where += " AND updated_at_us >= ?"
        parameters.append(microseconds(wanted.updated_since))
    states = (0, 1) if wanted.archived is None else (int(wanted.archived),)
    branches = " UNION ALL ".join(
        f"SELECT {order.column} AS sort_key, session_id AS name, id FROM sessions {where}" for _ in states
    )
    word = "DESC" if order.descends else "ASC"
    values = [value for state in states for value in (tenant, state, *parameters)]
    query = f"{branches} ORDER BY sort_key {word}, name {word} LIMIT ?"
    return db.execute(query, (*values, _looked_at(wanted, count))).fetchall()


def _passing(db: sqlite3.Connection, tenant: str, wanted: SessionFilter, keys: list[_Key]) -> list[_Key]:
    if not wanted.leaves_out:
        return keys
    rows = {row for _, _, row in _of_rows(db, tenant, wanted, [key[2] for key in keys])}
    return [key for key in keys if key[2] in rows]


def _of_rows(db: sqlite3.Connection, tenant: str, wanted: SessionFilter, rows: list[int]) -> list[_Key]:
    """Returns those of some sessions that pass the whole filter, in any order."""
    where, parameters = "", list[object]()
    for facet in facets_of(wanted.directory, wanted.labels):
        where += " AND EXISTS (SELECT 1 FROM session_facets WHERE tenant = ? AND facet = ? AND session = sessions.id)"
        parameters += (tenant, facet)
    if wanted.archived is not None:
        where += " AND archived = ?"
        parameters.append(int(wanted.archived))
    if wanted.updated_since is not None:
        where += " AND updated_at_us >= ?"
        parameters.append(microseconds(wanted.updated_since))
    if wanted.title_text:
        where += " AND instr(title_key, ?) > 0"
        parameters.append(folded(wanted.title_text))
    query = (
        f"SELECT {ORDERS[wanted.order].column}, session_id, sessions.id FROM json_each(?)"
        f" CROSS JOIN live_sessions AS sessions ON sessions.id = json_each.value WHERE true{where}"
    )
    return db.execute(query, (_json(rows), *parameters)).fetchall()


def _read(db: sqlite3.Connection, keys: list[_Key], max_bytes: int | None) -> list[Found]:
    query = (  # in the order of the keys
        f"SELECT length(CAST(body AS BLOB)), {SESSION_HEADER}"
        " FROM json_each(?) CROSS JOIN sessions ON sessions.id = json_each.value"
    )
    found, total, read = list[Found](), 0, 0
    with closing(db.execute(query, (_json([key[2] for key in keys]),))) as rows:
        for (sort_key, session_id, _), (body_bytes, header, *columns) in zip(keys, rows, strict=False):
            session = session_of(header, *columns)
            size = _listed_bytes(header, session)
            found.append(Found((sort_key, session_id), size, session))
            total, read = total + size, read + body_bytes
            if read > STEP_BYTES or (max_bytes is not None and total > max_bytes):
                break
    return found


def _listed_bytes(header: str, session: Session) -> int:
    """Returns what a session counts in a list: no less than its bytes in an answer, whatever its state.

    An answer has a title that was set and the directory twice. All else is longer as JSON, but for the lengths of large
    labels.
    """
    return len((header + session.shown_title + session.directory).encode()) + 4 * len(session.labels)


def _json(rows: list[int]) -> str:
    return msgspec.json.encode(rows).decode()
