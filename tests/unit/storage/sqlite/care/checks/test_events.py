"""The log is followed from where it begins to its head, and a repair drops what cannot be read."""

import sqlite3
from collections.abc import Iterator

import pytest

from tests.support.fakes.care import found_by, repair_by, whole_database
from tests.support.oracles.damaged_database import CODEC
from turnwire.storage.sqlite.care.checks.events import check_events
from turnwire.storage.sqlite.log.replay import log_events, session_events


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """A database without a problem."""
    with whole_database() as whole:
        yield whole


def bounds(db: sqlite3.Connection, session_id: str) -> tuple[int, int, int]:
    """Returns a session's head, and through which sequence and position it was dropped."""
    query = "SELECT head_sequence, pruned_through, pruned_position FROM sessions WHERE session_id = ?"
    row: tuple[int, int, int] = db.execute(query, (session_id,)).fetchone()
    return row


def test_whole_log_has_no_findings(db: sqlite3.Connection) -> None:
    """Dropped events and the last event of a deleted session are normal."""
    assert found_by(db, check_events) == []


def test_gap_drops_what_is_before_it(db: sqlite3.Connection) -> None:
    """Watchers of the session, and of all sessions, that are before the gap read that session anew."""
    db.execute("DELETE FROM events WHERE session_id = 'ses_1' AND sequence IN (4, 5)")
    assert found_by(db, check_events) == [("events.gap", "ses_1 6")]
    repair_by(db, check_events)
    assert bounds(db, "ses_1") == (10, 5, 5)
    assert session_events(db, CODEC, "default", "ses_1", 0, kinds=None).earliest == 5
    assert [lost.session_id for lost in log_events(db, CODEC, "default", 4, kinds=None).pruned] == ["ses_1", "ses_2"]
    assert [lost.session_id for lost in log_events(db, CODEC, "default", 5, kinds=None).pruned] == ["ses_2"]
    assert found_by(db, check_events) == []


@pytest.mark.parametrize("kept", [0, 7])
def test_missing_end_drops_everything_and_keeps_the_head(db: sqlite3.Connection, kept: int) -> None:
    """A sequence is never given twice."""
    db.execute("DELETE FROM events WHERE session_id = 'ses_1' AND sequence > ?", (kept,))
    assert found_by(db, check_events) == [("events.gap", "ses_1 10")]
    repair_by(db, check_events)
    assert bounds(db, "ses_1")[:2] == (10, 10)
    assert found_by(db, check_events) == []


def test_head_is_raised_to_the_newest_event(db: sqlite3.Connection) -> None:
    """Nothing is dropped for it."""
    db.execute("UPDATE sessions SET head_sequence = 3 WHERE session_id = 'ses_1'")
    assert found_by(db, check_events) == [("sessions.head", "ses_1")]
    repair_by(db, check_events)
    assert bounds(db, "ses_1") == (10, 0, 0)


@pytest.mark.parametrize(
    "frame",
    [
        "x'ff'",
        "x'0a00'",
        "(SELECT frame FROM events WHERE position = 3)",
        "(SELECT frame FROM events WHERE session_id = 'ses_2' AND sequence = 4)",
        "CAST(frame || frame AS BLOB)",
    ],
)
def test_event_of_another_place_is_not_readable(db: sqlite3.Connection, frame: str) -> None:
    """Nor is one without a kind, or two in one frame; it is dropped with what is before it."""
    db.execute(f"UPDATE events SET frame = {frame} WHERE session_id = 'ses_1' AND sequence = 4")
    assert found_by(db, check_events) == [("events.frame", "ses_1 4")]
    repair_by(db, check_events)
    assert bounds(db, "ses_1") == (10, 4, 4)
    assert found_by(db, check_events) == []


def test_queue_is_not_judged_by_a_broken_log(db: sqlite3.Connection) -> None:
    """The newest event about it may be the one that is missing."""
    db.execute("UPDATE sessions SET queue_revision = 2 WHERE session_id = 'ses_1'")
    assert found_by(db, check_events) == [("sessions.queue", "ses_1")]
    db.execute("DELETE FROM events WHERE session_id = 'ses_1' AND sequence = 10")
    assert found_by(db, check_events) == [("events.gap", "ses_1 10")]


def test_deleted_session_keeps_its_last_event_alone(db: sqlite3.Connection) -> None:
    """Others are left over."""
    frame = "SELECT 900, 'ses_gone', 1, 'SessionCreated', frame, tenant FROM events WHERE position = 18"
    db.execute(f"INSERT INTO events {frame}")
    assert found_by(db, check_events) == [("events.session", "ses_gone 1")]
    repair_by(db, check_events)
    assert db.execute("SELECT kind FROM events WHERE session_id = 'ses_gone'").fetchall() == [("SessionDeleted",)]
