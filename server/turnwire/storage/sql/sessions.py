"""Sessions: single ones, some by their ids, and lists.

An index has the sessions of a tenant in an order, and another one those with a label or a directory. If few sessions
have what a filter requires, these are read and sorted; else the list follows its order and leaves out what does not
pass, in steps that examine a bounded number of sessions each, so that no other read waits for long.
"""

import hashlib
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, cast

import msgspec

from turnwire.domain.conversation.sessions import Session, SessionFilter, SessionOrder
from turnwire.domain.errors import AnswerTooLarge, SessionNotFound
from turnwire.domain.pages import MAX_PAGE_BYTES, decode_token, encode_token
from turnwire.domain.principal import Principal
from turnwire.domain.text import folded
from turnwire.ports.moving.sessions import SessionNames
from turnwire.ports.pages import Page, SessionPage
from turnwire.ports.store import StoredRequest
from turnwire.storage.rows import facets_of, microseconds
from turnwire.storage.sql.columns import SESSION_COLUMNS, number, one_session, session_header, session_of, total
from turnwire.storage.sql.database import Database

DELETING = "FROM sessions WHERE state <> 'live' AND state = 'deleting'"
"""Sessions that are being removed. The first condition is that of the index."""

STEP_SESSIONS = 2000
"""Sessions that a step examines: some milliseconds, in which no other read runs."""

STEP_BYTES = 16 * 2**20
"""Maximum bytes of sessions that a step reads, with the tools that lists leave out: 30 milliseconds without other
reads."""

MAX_STEPS = 10
"""Maximum reads for one page that has a size. A page that has not found enough by then is short, and has a next one."""

Place = tuple[int | str, str]
"""The sort key of a session, and its id."""


class Order(NamedTuple):
    """The index and the column of an order."""

    index_name: str
    column: str
    kind: type[int] | type[str]
    """The type of the column."""
    descends: bool


ORDERS = {
    SessionOrder.UPDATED: Order("sessions_by_update", "updated_at_us", int, True),
    SessionOrder.CREATED: Order("sessions_by_creation", "created_at_us", int, True),
    SessionOrder.TITLE: Order("sessions_by_title", "title_key", str, False),
}

_Key = tuple[int | str, str, int]
"""Sort key, id and row of a session."""


def session(db: Database, tenant: str, session_id: str) -> Session:
    """Returns a session; see `TenantStore.session`."""
    row = db.row(f"SELECT {SESSION_COLUMNS} {one_session(db.dialect)}", (tenant, session_id))
    if row is None:
        raise SessionNotFound(session_id)
    return session_of(*row)


def known_sessions(db: Database, tenant: str, session_ids: Sequence[str]) -> tuple[Session, ...]:
    """Returns those of some sessions that exist; see `TenantStore.known_sessions`."""
    query = f"SELECT {SESSION_COLUMNS} {one_session(db.dialect)}"
    rows = (db.row(query, (tenant, one)) for one in session_ids)
    return tuple(session_of(*row) for row in rows if row)


def session_ids(db: Database, tenant: str) -> tuple[str, ...]:
    """Returns the ids of a tenant's sessions; see `TenantStore.session_ids`."""
    query = "SELECT session_id FROM live_sessions WHERE tenant = ? ORDER BY created_at_us, session_id"
    return tuple(session_id for (session_id,) in db.rows(query, (tenant,)))


def removed_sessions(db: Database) -> frozenset[str]:
    """Returns the ids of sessions that are being removed: of their events only the last is read."""
    return frozenset(session_id for (session_id,) in db.rows(f"SELECT session_id {DELETING}"))


def is_taken(db: Database, tenant: str, names: SessionNames) -> bool:
    """Returns whether something has one of these ids; see `TenantStore.is_taken`."""
    session = (
        "SELECT 1 FROM sessions WHERE session_id = ?"
        " UNION ALL SELECT 1 FROM events WHERE session_id = ? AND tenant <> ? LIMIT 1"
    )
    if names.session_id and db.row(session, (names.session_id, names.session_id, tenant)):
        return True
    for table, column, ids in (
        ("turns", "turn_id", names.turn_ids),
        ("messages", "message_id", names.message_ids),
        ("tool_calls", "tool_call_id", names.call_ids),
    ):
        query = f"SELECT 1 FROM {table} WHERE {column} {db.dialect.among} LIMIT 1"
        if ids and db.row(query, (db.dialect.keys(ids),)):
            return True
    return False


def request(db: Database, principal: Principal, request_id: str) -> StoredRequest | None:
    """Returns the remembered answer to a request; see `Store.request`."""
    query = (
        "SELECT fingerprint, receipt, before_sequence FROM requests"
        " WHERE tenant = ? AND subject = ? AND request_id = ?"
        " AND EXISTS (SELECT 1 FROM live_sessions WHERE id = requests.session)"
        " UNION ALL SELECT fingerprint, receipt, 0 FROM uploads"
        " WHERE tenant = ? AND subject = ? AND request_id = ? AND request_id <> ''"
    )
    row = db.row(query, (principal.tenant, principal.subject, request_id) * 2)
    return StoredRequest(*row) if row else None


# lists


class StepLimits(NamedTuple):
    """The limits of a step."""

    sessions: int
    """Maximum number of sessions to find."""
    max_bytes: int | None
    """Maximum size of these sessions; None sets no limit."""


class Found(NamedTuple):
    """A session that passes the filter."""

    place: Place
    size_bytes: int
    session: Session


class Step(NamedTuple):
    """The result of a step."""

    found: list[Found]
    """In order; those that fit, and one that does not. Without tools."""
    place: Place | None
    """The position where the next step begins; None without further sessions."""


Look = Callable[[SessionFilter, Place | None, StepLimits], Awaitable[Step]]
"""Carries out a step."""


class _Filling:
    """A page while it is filled. `max_bytes` is what is left of its bytes; None sets no limit."""

    def __init__(self, page: Page) -> None:
        self.size = page.size
        self.max_bytes = page.max_bytes if page.size is None else MAX_PAGE_BYTES
        self.sessions: list[Session] = []
        self.last: Place | None = None
        self.leaves_out = False

    @property
    def count(self) -> int:
        """Number of sessions to find: one more than are missing, to see whether there is a next page."""
        return STEP_SESSIONS if self.size is None else self.size - len(self.sessions) + 1

    def add(self, found: Found) -> None:
        """Adds a session, or notes that it does not fit. Raises AnswerTooLarge if it does not fit alone."""
        fits = self.max_bytes is None or found.size_bytes <= self.max_bytes
        if self.leaves_out or len(self.sessions) == self.size or (not fits and self.sessions):
            self.leaves_out = True
            return
        if not fits and self.size is None and self.max_bytes is not None:
            raise AnswerTooLarge(found.size_bytes, self.max_bytes)
        self.sessions.append(found.session)
        self.last = found.place
        self.max_bytes = None if self.max_bytes is None else self.max_bytes - found.size_bytes


async def session_page(look: Look, tenant: str, wanted: SessionFilter, page: Page) -> SessionPage:
    """Returns a page of sessions; see `TenantStore.sessions`."""
    name = _listing(tenant, wanted)
    place: Place | None = None
    if page.token:
        place = cast(Place, decode_token(page.token, name, ORDERS[wanted.order].kind, str))
    filling, steps = _Filling(page), 0
    while True:
        step = await look(wanted, place, StepLimits(filling.count, filling.max_bytes))
        for found in step.found:
            filling.add(found)
        place, steps = step.place, steps + 1
        if filling.leaves_out or place is None or (page.size is not None and steps == MAX_STEPS):
            break
    if page.size is None:
        return SessionPage(tuple(filling.sessions), "", filling.leaves_out)
    goes_on_at = filling.last if filling.leaves_out else place
    token = "" if goes_on_at is None else encode_token(name, *goes_on_at)
    return SessionPage(tuple(filling.sessions), token)


def _listing(tenant: str, wanted: SessionFilter) -> str:
    """Returns the listing to which a page token belongs."""
    digest = hashlib.sha256(msgspec.json.encode(wanted, order="deterministic")).hexdigest()
    return f"sessions of {tenant} {digest[:32]}"


def step(db: Database, tenant: str, wanted: SessionFilter, place: Place | None, budget: StepLimits) -> Step:
    """Carries out a step of a list, from where the last one ended; None at the beginning."""
    with db.snapshot():
        few = _few(db, tenant, wanted, place)
        keys = few if few is not None else _next_keys(db, tenant, wanted, place, budget.sessions)
        passing = keys if few is not None else _passing(db, tenant, wanted, keys)
        found = _read(db, passing[: budget.sessions], budget.max_bytes)
        is_last = few is not None or len(keys) < _looked_at(wanted, budget.sessions)
    if len(found) < min(len(passing), budget.sessions):
        return Step(found, found[-1].place)
    return Step(found, None if is_last else keys[-1][:2])


def _looked_at(wanted: SessionFilter, count: int) -> int:
    return STEP_SESSIONS if wanted.leaves_out else min(count, STEP_SESSIONS)


def _few(db: Database, tenant: str, wanted: SessionFilter, place: Place | None) -> list[_Key] | None:
    """Returns all sessions that pass, in order, if few have a label or the directory of the filter; else None."""
    query = "SELECT session FROM session_facets WHERE tenant = ? AND facet = ? LIMIT ?"
    for facet in facets_of(wanted.directory, wanted.labels):
        rows = [row for (row,) in db.rows(query, (tenant, facet, STEP_SESSIONS + 1))]
        if len(rows) <= STEP_SESSIONS:
            return _sorted(_of_rows(db, tenant, wanted, rows), wanted, place)
    return None


def _sorted(keys: list[_Key], wanted: SessionFilter, place: Place | None) -> list[_Key]:
    descends = ORDERS[wanted.order].descends
    # both halves of a place are of one kind each, which no type can express
    behind = [key for key in keys if place is None or (key[:2] < place if descends else key[:2] > place)]
    return sorted(behind, reverse=descends)


def _next_keys(db: Database, tenant: str, wanted: SessionFilter, place: Place | None, count: int) -> list[_Key]:
    """Returns the next sessions in the order of an index, whether or not they pass the rest of the filter."""
    order, word = ORDERS[wanted.order], "DESC" if ORDERS[wanted.order].descends else "ASC"
    where = f"{db.dialect.hint(order.index_name)} WHERE state = 'live' AND tenant = ? AND archived = ?"
    parameters = list[object]()
    columns, first = f"{order.column} AS sort_key, session_id AS name, id", ""
    if order.kind is str and db.dialect.beginning is not None:
        columns, first = f"{columns}, {db.dialect.beginning(order.column)} AS beginning", f"beginning {word}, "
        if place is not None:
            where += f" AND {db.dialect.beginning(order.column)} >= {db.dialect.beginning('CAST(? AS text)')}"
            parameters.append(place[0])
    if place is not None:
        where += f" AND ({order.column}, session_id) {'<' if order.descends else '>'} (?, ?)"
        parameters += place
    if wanted.updated_since is not None and wanted.order is SessionOrder.UPDATED:
        where += " AND updated_at_us >= ?"
        parameters.append(microseconds(wanted.updated_since))
    states = (0, 1) if wanted.archived is None else (int(wanted.archived),)
    branch, looked_at = f"SELECT {columns} FROM sessions {where}", _looked_at(wanted, count)
    ordered = f"ORDER BY {first}sort_key {word}, name {word} LIMIT ?"
    if not db.dialect.merges_branches:
        branch = f"SELECT * FROM ({branch} {ordered}) AS branch"
        parameters.append(looked_at)
    values = [value for state in states for value in (tenant, state, *parameters)]
    query = f"{' UNION ALL '.join([branch] * len(states))} {ordered}"
    return cast(list[_Key], [row[:3] for row in db.rows(query, (*values, looked_at))])


def _passing(db: Database, tenant: str, wanted: SessionFilter, keys: list[_Key]) -> list[_Key]:
    if not wanted.leaves_out:
        return keys
    rows = {row for _, _, row in _of_rows(db, tenant, wanted, [key[2] for key in keys])}
    return [key for key in keys if key[2] in rows]


def _of_rows(db: Database, tenant: str, wanted: SessionFilter, rows: list[int]) -> list[_Key]:
    """Returns those of some sessions that pass the complete filter, in any order."""
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
        where += f" AND {db.dialect.contains('title_key')}"
        parameters.append(folded(wanted.title_text))
    query = (
        f"SELECT {ORDERS[wanted.order].column}, session_id, sessions.id FROM live_sessions AS sessions"
        f" WHERE sessions.id {db.dialect.among}{where}"
    )
    return cast(list[_Key], db.rows(query, (db.dialect.keys(rows), *parameters)))


def _read(db: Database, keys: list[_Key], max_bytes: int | None) -> list[Found]:
    keys = _readable(db, keys)
    query = f"SELECT id, {session_header(db.dialect)} FROM sessions WHERE id {db.dialect.among}"
    rows = {row[0]: row[1:] for row in db.rows(query, (_rows_of(db, keys),))}
    found, found_bytes = list[Found](), 0
    for sort_key, session_id, row in keys:
        session = session_of(*rows[row])
        size = _listed_bytes(rows[row][0], session)
        found.append(Found((sort_key, session_id), size, session))
        found_bytes += size
        if max_bytes is not None and found_bytes > max_bytes:
            break
    return found


def _readable(db: Database, keys: list[_Key]) -> list[_Key]:
    """Returns the first sessions, up to STEP_BYTES, and one more."""
    among = f"FROM sessions WHERE id {db.dialect.among}"
    if number(db, f"SELECT {total('body_bytes')} {among}", (_rows_of(db, keys),)) <= STEP_BYTES:
        return keys
    sizes: dict[int, int] = dict(db.rows(f"SELECT id, body_bytes {among}", (_rows_of(db, keys),)))
    read = itertools.accumulate(sizes[row] for _, _, row in keys)
    return keys[: sum(1 for _ in itertools.takewhile(lambda size: size <= STEP_BYTES, read)) + 1]


def _rows_of(db: Database, keys: list[_Key]) -> object:
    return db.dialect.keys([row for _, _, row in keys])


def _listed_bytes(header: str, session: Session) -> int:
    """Returns the bytes that a session counts in a list: at least its bytes in an answer, whatever its state.

    An answer has a title that was set and the directory twice. Everything else is longer as JSON, except for the
    lengths of large labels.
    """
    return len((header + session.shown_title + session.directory).encode()) + 4 * len(session.labels)
