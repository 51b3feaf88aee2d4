"""The schema, as numbered migrations.

Each migration runs in one transaction together with its own record. A released migration is never edited; a change is a
new one. `tests/contract` keeps a database file of every released version.
"""

import sqlite3
from datetime import datetime

from turnwire.domain.errors import StorageCorrupt, StorageSchemaTooNew
from turnwire.domain.text import folded
from turnwire.storage.sqlite.schema import version_1, version_2, version_3, version_4, version_5, version_6, version_7

MIGRATIONS: tuple[str, ...] = (
    version_1.MIGRATION,
    version_2.MIGRATION,
    version_3.MIGRATION,
    version_4.MIGRATION,
    version_5.MIGRATION,
    version_6.MIGRATION,
    version_7.MIGRATION,
)
"""Migration n (from 1) is element n - 1."""


def schema_version(connection: sqlite3.Connection) -> int:
    """Returns the version of the schema; 0 when the file is empty. Changes nothing.

    Raises:
        StorageCorrupt: the file is another program's database.
        StorageSchemaTooNew: a newer version of Turnwire has written it.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return 0
    if "schema_migrations" not in tables:
        raise StorageCorrupt("the file is an SQLite database, but not a Turnwire database")
    (version,) = connection.execute("SELECT coalesce(max(version), 0) FROM schema_migrations").fetchone()
    if version > len(MIGRATIONS):
        text = f"the database has schema version {version}, this version knows {len(MIGRATIONS)}: use a newer one"
        raise StorageSchemaTooNew(text, {"version": str(version), "known": str(len(MIGRATIONS))})
    return int(version)


def migrate(connection: sqlite3.Connection) -> None:
    """Brings the database to the newest schema. Idempotent.

    Raises:
        StorageCorrupt, StorageSchemaTooNew: see `schema_version`; nothing was changed.
    """
    version = schema_version(connection)
    connection.execute("BEGIN IMMEDIATE")  # a file that cannot be written fails the start, not the first message
    connection.execute("ROLLBACK")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations ("
        "version INTEGER PRIMARY KEY, applied_at TEXT NOT NULL DEFAULT (datetime('now'))) STRICT"
    )
    connection.create_function("folded", 1, folded, deterministic=True)
    connection.create_function("microseconds", 1, _microseconds, deterministic=True)
    for number in range(version + 1, len(MIGRATIONS) + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in _statements(MIGRATIONS[number - 1]):
                connection.execute(statement)
            connection.execute("INSERT INTO schema_migrations (version) VALUES (?)", (number,))
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def _microseconds(at: str) -> int:
    """Returns a time of a body as columns have it."""
    return round(datetime.fromisoformat(at).timestamp() * 1_000_000)


def _statements(script: str) -> list[str]:
    """Splits a migration into statements; `executescript` would commit before it begins."""
    statements, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements
