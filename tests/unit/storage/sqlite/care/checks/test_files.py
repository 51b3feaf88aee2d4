"""Files are read in pieces, and a file that is used again is not removed."""

import hashlib
import sqlite3
from collections.abc import Iterator

import pytest

from tests.support.fakes.care import found_by, repair_by, whole_database
from tests.support.oracles.damaged_database import NOTES
from turnwire.storage.sqlite.care.checks.files import CHUNK_BYTES, check_files
from turnwire.storage.sqlite.care.checks.messages import check_messages


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """A database without a problem."""
    with whole_database() as whole:
        yield whole


@pytest.mark.parametrize("size", [0, CHUNK_BYTES, 2 * CHUNK_BYTES + 1])
def test_bytes_are_compared_with_the_hash(db: sqlite3.Connection, size: int) -> None:
    """To the last one."""
    content = bytes(size)
    sha256 = hashlib.sha256(content).hexdigest()
    db.execute("INSERT INTO files (id, tenant, sha256, content) VALUES (99, 'default', ?, ?)", (sha256, content))
    db.execute("UPDATE parts SET file = 99 WHERE file IS NOT NULL")
    assert [problem for problem, subject in found_by(db, check_files) if subject == sha256] == []
    db.execute("UPDATE files SET content = CAST(content || x'00' AS BLOB) WHERE sha256 = ?", (sha256,))
    assert ("files.bytes", sha256) in found_by(db, check_files)


def test_file_that_is_filed_again_stays(db: sqlite3.Connection) -> None:
    """It is found unused, because the part that uses it is filed wrongly; the repair of the part comes first."""
    db.execute("UPDATE parts SET file = NULL")
    assert found_by(db, check_files) == [("files.unused", NOTES.sha256)]
    repair_by(db, check_messages, check_files)
    assert found_by(db, check_messages, check_files) == []
    assert db.execute("SELECT count(*) FROM files").fetchone() == (3,)
