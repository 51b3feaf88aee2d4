"""Turns and permission requests agree with their columns and with each other."""

import json
import sqlite3
from collections.abc import Iterator

import pytest

from tests.support.fakes.care import found_by, repair_by, whole_database
from turnwire.ports.pages import Page
from turnwire.storage.sqlite.care.checks.sessions import check_permissions, check_sessions, check_turns
from turnwire.storage.sqlite.reading.waiting import open_permissions


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """A database without a problem."""
    with whole_database() as whole:
        yield whole


def test_whole_sessions_have_notes_at_most(db: sqlite3.Connection) -> None:
    """Turns that have not ended."""
    found = found_by(db, check_sessions, check_turns, check_permissions)
    assert found == [("turns.unfinished", "trn_2"), ("turns.unfinished", "trn_q")]


def test_request_of_an_ended_turn_is_cancelled(db: sqlite3.Connection) -> None:
    """As when its turn ends in order. The mark of the turn does not decide, because it may be wrong."""
    db.execute("UPDATE turns SET ended = 1 WHERE turn_id = 'trn_2'")
    assert found_by(db, check_permissions) == []
    db.execute("UPDATE turns SET body = json_set(body, '$.status', 'ended') WHERE turn_id = 'trn_2'")
    assert found_by(db, check_permissions) == [("permissions.ended", "per_1")]
    repair_by(db, check_permissions)
    (body,) = db.execute("SELECT body FROM permissions WHERE permission_id = 'per_1'").fetchone()
    assert json.loads(body)["answer"] == {"response": "cancelled"}
    assert open_permissions(db, "default", None, Page()).permissions == ()


def test_request_without_a_turn_is_cancelled(db: sqlite3.Connection) -> None:
    """Nobody waits for its answer."""
    db.execute("DELETE FROM turns WHERE turn_id = 'trn_2'")
    repair_by(db, check_permissions)
    assert open_permissions(db, "default", None, Page()).permissions == ()
    assert found_by(db, check_permissions) == []


@pytest.mark.parametrize("marks", [(1, 1), (0, 0)])
def test_marks_are_those_of_the_values(db: sqlite3.Connection, marks: tuple[int, int]) -> None:
    """In both directions."""
    db.execute("UPDATE turns SET ended = ?", marks[:1])
    db.execute("UPDATE permissions SET open = ?", marks[1:])
    repair_by(db, check_turns, check_permissions)
    assert [ended for (ended,) in db.execute("SELECT ended FROM turns ORDER BY id")] == [1, 0, 0]
    assert [is_open for (is_open,) in db.execute("SELECT open FROM permissions ORDER BY id")] == [0, 1]
