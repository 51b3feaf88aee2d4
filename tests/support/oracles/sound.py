"""Whether the database that a test leaves is sound: as `turnwire doctor` sees it, and without a hole in any log."""

import sqlite3
from contextlib import closing
from pathlib import Path

from turnwire.storage.sqlite.care.doctor import examine

_GAPS = """
SELECT session_id, pruned_through, count(position), head_sequence FROM live_sessions LEFT JOIN events USING (session_id)
WHERE coalesce(sequence, pruned_through + 1) > pruned_through
GROUP BY session_id HAVING count(position) <> head_sequence - pruned_through
"""
"""Sessions whose kept events are not one after the other up to the head. Sequences are unique within a session."""


def problems(database: Path) -> list[str]:
    """Returns what is wrong in a database that can be read. A server may use it."""
    report = examine(database)
    found = [f"{finding.name}: {finding.first}" for finding in report.findings]
    if report.is_complete:
        with closing(sqlite3.connect(database)) as db:
            found += [f"events.gap: {gap}" for gap in db.execute(_GAPS)]
    return found


def assert_sound(database: Path) -> None:
    """Fails unless nothing is wrong. The server has to have ended."""
    assert problems(database) == []
