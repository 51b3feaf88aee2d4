"""One search, on its connection's thread, as of one moment."""

import math
import sqlite3
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from turnwire.domain.conversation.messages import Content, MessageType
from turnwire.domain.errors import InvalidRequest
from turnwire.domain.pages import MAX_PAGE_BYTES
from turnwire.domain.searching.content import searched_text
from turnwire.domain.searching.hits import MAX_CANDIDATES, MAX_RANKED, Search, SearchHit, SearchOrder, SearchPage
from turnwire.domain.searching.queries import Query, Term
from turnwire.domain.searching.snippets import snippet
from turnwire.domain.searching.words import tokens
from turnwire.storage.rows import microseconds
from turnwire.storage.sqlite.reading.rows import session_row
from turnwire.storage.sqlite.searching.index import (
    NUMBER_BITS,
    first_id,
    is_complete,
    session_word,
    stored_contents,
    word_of,
)

SHOWING_SECONDS = 0.5
"""After which a page ends: snippets of large texts take their time."""

COUNTED_CHARACTERS = 2_048
"""Of a text, in which words are counted for the rank: the beginning of a long one is what it is about."""

_HIT_BYTES = 1_024
"""Of a hit without its texts, at most."""

_SPILL_SECONDS = 3_600
"""How much later entries are filed, at most, of a second that had more than NUMBER_BITS can number (14 million)."""

_USUAL_WORDS = 80
_SATURATION, _BY_LENGTH = 1.2, 0.75
"""How soon more of the same word says nothing new, and how much a long text counts less: BM25's usual k1 and b."""

_PLACE = struct.Struct(">Q")

_FOUND = """
FROM search_index CROSS JOIN search_entries ON search_entries.id = search_index.rowid
CROSS JOIN messages ON messages.id = search_entries.message AND on_path = 1 AND queued = 0
CROSS JOIN live_sessions AS sessions ON sessions.id = messages.session AND sessions.tenant = :tenant
WHERE search_index MATCH :match AND search_index.rowid BETWEEN :least AND :most AND at_us >= :start AND at_us < :end
"""
"""The entries that are shown, through the index alone."""

_OF_TYPES = "AND json_extract(messages.body, '$.type') IN (SELECT value FROM json_each(:types))"
_OF_SENDERS = "AND coalesce(json_extract(messages.body, '$.sender'), '') IN (SELECT value FROM json_each(:senders))"

_SHOWN = """
SELECT messages.session, messages.message_id, json_extract(messages.body, '$.type'),
    coalesce(json_extract(messages.body, '$.sender_name'), ''), at_us, messages.id, part_index, excerpt
FROM search_entries JOIN messages ON messages.id = search_entries.message
JOIN live_sessions AS sessions ON sessions.id = messages.session
WHERE search_entries.id = ? AND on_path = 1 AND queued = 0 AND sessions.tenant = ?
"""

_KEPT = "SELECT message, part_index, excerpt FROM search_entries WHERE id = ?"


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
        finding = _Finding(db, tenant, search)
        ids = finding.entries([entry for (entry,) in _PLACE.iter_unpack(place)], size)
        hits, read = finding.hits(ids[:size])
        rest = ids[read:]
        if rest and search.order is not SearchOrder.RANK:
            rest = ids[read - 1 : read]
        return SearchPage(hits, b"".join(map(_PLACE.pack, rest)), is_complete(db))
    finally:
        if db.in_transaction:
            db.execute("COMMIT")


def match(tenant: str, query: Query, sessions: Iterable[int] = ()) -> str:
    """Returns a query as FTS5 has it. Words have letters and digits only, so nothing needs an escape.

    Args:
        tenant: The owner of what is found.
        query: What to look for.
        sessions: The rows of the sessions to look in; none for all.
    """
    groups = [" OR ".join(_term(tenant, term) for term in group) for group in query.groups]
    groups += filter(None, [" OR ".join(f'"{session_word(tenant, row)}"' for row in sessions)])
    wanted = " AND ".join(f"({group})" for group in groups)
    if not query.without:
        return wanted
    return f"({wanted}) NOT ({' OR '.join(_term(tenant, term) for term in query.without)})"


def _term(tenant: str, term: Term) -> str:
    phrase = " ".join(word_of(tenant, word) for word in term.words)
    return f'"{phrase}" *' if term.is_prefix else f'"{phrase}"'


class _Finding:
    """One search inside its transaction."""

    def __init__(self, db: sqlite3.Connection, tenant: str, search: Search) -> None:
        """Raises SessionNotFound: the tenant has no session of one of the ids."""
        self._db, self._tenant, self._search = db, tenant, search
        self._sessions = [session_row(db, tenant, session_id) for session_id in search.session_ids]
        self._read: tuple[int, dict[int, Content]] = (0, {})  # the message that was read last: its row and its parts

    def entries(self, after: list[int], size: int) -> list[int]:
        """Returns the entries from a place on, in order: one more than the page, or by rank all that are left.

        Raises InvalidRequest: the place is not of such a search.
        """
        is_ranked = self._search.order is SearchOrder.RANK
        if after and is_ranked:
            return after
        if len(after) > 1:
            raise InvalidRequest.of("page_token", "is not from this listing")
        if is_ranked:
            return self._best(dict(self._found("DESC", MAX_CANDIDATES)))
        order = "DESC" if self._search.order is SearchOrder.NEWEST else "ASC"
        return [entry for entry, _ in self._found(order, size + 1, after)]

    def hits(self, ids: list[int]) -> tuple[tuple[SearchHit, ...], int]:
        """Returns the hits of some entries, and how many of these were read until the page was full."""
        hits: list[SearchHit] = []
        sessions: dict[int, tuple[str, str]] = {}
        ends_at, size, read = time.monotonic() + SHOWING_SECONDS, 0, 0
        for entry in ids:
            if read and (size > MAX_PAGE_BYTES or time.monotonic() > ends_at):
                break
            read += 1
            row = self._db.execute(_SHOWN, (entry, self._tenant)).fetchone()
            if row is None:  # hidden or removed since the first page
                continue
            session, message_id, type, sender_name, at_us, *kept = row
            if session not in sessions:
                title = "coalesce(nullif(json_extract(body, '$.title'), ''), first_words)"
                query = f"SELECT session_id, {title} FROM sessions WHERE id = ?"
                sessions[session] = self._db.execute(query, (session,)).fetchone()
            session_id, title = sessions[session]
            size += _HIT_BYTES + len(title.encode()) + len(sender_name.encode())
            hits.append(
                SearchHit(
                    session_id=session_id,
                    session_title=title,
                    message_id=message_id,
                    part_index=kept[1],
                    type=MessageType(type),
                    created_at=datetime.fromtimestamp(at_us / 1_000_000, UTC),
                    sender_name=sender_name,
                    snippet=snippet(self._text(*kept), self._search.query),
                )
            )
        return tuple(hits), read

    def _found(self, order: str, count: int, after: Sequence[int] = ()) -> list[tuple[int, int]]:
        """Returns the first entries that are hits, with the number of their words."""
        search = self._search
        values: dict[str, Any] = {
            "tenant": self._tenant,
            "match": match(self._tenant, search.query, self._sessions),
            "count": count,
        }
        values |= {"least": 0, "most": 2**62, "start": -(2**62), "end": 2**62}
        if search.start is not None:
            values |= {"least": first_id(search.start), "start": microseconds(search.start)}
        if search.end is not None:
            spilled = _SPILL_SECONDS << NUMBER_BITS
            values |= {"most": first_id(search.end) + spilled, "end": microseconds(search.end)}
        query = _FOUND
        if after and order == "DESC":
            values["most"] = min(after[0] - 1, values["most"])
        elif after:
            values["least"] = max(after[0] + 1, values["least"])
        for condition, name, some in ((_OF_TYPES, "types", search.types), (_OF_SENDERS, "senders", search.senders)):
            if some:
                query += condition
                values[name] = msgspec.json.encode(some).decode()
        query = f"SELECT search_index.rowid, words {query} ORDER BY search_index.rowid {order} LIMIT :count"
        return self._db.execute(query, values).fetchall()

    def _text(self, message_row: int, part_index: int, excerpt: str | None) -> str:
        """Returns the searched text of an entry; "" when it cannot be read any more."""
        if excerpt is not None:
            return excerpt
        if self._read[0] != message_row:
            self._read = message_row, stored_contents(self._db, message_row)
        content = self._read[1].get(part_index)
        return "" if content is None else searched_text(content)

    def _best(self, found: Mapping[int, int]) -> list[int]:
        """Returns the best entries, at most MAX_RANKED, the best first and of equal ones the newest.

        The measure is BM25, where the hits themselves say how rare a term is. That of FTS5 counts the rows of all
        tenants, so the order of one would change with what others store, and it reads every hit for each word.

        Args:
            found: The entries that are hits, with the number of their words.
        """
        if not found:
            return []
        weights, having = dict[Term, float](), dict[Term, set[int]]()
        for group in self._search.query.groups:
            for term in group:
                having[term] = set(found) if len(group) == 1 else self._having(term, found)
                weights[term] = _weight(len(found), len(having[term]))

        def score(entry: int, count: Callable[[Term], int]) -> float:
            length = 1 - _BY_LENGTH + _BY_LENGTH * found[entry] / _USUAL_WORDS
            counts = ((weight, count(term)) for term, weight in weights.items() if entry in having[term])
            return sum(weight * count / (count + _SATURATION * length) for weight, count in counts)

        def exact_score(entry: int) -> float:
            text = tokens(self._text(*self._db.execute(_KEPT, (entry,)).fetchone())[:COUNTED_CHARACTERS])
            return score(entry, lambda term: max(1, term.count(text)))

        likely = _sorted(lambda entry: score(entry, lambda _: 1), found)[:MAX_RANKED]
        return _sorted(exact_score, likely)

    def _having(self, term: Term, found: Mapping[int, int]) -> set[int]:
        """Returns those of some hits that have a term which a hit need not have."""
        both = f"({match(self._tenant, self._search.query, self._sessions)}) AND {_term(self._tenant, term)}"
        within = "SELECT rowid FROM search_index WHERE search_index MATCH ? AND rowid BETWEEN ? AND ?"
        rows = self._db.execute(within, (both, min(found), max(found)))
        return {entry for (entry,) in rows if entry in found}


def _sorted(score: Callable[[int], float], entries: Iterable[int]) -> list[int]:
    return [entry for _, entry in sorted(((score(entry), entry) for entry in entries), reverse=True)]


def _weight(all: int, having: int) -> float:
    """Returns how much a term says, which is more the fewer hits have it."""
    return math.log(1 + (all - having + 0.5) / (having + 0.5)) + 0.1  # what all have still counts by its number
