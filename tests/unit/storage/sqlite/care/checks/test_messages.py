"""What is derived from parts is made anew and compared."""

import sqlite3
from collections.abc import Iterator

import pytest

from tests.support.fakes.care import found_by, repair_by, whole_database
from tests.support.oracles.damaged_database import LOG
from turnwire.storage.sqlite.care.checks.messages import check_messages, check_order


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """A database without a problem."""
    with whole_database() as whole:
        yield whole


def test_whole_messages_have_no_findings(db: sqlite3.Connection) -> None:
    """A message that streams and one that waits are normal while their turns are there."""
    assert found_by(db, check_messages, check_order) == []


def test_display_is_made_anew(db: sqlite3.Connection) -> None:
    """Byte for byte as it was."""
    before = db.execute("SELECT display FROM messages ORDER BY id").fetchall()
    db.execute("UPDATE messages SET display = x'' WHERE message_id IN ('msg_1', 'msg_4')")
    assert found_by(db, check_messages) == [("messages.display", "msg_1"), ("messages.display", "msg_4")]
    repair_by(db, check_messages)
    assert db.execute("SELECT display FROM messages ORDER BY id").fetchall() == before


def test_order_begins_anew_in_each_session(db: sqlite3.Connection) -> None:
    """And a waiting message has nothing before it."""
    db.execute("UPDATE messages SET previous = 'msg_1'")
    wrong = [subject for _, subject in found_by(db, check_order)]
    assert wrong == ["msg_1", "msg_3", "msg_4", "msg_q", "msg_20", "msg_21", "msg_22", "msg_23", "msg_24"]
    repair_by(db, check_order)
    rows = db.execute("SELECT message_id, previous FROM messages ORDER BY session, queued, place").fetchall()
    assert rows == [
        *(("msg_1", ""), ("msg_2", "msg_1"), ("msg_3", "msg_2"), ("msg_4", "msg_3"), ("msg_q", "")),
        *(("msg_20", ""), *((f"msg_2{n}", f"msg_2{n - 1}") for n in range(1, 5))),
    ]


@pytest.mark.parametrize("status", ["streaming", "queued"])
def test_unfinished_message_needs_a_turn_that_runs(db: sqlite3.Connection, status: str) -> None:
    """Otherwise nobody ever ends it."""
    db.execute(f"UPDATE messages SET body = json_set(body, '$.status', '{status}') WHERE message_id = 'msg_2'")
    assert ("messages.unfinished", "msg_2") in found_by(db, check_messages)


def test_files_of_a_result_are_filed_again(db: sqlite3.Connection) -> None:
    """Those that are missing, and those that are too much; not one whose bytes are gone."""
    before = db.execute("SELECT part, file FROM part_files ORDER BY file").fetchall()
    db.execute("UPDATE part_files SET file = (SELECT file FROM parts WHERE file IS NOT NULL) WHERE id = 1")
    assert found_by(db, check_messages) == [("parts.files", "msg_2 1")]
    repair_by(db, check_messages)
    assert db.execute("SELECT part, file FROM part_files ORDER BY file").fetchall() == before
    db.execute("DELETE FROM part_files")
    db.execute("DELETE FROM files WHERE sha256 = ?", (LOG.sha256,))
    repair_by(db, check_messages)
    assert found_by(db, check_messages) == [("parts.files", "msg_2 1")]
    assert len(db.execute("SELECT file FROM part_files").fetchall()) == 1


def test_open_calls_are_listed_again(db: sqlite3.Connection) -> None:
    """One that is missing, one that is another's, one that is not open; in the order in which they opened."""
    call = "part_index = 1 AND message = (SELECT id FROM messages WHERE message_id = 'msg_2')"
    pending = "'$.content.status', 'pending', '$.content.started_at', '1970-01-02T00:00:00Z'"
    db.execute(f"UPDATE parts SET body = json_set(body, {pending}) WHERE {call}")
    assert ("parts.open", "msg_2 1") in found_by(db, check_messages)
    repair_by(db, check_messages)
    listed = "SELECT tenant, tool, since_us FROM open_calls"
    assert db.execute(listed).fetchall() == [("default", "draw", 86_400_000_000)]
    db.execute("UPDATE open_calls SET tenant = 'b'")
    assert ("parts.open", "msg_2 1") in found_by(db, check_messages)
    repair_by(db, check_messages)
    assert db.execute(listed).fetchall() == [("default", "draw", 86_400_000_000)]
    db.execute(f"UPDATE parts SET body = json_set(body, '$.content.status', 'error') WHERE {call}")
    assert ("parts.open", "msg_2 1") in found_by(db, check_messages)
    repair_by(db, check_messages)
    assert db.execute(listed).fetchall() == []


def test_file_of_another_tenant_is_not_the_message_s_own(db: sqlite3.Connection) -> None:
    """Equal bytes of two tenants are two files."""
    db.execute(
        "INSERT INTO files (id, tenant, sha256, content) SELECT 99, 'b', sha256, content FROM files WHERE id = 1"
    )
    before = db.execute("SELECT id, file FROM parts").fetchall()
    db.execute("UPDATE parts SET file = 99 WHERE file IS NOT NULL")
    assert found_by(db, check_messages) == [("parts.columns", "msg_1 1")]
    repair_by(db, check_messages)
    assert db.execute("SELECT id, file FROM parts").fetchall() == before
