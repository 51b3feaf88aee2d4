"""The file as SQLite sees it: pages, indexes, references between tables, and the schema."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

from turnwire.storage.sqlite.care.findings import Finding, Problem, Severity, Statement
from turnwire.storage.sqlite.schema import migrate

DAMAGED_FILE = Problem("file.damaged", Severity.ERROR, "SQLite finds the file damaged: restore a backup")
DAMAGED_INDEX = Problem("file.index", Severity.ERROR, "an index does not agree with its table")
CHANGED_TABLE = Problem("schema.table", Severity.ERROR, "a table is missing or is not as Turnwire made it")
CHANGED_INDEX = Problem("schema.index", Severity.ERROR, "an index or a trigger is missing, or not as Turnwire made it")
FOREIGN = Problem("schema.foreign", Severity.NOTE, "something in the schema was not made by Turnwire")
LOST_OWNER = Problem("references.owner", Severity.ERROR, "a row belongs to something that is missing")
LOST_FILE = Problem("references.file", Severity.ERROR, "a part names a file whose bytes are not stored")

MAX_LINES = 100
"""Of SQLite's own findings; more of them say nothing new."""

_OF_INDEX = re.compile(r"(?:row \d+ missing from|wrong # of entries in|non-unique entry in) index (\w+)")
_OWNERS = {"session_facets": "session", "part_growth": "part"}
"""The columns that refer to owners, in tables whose rows have no number."""


def check_pages(db: sqlite3.Connection) -> Iterator[Finding]:
    """Finds damaged pages, rows that break a rule of their table, and indexes that do not agree with it."""
    for (line,) in db.execute(f"PRAGMA integrity_check({MAX_LINES})"):
        if line == "ok":
            continue
        if index := _OF_INDEX.search(line):
            yield Finding(DAMAGED_INDEX, index[1], (Statement(f'REINDEX "{index[1]}"'),))
        else:
            yield Finding(DAMAGED_FILE, " ".join(line.split()))


def check_schema(db: sqlite3.Connection) -> Iterator[Finding]:
    """Compares tables and indexes with those of a new database."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        migrate(new)
        expected = _objects(new)
    found = _objects(db)
    for name, (kind, sql) in expected.items():
        if found.get(name) == (kind, sql):
            continue
        if kind in ("index", "trigger"):
            make = (Statement(f'DROP {kind} IF EXISTS "{name}"'), Statement(sql))
            yield Finding(CHANGED_INDEX, name, make)
        else:
            yield Finding(CHANGED_TABLE, name)
    for name in found.keys() - expected.keys():
        yield Finding(FOREIGN, name)


def check_references(db: sqlite3.Connection) -> Iterator[Finding]:
    """Finds rows whose owner is missing, and parts whose file is missing."""
    for table, row, parent, _ in db.execute("PRAGMA foreign_key_check"):
        subject = f"{table} {row}"
        if parent == "files":
            yield Finding(LOST_FILE, subject)
        elif row is None:  # of a table whose rows have no number
            remove = f'DELETE FROM "{table}" WHERE {_OWNERS[table]} NOT IN (SELECT id FROM "{parent}")'
            yield Finding(LOST_OWNER, subject, (Statement(remove),))
        else:
            yield Finding(LOST_OWNER, subject, (Statement(f'DELETE FROM "{table}" WHERE rowid = ?', (row,)),))


def _objects(db: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    """Returns kind and definition by name; indexes that belong to a constraint have no definition and are left out."""
    rows = db.execute("SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'")
    return {name: (kind, " ".join(sql.split())) for name, kind, sql in rows}
