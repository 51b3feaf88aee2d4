"""Rows as versions before 3 of the codec stored them: texts in the bodies of parts, and whole display forms."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from turnwire.storage.sqlite.part_rows import DISPLAY, PART_COLUMNS, part_of


def make_older(path: Path) -> None:
    """Gives all messages of a database, which no server has open, the older layout."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")
        # what is rewritten here says the same, so the index of words stays right
        [(trigger,)] = db.execute("SELECT sql FROM sqlite_master WHERE name = 'part_rewritten'").fetchall()
        db.execute("DROP TRIGGER part_rewritten")
        shown = db.execute(f"SELECT {DISPLAY}, id FROM messages").fetchall()
        db.executemany("UPDATE messages SET display = ?, display_bytes = 0, display_version = 2 WHERE id = ?", shown)
        parts = db.execute(f"SELECT id, {PART_COLUMNS} FROM parts").fetchall()
        bodies = [(msgspec.json.encode(part_of(*stored)).decode(), row) for row, *stored in parts]
        empty = "text = NULL, output = NULL, shown = NULL, shown_between = NULL"
        db.executemany(f"UPDATE parts SET body = ?, {empty} WHERE id = ?", bodies)
        db.execute("UPDATE log_state SET codec_version = 2")
        db.execute("DELETE FROM renewal_backlog")
        db.execute(trigger)
        db.execute("COMMIT")
