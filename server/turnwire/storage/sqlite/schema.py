"""The schema, as numbered migrations.

Each migration runs in one transaction together with its own record. A released migration is never edited; a change is a
new one. `tests/contract` keeps a database file of every released version.
"""

import sqlite3

from turnwire.domain.errors import StorageCorrupt, StorageSchemaTooNew

_INITIAL = """
CREATE TABLE sessions (
    id              INTEGER PRIMARY KEY,
    session_id      TEXT NOT NULL UNIQUE,
    body            TEXT NOT NULL CHECK (json_valid(body)),
    head_sequence   INTEGER NOT NULL DEFAULT 0,
    pruned_through  INTEGER NOT NULL DEFAULT 0,
    updated_at_us   INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_by_update ON sessions (updated_at_us, id);

CREATE TABLE turns (
    id          INTEGER PRIMARY KEY,
    turn_id     TEXT NOT NULL UNIQUE,
    session     INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    ended       INTEGER NOT NULL,
    body        TEXT NOT NULL CHECK (json_valid(body))
) STRICT;
CREATE INDEX turns_by_session ON turns (session);
CREATE INDEX turns_unfinished ON turns (id) WHERE ended = 0;

-- place orders the messages of a session; a queued message gets a new place when its turn starts
CREATE TABLE messages (
    id          INTEGER PRIMARY KEY,
    message_id  TEXT NOT NULL UNIQUE,
    session     INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    queued      INTEGER NOT NULL,
    place       INTEGER NOT NULL,
    turn_id     TEXT NOT NULL,
    body        TEXT NOT NULL CHECK (json_valid(body)),
    display     BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX messages_in_order ON messages (session, queued, place);
CREATE INDEX messages_by_turn ON messages (turn_id) WHERE turn_id <> '';

CREATE TABLE files (
    id      INTEGER PRIMARY KEY,
    sha256  TEXT NOT NULL UNIQUE,
    content BLOB NOT NULL
) STRICT;

CREATE TABLE parts (
    id          INTEGER PRIMARY KEY,
    message     INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    part_index  INTEGER NOT NULL,
    body        TEXT NOT NULL CHECK (json_valid(body)),
    file        TEXT REFERENCES files (sha256)
) STRICT;
CREATE UNIQUE INDEX parts_in_order ON parts (message, part_index);
CREATE INDEX parts_by_file ON parts (file) WHERE file IS NOT NULL;

-- no reference to sessions: the last event of a deleted session stays, for those who watch all sessions
CREATE TABLE events (
    position    INTEGER PRIMARY KEY,
    session_id  TEXT NOT NULL,
    sequence    INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    frame       BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_in_order ON events (session_id, sequence);

CREATE TABLE log_state (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    pruned_through  INTEGER NOT NULL
) STRICT;
INSERT INTO log_state VALUES (1, 0);

CREATE TABLE requests (
    id              INTEGER PRIMARY KEY,
    request_id      TEXT NOT NULL UNIQUE,
    session         INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    fingerprint     TEXT NOT NULL,
    receipt         TEXT NOT NULL CHECK (json_valid(receipt)),
    before_sequence INTEGER NOT NULL
) STRICT;
CREATE INDEX requests_by_session ON requests (session);
"""

_PERMISSIONS_AND_RESULT_FILES = """
CREATE TABLE permissions (
    id             INTEGER PRIMARY KEY,
    permission_id  TEXT NOT NULL UNIQUE,
    session        INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    open           INTEGER NOT NULL,
    body           TEXT NOT NULL CHECK (json_valid(body))
) STRICT;
CREATE INDEX permissions_by_session ON permissions (session);
CREATE INDEX permissions_open ON permissions (id) WHERE open = 1;

-- the files of a tool call's result, which may be many; parts.file is the one of a file part
CREATE TABLE part_files (
    id    INTEGER PRIMARY KEY,
    part  INTEGER NOT NULL REFERENCES parts (id) ON DELETE CASCADE,
    file  TEXT NOT NULL REFERENCES files (sha256)
) STRICT;
CREATE UNIQUE INDEX part_files_of_part ON part_files (part, file);
CREATE INDEX part_files_by_file ON part_files (file);

-- what a session has spent is asked for often, and a turn's body holds all of its tools
CREATE INDEX turns_spent ON turns (
    session,
    json_extract(body, '$.usage'),
    coalesce(json_extract(body, '$.cost_pico_usd'), json_extract(body, '$.known_cost_pico_usd'))
) WHERE ended = 1;
"""

_TOOL_CALLS_BY_ID = """
-- the part id of a tool call, by which its result comes; NULL for all other parts
ALTER TABLE parts ADD COLUMN tool_call_id TEXT;
UPDATE parts SET tool_call_id = json_extract(body, '$.part_id')
WHERE json_extract(body, '$.content.type') = 'tool_use';
CREATE INDEX parts_by_tool_call ON parts (tool_call_id) WHERE tool_call_id IS NOT NULL;
"""

_REQUESTS_OF_PRINCIPALS = """
-- callers are told apart: two may use one name. Before, all of them were the built-in principal
CREATE TABLE requests_of_principals (
    id              INTEGER PRIMARY KEY,
    tenant          TEXT NOT NULL,
    subject         TEXT NOT NULL,
    request_id      TEXT NOT NULL,
    session         INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    fingerprint     TEXT NOT NULL,
    receipt         TEXT NOT NULL CHECK (json_valid(receipt)),
    before_sequence INTEGER NOT NULL,
    UNIQUE (tenant, subject, request_id)
) STRICT;
INSERT INTO requests_of_principals (id, tenant, subject, request_id, session, fingerprint, receipt, before_sequence)
SELECT id, 'default', '', request_id, session, fingerprint, receipt, before_sequence FROM requests;
DROP TABLE requests;
ALTER TABLE requests_of_principals RENAME TO requests;
CREATE INDEX requests_by_session ON requests (session);
"""

_TURN_NUMBERS = """
-- how often the queue changed, and between which events a turn ran; 0 where that was not kept
ALTER TABLE sessions ADD COLUMN queue_revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN start_sequence INTEGER NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN end_sequence INTEGER NOT NULL DEFAULT 0;
"""

_TIMELINES = """
-- one row for each start of the server; see storage/sqlite/timelines.py
CREATE TABLE timelines (
    id              INTEGER PRIMARY KEY,
    timeline        TEXT NOT NULL UNIQUE,
    start_position  INTEGER NOT NULL
) STRICT;

-- the newest position that a session lost: a watch of all sessions reads that session anew, and no other
ALTER TABLE sessions ADD COLUMN pruned_position INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_pruned ON sessions (pruned_position) WHERE pruned_position > 0;
"""

_CODEC_VERSIONS = """
-- which version of the codec has made what is encoded; see storage/sqlite/renewal.py. That of earlier servers was 1
ALTER TABLE messages ADD COLUMN display_version INTEGER NOT NULL DEFAULT 1;
ALTER TABLE log_state ADD COLUMN codec_version INTEGER NOT NULL DEFAULT 1;
"""

_MESSAGES_BEFORE = """
-- the message before this one in its conversation; '' for the first one and for queued ones
ALTER TABLE messages ADD COLUMN previous TEXT NOT NULL DEFAULT '';
UPDATE messages SET previous = coalesce((
    SELECT before.message_id FROM messages AS before
    WHERE before.session = messages.session AND before.queued = 0 AND before.place < messages.place
    ORDER BY before.place DESC LIMIT 1
), '') WHERE queued = 0;

-- messages name their request; before, only the receipt of the request named the message
UPDATE messages SET body = json_set(messages.body, '$.request_id', requests.request_id)
FROM requests WHERE messages.message_id = json_extract(requests.receipt, '$.message_id');
"""

_TENANTS_OF_SESSIONS = """
-- the owner; before, all sessions were those of the built-in principal
ALTER TABLE sessions ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
DROP INDEX sessions_by_update;
CREATE INDEX sessions_by_update ON sessions (tenant, updated_at_us, session_id);
-- by which one session is found: looking for that of another tenant reads no more than looking for an unknown one
CREATE UNIQUE INDEX sessions_of_tenants ON sessions (tenant, session_id);
DROP INDEX sessions_pruned;
CREATE INDEX sessions_pruned ON sessions (tenant, pruned_position) WHERE pruned_position > 0;

ALTER TABLE permissions ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
DROP INDEX permissions_open;
CREATE INDEX permissions_open ON permissions (tenant, id) WHERE open = 1;
"""

_TENANTS_OF_EVENTS = """
-- an index ends with the position, so this one has a tenant's events in their order
ALTER TABLE events ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
CREATE INDEX events_of_tenants ON events (tenant);
"""

_TENANTS_OF_FILES = """
-- equal bytes of two tenants are two files, so that neither notices the other's. parts refer to the row of a file
CREATE TABLE files_of_tenants (
    id      INTEGER PRIMARY KEY,
    tenant  TEXT NOT NULL,
    sha256  TEXT NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (tenant, sha256)
) STRICT;
INSERT INTO files_of_tenants (id, tenant, sha256, content) SELECT id, 'default', sha256, content FROM files;

CREATE TABLE parts_with_files (
    id            INTEGER PRIMARY KEY,
    message       INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    part_index    INTEGER NOT NULL,
    body          TEXT NOT NULL CHECK (json_valid(body)),
    file          INTEGER REFERENCES files_of_tenants (id),
    tool_call_id  TEXT
) STRICT;
INSERT INTO parts_with_files (id, message, part_index, body, file, tool_call_id)
SELECT parts.id, message, part_index, body, files.id, tool_call_id FROM parts LEFT JOIN files ON files.sha256 = file;

CREATE TABLE files_of_parts (
    id    INTEGER PRIMARY KEY,
    part  INTEGER NOT NULL REFERENCES parts_with_files (id) ON DELETE CASCADE,
    file  INTEGER NOT NULL REFERENCES files_of_tenants (id)
) STRICT;
INSERT INTO files_of_parts (id, part, file)
SELECT part_files.id, part, files.id FROM part_files JOIN files ON files.sha256 = file;

-- what refers to a table goes before the table
DROP TABLE part_files;
DROP TABLE parts;
DROP TABLE files;
ALTER TABLE files_of_tenants RENAME TO files;
ALTER TABLE parts_with_files RENAME TO parts;
ALTER TABLE files_of_parts RENAME TO part_files;
CREATE UNIQUE INDEX parts_in_order ON parts (message, part_index);
CREATE INDEX parts_by_file ON parts (file) WHERE file IS NOT NULL;
CREATE INDEX parts_by_tool_call ON parts (tool_call_id) WHERE tool_call_id IS NOT NULL;
CREATE UNIQUE INDEX part_files_of_part ON part_files (part, file);
CREATE INDEX part_files_by_file ON part_files (file);
"""

_TOKEN_KEY = """
-- seals the resume tokens of this database; see storage/sqlite/timelines.py. Made at the first start
ALTER TABLE log_state ADD COLUMN token_key BLOB NOT NULL DEFAULT x'';
"""

_STORED_BYTES = """
-- bytes of the parts of a session's messages. Those of a tenant's files are the lengths of files.content
ALTER TABLE sessions ADD COLUMN stored_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET stored_bytes = (
    SELECT coalesce(sum(length(CAST(parts.body AS BLOB))), 0)
    FROM messages JOIN parts ON parts.message = messages.id WHERE messages.session = sessions.id
);
CREATE TRIGGER part_added AFTER INSERT ON parts BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes + length(CAST(new.body AS BLOB))
    WHERE id = (SELECT session FROM messages WHERE id = new.message);
END;
CREATE TRIGGER part_changed AFTER UPDATE OF body ON parts BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes + length(CAST(new.body AS BLOB)) - length(CAST(old.body AS BLOB))
    WHERE id = (SELECT session FROM messages WHERE id = new.message);
END;
-- parts go with their message; a session that is removed is gone before its messages
CREATE TRIGGER message_removed BEFORE DELETE ON messages BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes - (
        SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM parts WHERE message = old.id
    ) WHERE id = old.session;
END;
"""

_USAGE = """
-- what model calls have used, by quarter of an hour since 1970; stays when the session is removed. NULL: nothing known
CREATE TABLE usage (
    id                   INTEGER PRIMARY KEY,
    tenant               TEXT NOT NULL,
    quarter              INTEGER NOT NULL,
    session_id           TEXT NOT NULL,
    subject              TEXT NOT NULL,
    provider_id          TEXT NOT NULL,
    model_id             TEXT NOT NULL,
    input_tokens         INTEGER,
    cache_read_tokens    INTEGER,
    cache_write_tokens   INTEGER,
    output_tokens        INTEGER,
    reasoning_tokens     INTEGER,
    shown_output_tokens  INTEGER,
    cost_pico_usd        INTEGER,
    steps                INTEGER NOT NULL,
    steps_without_price  INTEGER NOT NULL,
    turns                INTEGER NOT NULL,
    UNIQUE (tenant, quarter, session_id, subject, provider_id, model_id)
) STRICT;

-- the ended steps and summaries that are still there, and then the turns
INSERT INTO usage (
    tenant, quarter, session_id, subject, provider_id, model_id,
    input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, shown_output_tokens,
    cost_pico_usd, steps, steps_without_price, turns
)
WITH calls AS (
    SELECT tenant, session_id, strftime('%s', json_extract(messages.body, '$.updated_at')) / 900 AS quarter,
        json_extract(messages.body, '$.model_run.provider_id') AS provider_id,
        json_extract(messages.body, '$.model_run.model_requested') AS model_id,
        json_extract(messages.body, '$.usage.input_tokens') AS input,
        json_extract(messages.body, '$.usage.cache_read_tokens') AS cache_read,
        json_extract(messages.body, '$.usage.cache_write_tokens') AS cache_write,
        json_extract(messages.body, '$.usage.output_tokens') AS output,
        json_extract(messages.body, '$.usage.reasoning_tokens') AS reasoning,
        json_extract(messages.body, '$.usage.reported_output_tokens') AS reported,
        json_extract(messages.body, '$.cost_pico_usd') AS cost,
        json_extract(messages.body, '$.usage') IS NOT NULL
            OR EXISTS (SELECT 1 FROM parts WHERE message = messages.id) AS has_answer
    FROM messages JOIN sessions ON sessions.id = messages.session
    WHERE json_extract(messages.body, '$.model_run') IS NOT NULL
        AND json_extract(messages.body, '$.status') <> 'streaming'
)
SELECT tenant, quarter, session_id, '', provider_id, model_id,
    sum(input), sum(cache_read), sum(cache_write), sum(output), sum(reasoning),
    sum(coalesce(reported, output + reasoning, output, reasoning)),
    sum(cost), count(*), sum(cost IS NULL AND has_answer), 0
FROM calls GROUP BY 1, 2, 3, 4, 5, 6;

INSERT INTO usage (tenant, quarter, session_id, subject, provider_id, model_id, steps, steps_without_price, turns)
SELECT tenant, strftime('%s', json_extract(turns.body, '$.ended_at')) / 900, session_id, '',
    json_extract(turns.body, '$.model.provider_id'), json_extract(turns.body, '$.model.model_id'), 0, 0, count(*)
FROM turns JOIN sessions ON sessions.id = turns.session
WHERE ended = 1 AND coalesce(json_extract(turns.body, '$.steps'), json_extract(turns.body, '$.started_at')) IS NOT NULL
GROUP BY 1, 2, 3, 4, 5, 6
ON CONFLICT (tenant, quarter, session_id, subject, provider_id, model_id) DO UPDATE SET turns = excluded.turns;
"""

MIGRATIONS: tuple[str, ...] = (
    _INITIAL,
    _PERMISSIONS_AND_RESULT_FILES,
    _TOOL_CALLS_BY_ID + _REQUESTS_OF_PRINCIPALS + _TURN_NUMBERS + _TIMELINES + _CODEC_VERSIONS + _MESSAGES_BEFORE,
    _TENANTS_OF_SESSIONS + _TENANTS_OF_EVENTS + _TENANTS_OF_FILES + _TOKEN_KEY + _STORED_BYTES + _USAGE,
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


def _statements(script: str) -> list[str]:
    """Splits a migration into statements; `executescript` would commit before it begins."""
    statements, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements
