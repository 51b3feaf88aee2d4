"""Integrity of a database as SQLite reports it, and the row counts of its tables."""

import sqlite3

from msgspec import Struct

MAX_LINES = 100
"""Maximum lines of `PRAGMA integrity_check`; further ones add nothing."""


class IntegrityReport(Struct, frozen=True):
    """The integrity and the row counts of a database. Equal for a database and a copy of it."""

    integrity: tuple[str, ...]
    """The lines of `PRAGMA integrity_check`: only "ok" when pages, rows and indexes agree."""
    lost_references: dict[str, int]
    """Number of rows that refer to a missing row, by table; -1 where the file is too damaged to count."""
    rows: dict[str, int]
    """Number of rows of each table; -1 where the file is too damaged to count."""

    @property
    def is_whole(self) -> bool:
        """Returns whether SQLite finds no damage."""
        return self.integrity == ("ok",)


def integrity_report(db: sqlite3.Connection) -> IntegrityReport:
    """Reads the complete database."""
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    tables = [name for name in names if not name.startswith("sqlite_")]
    rows = {name: _count(db, f'SELECT count(*) FROM "{name}"') for name in tables}
    lost = {name: _count(db, f"SELECT count(*) FROM pragma_foreign_key_check('{name}')") for name in tables}
    return IntegrityReport(_integrity(db), {name: count for name, count in lost.items() if count}, rows)


def _integrity(db: sqlite3.Connection) -> tuple[str, ...]:
    try:
        return tuple(" ".join(line.split()) for (line,) in db.execute(f"PRAGMA integrity_check({MAX_LINES})"))
    except sqlite3.OperationalError:  # busy, or an I/O error
        raise
    except sqlite3.DatabaseError as error:
        return (str(error),)


def _count(db: sqlite3.Connection, query: str) -> int:
    try:
        (count,) = db.execute(query).fetchone()
    except sqlite3.OperationalError:  # busy, or an I/O error
        raise
    except sqlite3.DatabaseError:
        return -1
    return int(count)
