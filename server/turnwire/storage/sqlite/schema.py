"""The schema of a file, and the migrations to it: the tables of both engines, and what SQLite alone has.

SQLite keeps the version of the schema in the file (`PRAGMA user_version`), and the program that the file belongs to
(`PRAGMA application_id`). A released schema is never edited: a change is a further element of `MIGRATIONS`, which runs
in one transaction together with its version, and `tests/contract` keeps a file of every released schema.
"""

import sqlite3

from turnwire.domain.errors import StorageCorrupt, StorageError, StorageSchemaTooNew
from turnwire.storage.sql.schema import MARK, TABLES, Unfinished

APPLICATION_ID = 0x7457_6972
"""The application id in the files of Turnwire: "tWir"."""

SCHEMA = f"""{TABLES}
-- what readers know of sessions. SQLite refuses queries that name an index of live ones and lack its condition
CREATE VIEW live_sessions AS SELECT * FROM sessions WHERE state = 'live';
-- with the state, so that a list reads nothing but its index
CREATE INDEX sessions_by_title ON sessions (tenant, archived, title_key, session_id, state) WHERE state = 'live';

-- by what sessions are found: their labels, as key=value, and their directory, as @path. See storage/sql/sessions.py
CREATE TABLE session_facets (
    tenant   TEXT NOT NULL,
    facet    TEXT NOT NULL,
    session  INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    PRIMARY KEY (tenant, facet, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_facets_of_sessions ON session_facets (session);

-- what a session has spent is asked for often
CREATE INDEX turns_spent ON turns (
    session,
    json_extract(body, '$.usage'),
    coalesce(json_extract(body, '$.cost_pico_usd'), json_extract(body, '$.known_cost_pico_usd'))
) WHERE ended = 1;

CREATE UNIQUE INDEX messages_in_order ON messages (session, on_path, queued, place);
CREATE INDEX tool_calls_of_messages ON tool_calls (message, call_id);
-- an index ends with the position, so this one has a tenant's events in their order
CREATE INDEX events_of_tenants ON events (tenant);

-- the words of messages; see storage/sql/words.py. Has no text of its own
CREATE VIRTUAL TABLE search_index USING fts5(terms, content = '', tokenize = "ascii tokenchars '_.'");
"""

MIGRATIONS: tuple[str, ...] = (SCHEMA,)
"""Element n - 1 turns schema n - 1 into schema n."""


def schema_version(connection: sqlite3.Connection, *, takes_unfinished: bool = False) -> int:
    """Returns the version of the schema; 0 when the file is empty. Changes nothing.

    Args:
        connection: The database.
        takes_unfinished: Whether it may be the target of a move that has not ended.

    Raises:
        StorageCorrupt: the file is another program's database.
        StorageSchemaTooNew: a newer version of Turnwire has written it.
        StorageError: a version before 0.1.0 has written it.
        Unfinished: a move to it has not ended.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if MARK in tables and not takes_unfinished:
        raise Unfinished
    if not tables - {MARK} and not version:
        return 0
    if application != APPLICATION_ID:
        if "schema_migrations" in tables:  # where versions before 0.1.0 kept their version
            raise StorageError(
                "a version of Turnwire from before 0.1.0 has written the database: export its sessions with that"
                " version, and import them into a new database"
            )
        raise StorageCorrupt("the file is an SQLite database, but not a Turnwire database")
    if version > len(MIGRATIONS):
        text = f"the database has schema version {version}, this version knows {len(MIGRATIONS)}: use a newer one"
        raise StorageSchemaTooNew(text, {"version": str(version), "known": str(len(MIGRATIONS))})
    return int(version)


def migrate(connection: sqlite3.Connection, *, takes_unfinished: bool = False) -> None:
    """Brings the database to the newest schema. Idempotent.

    Raises:
        StorageCorrupt, StorageSchemaTooNew, StorageError: see `schema_version`; nothing was changed.
    """
    version = schema_version(connection, takes_unfinished=takes_unfinished)
    connection.execute("BEGIN IMMEDIATE")  # a file that cannot be written fails the start, not the first message
    connection.execute("ROLLBACK")
    for number in range(version + 1, len(MIGRATIONS) + 1):
        # one script, because it would commit a transaction that was begun before it
        mark = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {number}"
        try:
            connection.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[number - 1]}; {mark}; COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
