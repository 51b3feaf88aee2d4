"""Ranking: the best of the newest hits.

The measure is BM25, with what the hits themselves say about how rare a term is, and a fixed usual length. FTS5 has one
of its own, which counts the rows of all tenants: the order of one would change with what others store.
"""

import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping

from turnwire.domain.searching.hits import MAX_RANKED
from turnwire.domain.searching.queries import Query, Term
from turnwire.domain.searching.words import tokens
from turnwire.storage.sqlite.searching.entries import entry_text

COUNTED_CHARACTERS = 2_048
"""Of a text, in which the words are counted: the beginning of a long one is what it is about."""

_USUAL_WORDS = 80
_SATURATION, _BY_LENGTH = 1.2, 0.75
"""How soon more of the same word says nothing new, and how much a long text counts less: the usual k1 and b."""

_CONTENT = (
    "SELECT excerpt, CASE WHEN excerpt IS NULL THEN body END, CASE WHEN excerpt IS NULL THEN text END,"
    " CASE WHEN excerpt IS NULL THEN output END FROM search_entries JOIN parts ON parts.id = part"
    " WHERE search_entries.id = ?"
)


def best(
    db: sqlite3.Connection, query: Query, found: Mapping[int, int], having: Callable[[Term], set[int]]
) -> list[int]:
    """Returns the best entries, at most MAX_RANKED, the best first and of equal ones the newest.

    Args:
        db: The connection.
        query: What was looked for.
        found: The entries that are hits, with the number of their words.
        having: Returns those that have a term; asked for terms that a hit need not have.
    """
    everywhere = {term: _weight(len(found), len(found)) for group in query.groups if len(group) == 1 for term in group}
    somewhere = {term: having(term) for group in query.groups if len(group) > 1 for term in group}
    weights = {term: _weight(len(found), len(those)) for term, those in somewhere.items()}

    def score(entry: int) -> float:
        """Counts each term once, without the text."""
        weight = sum(weights[term] for term, those in somewhere.items() if entry in those)
        return (base + weight) / (1 + _SATURATION * _length(found[entry]))

    def exact_score(entry: int) -> float:
        text, length = _beginning(db, entry), _length(found[entry])
        there = {**everywhere, **{term: weights[term] for term, those in somewhere.items() if entry in those}}
        counts = ((weight, max(1, term.count(text))) for term, weight in there.items())
        return sum(weight * count / (count + _SATURATION * length) for weight, count in counts)

    base = sum(everywhere.values())
    likely = _sorted(score, found)[:MAX_RANKED]
    return _sorted(exact_score, likely)


def _sorted(score: Callable[[int], float], entries: Iterable[int]) -> list[int]:
    return [entry for _, entry in sorted(((score(entry), entry) for entry in entries), reverse=True)]


def _length(words: int) -> float:
    return 1 - _BY_LENGTH + _BY_LENGTH * words / _USUAL_WORDS


def _weight(all: int, having: int) -> float:
    """Returns how much a term says, which is more the fewer hits have it."""
    return math.log(1 + (all - having + 0.5) / (having + 0.5)) + 0.1  # what all have still counts by its number


def _beginning(db: sqlite3.Connection, entry: int) -> list[str]:
    return tokens(entry_text(*db.execute(_CONTENT, (entry,)).fetchone())[:COUNTED_CHARACTERS])
