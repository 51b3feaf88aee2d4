"""The index of words is compared with the parts."""

import sqlite3
from collections.abc import Iterator

import pytest

from tests.support.fakes.care import found_by, repair_by, whole_database
from turnwire.storage.sqlite.care.checks.search import check_search
from turnwire.storage.sqlite.searching.upkeep import adopt_words, work_some


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """A database without a problem."""
    with whole_database() as whole:
        yield whole


def test_a_whole_index_has_no_findings(db: sqlite3.Connection) -> None:
    """What streams and what waits is not in it."""
    assert found_by(db, check_search) == []


@pytest.mark.parametrize(
    ("damage", "subject"),
    [
        (
            "DELETE FROM search_entries WHERE part = (SELECT id FROM parts WHERE CAST(text AS TEXT) LIKE '%number 3%')",
            "msg_23 0",
        ),
        ("UPDATE search_entries SET words = 9 WHERE part = (SELECT max(id) FROM parts)", "msg_24 0"),
        ("UPDATE parts SET text = CAST(replace(CAST(text AS TEXT), 'number 4', 'figure 4') AS BLOB)", ""),
        ("DELETE FROM search_tenants", "msg_1 0"),
    ],
)
def test_an_entry_that_is_missing_or_wrong_is_found(db: sqlite3.Connection, damage: str, subject: str) -> None:
    """And the next start makes the whole index anew."""
    db.execute(damage)
    subjects = [found for name, found in found_by(db, check_search) if name == "search.index"]
    assert subject in subjects if subject else subjects
    repair_by(db, check_search)
    assert found_by(db, check_search) == [("search.unfinished", "all messages")]
    adopt_words(db)
    assert found_by(db, check_search) == [("search.unfinished", "some messages")]
    while work_some(db):
        pass
    assert found_by(db, check_search) == []


def test_words_that_are_not_in_the_index_are_found(db: sqlite3.Connection) -> None:
    """Though the entry is there."""
    (entry,) = db.execute("SELECT id FROM search_entries WHERE part = (SELECT max(id) FROM parts)").fetchone()
    facets = db.execute("SELECT facets FROM search_entries WHERE id = ?", (entry,)).fetchone()[0]
    words = f"{facets} 1_number 1_4"
    db.execute("INSERT INTO search_index (search_index, rowid, terms) VALUES ('delete', ?, ?)", (entry, words))
    db.execute("INSERT INTO search_index (rowid, terms) VALUES (?, ?)", (entry, facets))
    assert found_by(db, check_search) == [("search.index", "msg_24 0")]


def test_what_cannot_be_read_is_another_finding(db: sqlite3.Connection) -> None:
    """A part whose body is damaged has no words to compare."""
    db.execute("DROP TRIGGER part_rewritten")
    db.execute("UPDATE parts SET body = '{}' WHERE id = (SELECT max(id) FROM parts)")
    assert found_by(db, check_search) == []
