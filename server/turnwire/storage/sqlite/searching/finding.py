"""Finding: one search on its connection's thread, as of one moment."""

import sqlite3
import struct
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from turnwire.domain.conversation.messages import MessageType
from turnwire.domain.errors import InvalidRequest
from turnwire.domain.pages import MAX_PAGE_BYTES
from turnwire.domain.searching.hits import MAX_CANDIDATES, Search, SearchHit, SearchOrder, SearchPage
from turnwire.domain.searching.queries import Query, Term
from turnwire.domain.searching.snippets import snippet
from turnwire.storage.sqlite.reading.rows import session_row
from turnwire.storage.sqlite.searching import facets
from turnwire.storage.sqlite.searching.entries import NUMBER_BITS, entry_text, first_id, known_tenant_number
from turnwire.storage.sqlite.searching.ranking import best

SHOWING_SECONDS = 0.5
"""After which a page ends: snippets of large texts take their time."""

_HIT_BYTES = 1_024
"""Of a hit without its texts, at most."""

_SPILL_SECONDS = 64
"""Entries of a second that had more than NUMBER_BITS has room for are filed that much later, at most (4 million)."""

_PLACE = struct.Struct(">Q")

_FOUND = """
FROM search_index CROSS JOIN search_entries ON search_entries.id = search_index.rowid
CROSS JOIN messages ON messages.id = search_entries.message AND hidden = 0 AND queued = 0
CROSS JOIN sessions ON sessions.id = messages.session AND sessions.tenant = :tenant
WHERE search_index MATCH :match AND search_index.rowid BETWEEN :least AND :most
AND at_us >= :start AND at_us < :end ORDER BY search_index.rowid
"""
"""The entries that are shown, through the index alone; what was removed since has no entry."""

_SHOWN = """
SELECT session, messages.message_id, json_extract(messages.body, '$.type'),
    coalesce(json_extract(messages.body, '$.sender_name'), ''), at_us, part_index, excerpt,
    CASE WHEN excerpt IS NULL THEN parts.body END, CASE WHEN excerpt IS NULL THEN parts.text END,
    CASE WHEN excerpt IS NULL THEN parts.output END
FROM search_entries JOIN parts ON parts.id = search_entries.part JOIN messages ON messages.id = parts.message
JOIN sessions ON sessions.id = messages.session
WHERE search_entries.id = ? AND hidden = 0 AND queued = 0 AND sessions.tenant = ?
"""


class _Look(NamedTuple):
    """A search as the index has it."""

    tenant: str
    number: int
    """The short name of the tenant."""
    match: str


class _Range(NamedTuple):
    """Where to look: ids of entries, and moments in microseconds."""

    least: int
    most: int
    start: int
    end: int


def find(db: sqlite3.Connection, tenant: str, search: Search, place: bytes, size: int) -> SearchPage:
    """Returns a page of hits; see `TenantStore.search`.

    Args:
        db: A connection for searching.
        tenant: The owner of what is found.
        search: What to find.
        place: `next_place` of the page before; b"" for the first.
        size: Most hits to return, at least 1.

    Raises:
        SessionNotFound: the tenant has no session of one of the ids.
        InvalidRequest: the place is not of such a search.
        sqlite3.OperationalError: the search was interrupted.
    """
    db.execute("BEGIN")  # so that everything is of the same moment
    try:
        sessions = [session_row(db, tenant, session_id) for session_id in search.session_ids]
        is_complete = not _has_backlog(db)
        number = known_tenant_number(db, tenant)
        if number is None:
            return SearchPage((), b"", is_complete)
        ids = _ids(db, search, _unpacked(place), size, _Look(tenant, number, _match(number, search, sessions)))
        hits, read = _hits(db, tenant, search, ids[:size])
        rest = ids[read:]
        if not rest:
            return SearchPage(hits, b"", is_complete)
        following = rest if search.order is SearchOrder.RANK else ids[read - 1 : read]
        return SearchPage(hits, b"".join(map(_PLACE.pack, following)), is_complete)
    finally:
        if db.in_transaction:
            db.execute("COMMIT")


def _ids(db: sqlite3.Connection, search: Search, after: list[int], size: int, look: _Look) -> list[int]:
    """Returns the entries from a place on, in order: one more than the page, or by rank all that are left."""
    if after and search.order is SearchOrder.RANK:
        return after
    if len(after) > 1:
        raise InvalidRequest.of("page_token", "is not from this listing")
    values = {"tenant": look.tenant, "match": look.match, **_range(search, after)._asdict()}
    if search.order is SearchOrder.RANK:
        return _ranked(db, search.query, values, look)
    order = "DESC" if search.order is SearchOrder.NEWEST else ""
    rows = db.execute(f"SELECT search_index.rowid {_FOUND} {order} LIMIT :count", {**values, "count": size + 1})
    return [entry for (entry,) in rows]


def _ranked(db: sqlite3.Connection, query: Query, values: dict[str, object], look: _Look) -> list[int]:
    newest = f"SELECT search_index.rowid, words {_FOUND} DESC LIMIT :count"
    found = dict(db.execute(newest, {**values, "count": MAX_CANDIDATES}).fetchall())

    def having(term: Term) -> set[int]:
        both = f"({look.match}) AND {facets.expression(look.number, Query(((term,),)), ())}"
        within = "SELECT rowid FROM search_index WHERE search_index MATCH ? AND rowid BETWEEN ? AND ?"
        rows = db.execute(within, (both, min(found), max(found)))
        return {entry for (entry,) in rows if entry in found}

    return best(db, query, found, having) if found else []


def _range(search: Search, after: list[int]) -> _Range:
    least, most, start, end = 0, 2**62, -(2**62), 2**62
    if search.start is not None:
        least, start = first_id(search.start), _microseconds(search.start)
    if search.end is not None:
        most, end = first_id(search.end) + (_SPILL_SECONDS << NUMBER_BITS), _microseconds(search.end)
    if after and search.order is SearchOrder.NEWEST:
        most = min(most, after[0] - 1)
    elif after:
        least = max(least, after[0] + 1)
    return _Range(least, most, start, end)


def _match(number: int, search: Search, sessions: Iterable[int]) -> str:
    groups = (
        [facets.session_facet(number, row) for row in sessions],
        [facets.type_facet(number, type) for type in search.types],
        [facets.sender_facet(number, sender) for sender in search.senders],
    )
    return facets.expression(number, search.query, [group for group in groups if group])


def _hits(db: sqlite3.Connection, tenant: str, search: Search, ids: list[int]) -> tuple[tuple[SearchHit, ...], int]:
    """Returns the hits of some entries, and how many of these were read until the page was full."""
    hits: list[SearchHit] = []
    sessions: dict[int, tuple[str, str]] = {}
    ends_at, size, read = time.monotonic() + SHOWING_SECONDS, 0, 0
    for entry in ids:
        if read and (size > MAX_PAGE_BYTES or time.monotonic() > ends_at):
            break
        read += 1
        row = db.execute(_SHOWN, (entry, tenant)).fetchone()
        if row is None:  # hidden or removed since the first page
            continue
        session, message_id, type, sender_name, at_us, part_index, *stored = row
        if session not in sessions:
            query = "SELECT session_id, coalesce(json_extract(body, '$.title'), '') FROM sessions WHERE id = ?"
            sessions[session] = db.execute(query, (session,)).fetchone()
        session_id, title = sessions[session]
        size += _HIT_BYTES + len(title.encode()) + len(sender_name.encode())
        hits.append(
            SearchHit(
                session_id=session_id,
                session_title=title,
                message_id=message_id,
                part_index=part_index,
                type=MessageType(type),
                created_at=datetime.fromtimestamp(at_us / 1_000_000, UTC),
                sender_name=sender_name,
                snippet=snippet(entry_text(*stored), search.query),
            )
        )
    return tuple(hits), read


def _has_backlog(db: sqlite3.Connection) -> bool:
    """Returns whether messages may still have to be indexed."""
    return db.execute("SELECT 1 FROM search_backlog").fetchone() is not None


def _unpacked(place: bytes) -> list[int]:
    return [entry for (entry,) in _PLACE.iter_unpack(place)]


def _microseconds(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
