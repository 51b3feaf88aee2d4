"""Searches: one at a time on a connection of its own, each with a time limit, while other reads run."""

import asyncio
import math
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from turnwire.domain.conversation.messages import MessageType
from turnwire.domain.errors import InvalidRequest, SearchTooCostly, TooManySearches
from turnwire.domain.pages import MAX_PAGE_BYTES
from turnwire.domain.searching.content import searched_text
from turnwire.domain.searching.hits import MAX_CANDIDATES, MAX_RANKED, Search, SearchHit, SearchOrder, SearchPage
from turnwire.domain.searching.queries import Query, Term
from turnwire.domain.searching.snippets import snippet
from turnwire.domain.searching.words import tokens
from turnwire.event_loop.tasks import retrieve
from turnwire.storage.rows import Row, microseconds
from turnwire.storage.sql.columns import session_row
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.database import Database, Interrupted, Words
from turnwire.storage.sql.words import NUMBER_BITS, first_id, is_complete, session_word, stored_contents, word_of

MAX_SECONDS = 2.0
"""Timeout of one search: a hundred times the time of a search in 100,000 messages."""

MAX_OF_TENANT = 4
"""Maximum searches of one tenant that run or wait: a search waits for at most that many of another tenant."""

MAX_WAITING = 64
"""Maximum searches of all tenants that run or wait at once."""

_TOO_MANY = "too many searches run or wait; try again"

SHOWING_SECONDS = 0.5
"""Time after which a page ends: snippets of large texts take long."""

COUNTED_CHARACTERS = 2_048
"""Characters of a text in which words are counted for the rank: a long text shows its subject at the start."""

_HIT_BYTES = 1_024
"""Maximum size of a hit without its texts."""

_SPILL_SECONDS = 3_600
"""Maximum shift, in seconds, of the entries of a second that has more than NUMBER_BITS can number (14 million)."""

_USUAL_WORDS = 80
_SATURATION, _BY_LENGTH = 1.2, 0.75
"""Saturation by repetitions of a word, and penalty for the length of a text: BM25's usual k1 and b."""

_PLACE = struct.Struct(">Q")

_FOUND = """
SELECT search_index.rowid, words
FROM search_index CROSS JOIN search_entries CROSS JOIN messages CROSS JOIN live_sessions AS sessions
WHERE {matches} AND search_index.rowid BETWEEN ? AND ? AND at_us >= ? AND at_us < ? AND sessions.tenant = ?
    AND search_entries.id = search_index.rowid AND messages.id = search_entries.message AND on_path = 1 AND queued = 0
    AND sessions.id = messages.session {filters}
ORDER BY search_index.rowid {order} LIMIT ?
"""
"""The entries that are shown, through the index alone."""

_SHOWN = """
SELECT search_entries.id, sessions.session_id, coalesce(nullif({title}, ''), first_words), messages.message_id, {type},
    coalesce({sender_name}, ''), at_us, part_index
FROM search_entries JOIN messages ON messages.id = search_entries.message
JOIN live_sessions AS sessions ON sessions.id = messages.session
WHERE search_entries.id {among} AND on_path = 1 AND queued = 0 AND sessions.tenant = ?
"""

_READ_AT_ONCE = 16
"""Entries that are shown or ranked together, and whose messages are in memory at the same time."""


class Searches:
    """Runs searches. Used on the event loop; `_open` counts those that have not ended, by tenant."""

    def __init__(self, connection: Connection[Database], max_seconds: float = MAX_SECONDS) -> None:
        """Takes a reading connection of its own, which the caller closes."""
        self._connection = connection
        self._max_seconds = max_seconds
        self._open: Counter[str] = Counter()

    async def search(self, tenant: str, search: Search, place: bytes, size: int) -> SearchPage:
        """Returns a page of hits; see `TenantStore.search`. When the caller is cancelled, the search ends soon."""
        if self._open[tenant] >= MAX_OF_TENANT:
            raise TooManySearches.of("MAX_OF_TENANT", MAX_OF_TENANT, _TOO_MANY)
        if self._open.total() >= MAX_WAITING:
            raise TooManySearches.of("MAX_WAITING", MAX_WAITING, _TOO_MANY)
        is_over = threading.Event()  # set on the loop, read on the thread
        self._open[tenant] += 1
        wanted = partial(find, tenant=tenant, search=search, place=place, size=size)
        task = asyncio.create_task(self._connection.run(self._run, wanted, is_over), name="search")
        task.add_done_callback(lambda _: self._finish(tenant))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            is_over.set()
            task.add_done_callback(retrieve)
            raise

    def _run(self, db: Database, wanted: Callable[[Database], SearchPage], is_over: threading.Event) -> SearchPage:
        """Runs on the connection's thread."""
        try:
            if is_over.is_set():
                raise Interrupted
            with db.limited(is_over.is_set, self._max_seconds):
                return wanted(db)
        except Interrupted:
            raise SearchTooCostly(self._max_seconds) from None

    def _finish(self, tenant: str) -> None:
        self._open[tenant] -= 1
        if not self._open[tenant]:
            del self._open[tenant]


def find(db: Database, tenant: str, search: Search, place: bytes, size: int) -> SearchPage:
    """Returns a page of hits; see `TenantStore.search`. Raises Interrupted, too."""
    with db.snapshot():
        finding = _Finding(db, tenant, search)
        ids = finding.entries([entry for (entry,) in _PLACE.iter_unpack(place)], size)
        hits, read = finding.hits(ids[:size])
        rest = ids[read:]
        if rest and search.order is not SearchOrder.RANK:
            rest = ids[read - 1 : read]
        return SearchPage(hits, b"".join(map(_PLACE.pack, rest)), is_complete(db))


def match(index: Words, tenant: str, query: Query, sessions: Iterable[int] = ()) -> str:
    """Returns a query in the form of an index. Words have only letters and digits, so nothing needs an escape.

    Args:
        index: The index of the engine.
        tenant: The owner of what is found.
        query: The terms to search for.
        sessions: The rows of the sessions to search in; none for all.
    """
    groups = [index.either.join(_term(index, tenant, term) for term in group) for group in query.groups]
    groups += filter(None, [index.either.join(index.phrase([session_word(tenant, row)], False) for row in sessions)])
    wanted = index.both.join(f"({group})" for group in groups)
    if not query.without:
        return wanted
    return f"({wanted}){index.but_not}({index.either.join(_term(index, tenant, term) for term in query.without)})"


def _term(index: Words, tenant: str, term: Term) -> str:
    return index.phrase([word_of(tenant, word) for word in term.words], term.is_prefix)


class _Finding:
    """One search inside its transaction."""

    def __init__(self, db: Database, tenant: str, search: Search) -> None:
        """Raises SessionNotFound: the tenant has no session of one of the ids."""
        self._db, self._tenant, self._search = db, tenant, search
        self._sessions = [session_row(db, tenant, session_id) for session_id in search.session_ids]

    def entries(self, after: list[int], size: int) -> list[int]:
        """Returns the entries from a position on, in order: one more than the page, or by rank all that are left.

        Raises InvalidRequest: the position is not of such a search.
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
        """Returns the hits of some entries, and the number of entries read until the page was full."""
        hits = list[SearchHit]()
        ends_at, size, read = time.monotonic() + SHOWING_SECONDS, 0, 0
        for shown, text in self._shown(ids):
            if read and (size > MAX_PAGE_BYTES or time.monotonic() > ends_at):
                break
            read += 1
            if shown is None:  # hidden or removed since the first page
                continue
            session_id, title, message_id, type, sender_name, at_us, part_index = shown
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
                    snippet=snippet(text, self._search.query),
                )
            )
        return tuple(hits), read

    def _shown(self, ids: list[int]) -> Iterator[tuple[Row | None, str]]:
        """Yields the shown columns of each entry, or None for an entry that is not shown, and its text."""
        dialect = self._db.dialect
        fields = {name: dialect.field("messages.body", name) for name in ("type", "sender_name")}
        query = _SHOWN.format(title=dialect.field("sessions.body", "title"), among=dialect.among, **fields)
        for some in _portions(ids):
            shown = {entry: row for entry, *row in self._db.rows(query, (dialect.keys(some), self._tenant))}
            texts = dict(self._texts(list(shown)))
            for entry in some:
                yield tuple(shown[entry]) if entry in shown else None, texts.get(entry, "")

    def _found(self, order: str, count: int, after: Sequence[int] = ()) -> list[tuple[int, int]]:
        """Returns the first entries that are hits, with the number of their words."""
        search, dialect = self._search, self._db.dialect
        least, most, start, end = 0, 2**62, -(2**62), 2**62
        if search.start is not None:
            least, start = first_id(search.start), microseconds(search.start)
        if search.end is not None:
            most, end = first_id(search.end) + (_SPILL_SECONDS << NUMBER_BITS), microseconds(search.end)
        if after and order == "DESC":
            most = min(after[0] - 1, most)
        elif after:
            least = max(after[0] + 1, least)
        filters, some = "", list[object]()
        if search.types:
            filters += f" AND {dialect.field('messages.body', 'type')} {dialect.among}"
            some.append(dialect.keys([type.value for type in search.types]))
        if search.senders:
            filters += f" AND coalesce({dialect.field('messages.body', 'sender')}, '') {dialect.among}"
            some.append(dialect.keys(search.senders))
        query = _FOUND.format(matches=dialect.words.matches, filters=filters, order=order)
        wanted = match(dialect.words, self._tenant, search.query, self._sessions)
        rows = self._db.rows(query, (wanted, least, most, start, end, self._tenant, *some, count))
        return [(entry, words) for entry, words in rows]

    def _texts(self, entries: list[int]) -> Iterator[tuple[int, str]]:
        """Yields the searched texts of entries, in any order; "" for one that can no longer be read."""
        query = f"SELECT id, message, part_index, excerpt FROM search_entries WHERE id {self._db.dialect.among}"
        for some in _portions(entries):
            kept = self._db.rows(query, (self._db.dialect.keys(some),))
            contents = stored_contents(self._db, {message for _, message, _, excerpt in kept if excerpt is None})
            for entry, message, index, excerpt in kept:
                content = contents.get(message, {}).get(index)
                text = "" if content is None else searched_text(content)
                yield entry, text if excerpt is None else excerpt

    def _best(self, found: Mapping[int, int]) -> list[int]:
        """Returns the best of the hits that were found with their numbers of words, at most MAX_RANKED, the best first.

        The measure is BM25, in which the hits themselves show how rare a term is. That of FTS5 counts the rows of all
        tenants, so the order of one would change with what others store, and it reads every hit for each word.
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
            return score(entry, lambda term: max(1, term.count(beginnings[entry])))

        likely = _sorted(lambda entry: score(entry, lambda _: 1), found)[:MAX_RANKED]
        beginnings = {entry: tokens(text[:COUNTED_CHARACTERS]) for entry, text in self._texts(likely)}
        return _sorted(exact_score, likely)

    def _having(self, term: Term, found: Mapping[int, int]) -> set[int]:
        """Returns those of some hits that have a term which not every hit has."""
        index = self._db.dialect.words
        wanted = match(index, self._tenant, self._search.query, self._sessions)
        both = f"({wanted}){index.both}{_term(index, self._tenant, term)}"
        within = f"SELECT rowid FROM search_index WHERE {index.matches} AND rowid BETWEEN ? AND ?"
        rows = self._db.rows(within, (both, min(found), max(found)))
        return {entry for (entry,) in rows if entry in found}


def _portions(entries: list[int]) -> Iterator[list[int]]:
    return (entries[at : at + _READ_AT_ONCE] for at in range(0, len(entries), _READ_AT_ONCE))


def _sorted(score: Callable[[int], float], entries: Iterable[int]) -> list[int]:
    return [entry for _, entry in sorted(((score(entry), entry) for entry in entries), reverse=True)]


def _weight(all: int, having: int) -> float:
    """Returns the weight of a term, which is higher the fewer hits have it."""
    return math.log(1 + (all - having + 0.5) / (having + 0.5)) + 0.1  # a term of all hits still counts by its number
