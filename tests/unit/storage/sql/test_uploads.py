"""However bytes come, they lie in full blocks, and any range of them can be read."""

import random
import sqlite3
from collections.abc import Iterator

import pytest

from turnwire.storage.sql.uploads import BLOCK_BYTES, append_bytes, read_bytes, remove_some_blocks
from turnwire.storage.sqlite.database import SqliteDatabase
from turnwire.storage.sqlite.schema import migrate


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """A database without uploads."""
    connection = sqlite3.connect(":memory:", isolation_level=None, factory=SqliteDatabase)
    migrate(connection)
    yield connection
    connection.close()


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(20))
def test_any_pieces(db: sqlite3.Connection, seed: int) -> None:
    """Two uploads come in turns."""
    chance = random.Random(seed)
    contents = {1: bytearray(), 2: bytearray()}
    for _ in range(30):
        upload = chance.choice((1, 2))
        size = chance.choice((0, 1, BLOCK_BYTES, chance.randrange(3 * BLOCK_BYTES)))
        piece = chance.randbytes(size)
        append_bytes(db, upload, len(contents[upload]), memoryview(piece))
        contents[upload] += piece
    for upload, content in contents.items():
        rows = db.execute("SELECT number, length(bytes) FROM upload_blocks WHERE upload = ? ORDER BY number", (upload,))
        full, rest = divmod(len(content), BLOCK_BYTES)
        assert rows.fetchall() == [*((n, BLOCK_BYTES) for n in range(full)), *([(full, rest)] if rest else [])]
        for _ in range(20):
            start = chance.randrange(len(content) + 1)
            end = start + chance.choice((0, 1, chance.randrange(2 * BLOCK_BYTES)))
            assert read_bytes(db, upload, start, end) == content[start:end]


def test_blocks_are_removed_a_few_at_a_time(db: sqlite3.Connection) -> None:
    """Those of the upload alone."""
    for upload in (1, 2):
        append_bytes(db, upload, 0, memoryview(bytes(5 * BLOCK_BYTES)))
    assert [remove_some_blocks(db, 1, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert len(read_bytes(db, 2, 0, 5 * BLOCK_BYTES)) == 5 * BLOCK_BYTES
