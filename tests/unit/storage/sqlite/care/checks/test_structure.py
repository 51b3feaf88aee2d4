"""The schema is compared with that of a new database."""

import sqlite3
from collections.abc import Iterator

import pytest

from tests.support.fakes.care import whole_database
from turnwire.storage.sqlite.care.checks.structure import check_pages, check_references, check_schema


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """A database without a problem."""
    with whole_database() as whole:
        yield whole


def schema(db: sqlite3.Connection) -> dict[str, str]:
    """Returns what is found of the schema: subject by problem."""
    return {finding.problem.name: finding.subject for finding in check_schema(db)}


def test_whole_database_has_no_findings(db: sqlite3.Connection) -> None:
    """Each table, index and trigger is as a new database has it."""
    assert [*check_pages(db), *check_schema(db), *check_references(db)] == []


def test_what_others_made_is_a_note(db: sqlite3.Connection) -> None:
    """It does no harm."""
    db.execute("CREATE VIEW theirs AS SELECT 1")
    assert schema(db) == {"schema.foreign": "theirs"}


@pytest.mark.parametrize("other", ["", "CREATE INDEX messages_by_turn ON messages (place)"])
def test_index_is_made_as_it_was(db: sqlite3.Connection, other: str) -> None:
    """Whether it is missing or another one."""
    db.execute("DROP INDEX messages_by_turn")
    if other:
        db.execute(other)
    [finding] = check_schema(db)
    assert (finding.problem.name, finding.subject) == ("schema.index", "messages_by_turn")
    for statement in finding.repair:
        db.execute(statement.sql, statement.parameters)
    assert schema(db) == {}


def test_missing_table_is_not_made(db: sqlite3.Connection) -> None:
    """An empty one would hide what was lost."""
    db.execute("DROP TABLE requests")
    assert schema(db) == {"schema.table": "requests", "schema.index": "requests_by_session"}
    [finding] = [f for f in check_schema(db) if f.problem.name == "schema.table"]
    assert finding.repair == ()


def test_row_of_a_missing_owner_is_removed(db: sqlite3.Connection) -> None:
    """With what belongs to it."""
    db.execute("DELETE FROM sessions WHERE session_id = 'ses_2'")
    findings = list(check_references(db))
    assert {finding.problem.name for finding in findings} == {"references.owner"}
    db.execute("PRAGMA foreign_keys=ON")
    for finding in findings:
        for statement in finding.repair:
            db.execute(statement.sql, statement.parameters)
    assert list(check_references(db)) == []
    assert db.execute("SELECT count(*) FROM parts").fetchone() == (7,)
