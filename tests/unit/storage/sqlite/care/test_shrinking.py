"""Compaction of a file that a server left behind."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.support.fakes.domain_values import adding, creating, make_message, removing
from tests.support.fakes.opened_store import opened_store
from turnwire.storage.sqlite.care.shrinking import compact


async def test_the_log_of_a_dead_server_counts(tmp_path: Path) -> None:
    """The content of its log counts in the size before, and nothing of it is in the log afterwards."""
    left = tmp_path / "left"
    left.mkdir()
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating("ses_1"))
        await opened.store.commit(adding(make_message("msg_1", "word " * 50_000, session_id="ses_1")))
        await opened.store.commit(removing("ses_1"))
        await opened.store.removals()
        for path in tmp_path.glob("turnwire.db*"):
            shutil.copy(path, left / path.name)
    path, log = left / "turnwire.db", left / "turnwire.db-wal"
    in_file, in_log = path.stat().st_size, log.stat().st_size
    assert in_log > 0
    shutil.copytree(left, tmp_path / "same")
    with closing(sqlite3.connect(tmp_path / "same/turnwire.db")) as db:
        whole = db.execute("PRAGMA page_count").fetchone()[0] * db.execute("PRAGMA page_size").fetchone()[0]
    compacted = compact(path)
    assert (compacted.path, compacted.bytes_before) == (str(path), whole)
    assert compacted.bytes_before > in_file
    assert compacted.bytes_after == path.stat().st_size < in_log
    assert not log.exists() or not log.stat().st_size
