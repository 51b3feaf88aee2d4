"""The schema of the database, and the migrations to it.

The tables and their columns are those of SQLite; `storage/sqlite/schema.py` describes them. The differences: `shard`
divides the work among several servers, keys may be longer than what an index takes, and numbers of rows come from a
sequence.

A released schema is never edited: a change is a further element of `MIGRATIONS`. It only adds, so that the previous
version can continue to use the database (expand). What only that version needed is removed in the next release
(contract). So a database may be at most one release ahead of a server.
"""

from turnwire.domain.errors import StorageCorrupt, StorageSchemaTooNew
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.unfinished import MARK, Unfinished

_LOCK = 0x7457_6972
"""Held while the schema changes, so that servers that start at the same time change it one after the other."""

SCHEMA = """
CREATE SEQUENCE row_numbers INCREMENT BY 1000;

CREATE TABLE sessions (
    id               bigint PRIMARY KEY,
    session_id       text NOT NULL UNIQUE,
    tenant           text NOT NULL,
    state            text NOT NULL DEFAULT 'live' CHECK (state IN ('importing', 'live', 'deleting')),
    joins            bigint,
    body             text NOT NULL,
    body_bytes       bigint NOT NULL,
    revision         bigint NOT NULL,
    is_titled        smallint NOT NULL,
    first_words      text NOT NULL DEFAULT '',
    head_sequence    bigint NOT NULL DEFAULT 0,
    pruned_through   bigint NOT NULL DEFAULT 0,
    pruned_position  bigint NOT NULL DEFAULT 0,
    updated_at_us    bigint NOT NULL,
    queue_revision   bigint NOT NULL DEFAULT 0,
    stored_bytes     bigint NOT NULL DEFAULT 0,
    branched_at      bigint NOT NULL DEFAULT 0,
    last_place       bigint NOT NULL DEFAULT 0,
    tip              text NOT NULL DEFAULT '',
    archived         smallint NOT NULL DEFAULT 0,
    archived_at_us   bigint NOT NULL DEFAULT 0,
    created_at_us    bigint NOT NULL DEFAULT 0,
    title_key        text NOT NULL DEFAULT '',
    shard            smallint NOT NULL
);
CREATE UNIQUE INDEX sessions_of_tenants ON sessions (tenant, session_id) WHERE state = 'live';
CREATE INDEX sessions_by_update ON sessions (tenant, archived, updated_at_us, session_id, state) WHERE state = 'live';
CREATE INDEX sessions_by_creation ON sessions (tenant, archived, created_at_us, session_id, state) WHERE state = 'live';
-- a title may have more bytes than an index takes
CREATE INDEX sessions_by_title ON sessions (tenant, archived, left(title_key, 100), session_id) WHERE state = 'live';
CREATE INDEX sessions_pruned ON sessions (tenant, pruned_position) WHERE state = 'live' AND pruned_position > 0;
CREATE INDEX sessions_not_live ON sessions (state) WHERE state <> 'live';
CREATE INDEX sessions_of_shards ON sessions (shard);
CREATE VIEW live_sessions AS SELECT * FROM sessions WHERE state = 'live';

CREATE TABLE session_facets (
    tenant   text NOT NULL,
    facet    text NOT NULL,
    session  bigint NOT NULL REFERENCES sessions (id) ON DELETE CASCADE
);
-- a facet may have more bytes than another index takes
CREATE INDEX session_facets_by_facet ON session_facets USING hash (facet);
CREATE INDEX session_facets_of_sessions ON session_facets (session);

CREATE TABLE turns (
    id              bigint PRIMARY KEY,
    turn_id         text NOT NULL UNIQUE,
    session         bigint NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    ended           smallint NOT NULL,
    body            text NOT NULL,
    settings        text,
    start_sequence  bigint NOT NULL DEFAULT 0,
    end_sequence    bigint NOT NULL DEFAULT 0,
    first_sequence  bigint NOT NULL DEFAULT 0
);
CREATE INDEX turns_by_session ON turns (session);
CREATE INDEX turns_unfinished ON turns (id) WHERE ended = 0;

CREATE TABLE messages (
    id               bigint PRIMARY KEY,
    message_id       text NOT NULL UNIQUE,
    session          bigint NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    queued           smallint NOT NULL,
    place            bigint NOT NULL,
    version          bigint NOT NULL,
    on_path          smallint NOT NULL DEFAULT 1,
    taken_back       bigint NOT NULL,
    turn_id          text NOT NULL,
    previous         text NOT NULL,
    branch_turn      text,
    times            bytea NOT NULL,
    sent_context     bytea,
    body             text NOT NULL,
    parts            bytea NOT NULL,
    provider_states  bytea,
    -- looked at behind a statement: one that moves many may pass a place that another one leaves
    CONSTRAINT messages_in_order UNIQUE (session, on_path, queued, place) DEFERRABLE INITIALLY IMMEDIATE
);
CREATE INDEX messages_by_turn ON messages (turn_id) WHERE turn_id <> '';
CREATE INDEX messages_off_path ON messages (session, previous, place) WHERE on_path = 0 AND taken_back = 1099511627776;

CREATE TABLE undos (
    session   bigint NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    sequence  bigint NOT NULL,
    first     text NOT NULL,
    PRIMARY KEY (session, sequence)
);

CREATE TABLE files (
    id       bigint PRIMARY KEY,
    tenant   text NOT NULL,
    sha256   text NOT NULL,
    content  bytea NOT NULL,
    UNIQUE (tenant, sha256)
);

CREATE TABLE message_files (
    message  bigint NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    file     bigint NOT NULL REFERENCES files (id),
    PRIMARY KEY (message, file)
);
CREATE INDEX message_files_by_file ON message_files (file);

CREATE TABLE drafts (
    message  bigint NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    n        bigint NOT NULL,
    body     bytea NOT NULL,
    PRIMARY KEY (message, n)
);

CREATE TABLE imported_files (
    session  bigint NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    file     bigint NOT NULL REFERENCES files (id),
    PRIMARY KEY (session, file)
);
CREATE INDEX imported_files_by_file ON imported_files (file);

CREATE TABLE tool_calls (
    tool_call_id  text NOT NULL,
    message       bigint NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    call_id       text NOT NULL,
    PRIMARY KEY (tool_call_id, message)
);
CREATE INDEX tool_calls_of_messages ON tool_calls (message);

CREATE TABLE open_calls (
    message       bigint NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    part_index    bigint NOT NULL,
    session       bigint NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    tenant        text NOT NULL,
    tool          text NOT NULL,
    tool_call_id  text NOT NULL,
    since_us      bigint NOT NULL,
    PRIMARY KEY (message, part_index)
);
CREATE INDEX open_calls_of_tenants ON open_calls (tenant, since_us, tool_call_id);
CREATE INDEX open_calls_of_sessions ON open_calls (session, since_us, tool_call_id);

CREATE TABLE permissions (
    id             bigint PRIMARY KEY,
    permission_id  text NOT NULL UNIQUE,
    session        bigint NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    tenant         text NOT NULL,
    open           smallint NOT NULL,
    body           text NOT NULL
);
CREATE INDEX permissions_by_session ON permissions (session);
CREATE INDEX permissions_open ON permissions (tenant, id) WHERE open = 1;

CREATE TABLE questions (
    id           bigint PRIMARY KEY,
    question_id  text NOT NULL UNIQUE,
    session      bigint NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    tenant       text NOT NULL,
    open         smallint NOT NULL,
    body         text NOT NULL,
    hold         text
);
CREATE INDEX questions_by_session ON questions (session, open, id);
CREATE INDEX questions_open ON questions (tenant, id) WHERE open = 1;
CREATE INDEX questions_held ON questions (session, id) WHERE hold IS NOT NULL;

CREATE TABLE events (
    position    bigint PRIMARY KEY,
    session_id  text NOT NULL,
    sequence    bigint NOT NULL,
    at_us       bigint NOT NULL,
    turn_id     bytea NOT NULL,
    kind        bigint NOT NULL,
    message_id  bytea NOT NULL,
    facts       bytea NOT NULL,
    tenant      text NOT NULL
);
CREATE UNIQUE INDEX events_in_order ON events (session_id, sequence);
CREATE INDEX events_of_tenants ON events (tenant, position);

CREATE TABLE log_state (
    id              bigint PRIMARY KEY CHECK (id = 1),
    pruned_through  bigint NOT NULL,
    newest_dropped  bigint NOT NULL,
    token_key       bytea NOT NULL
);
INSERT INTO log_state VALUES (1, 0, 0, '');

CREATE TABLE timelines (
    id              bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    timeline        text NOT NULL UNIQUE,
    start_position  bigint NOT NULL
);

CREATE TABLE requests (
    tenant           text NOT NULL,
    subject          text NOT NULL,
    request_id       text NOT NULL,
    session          bigint NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    fingerprint      text NOT NULL,
    receipt          text NOT NULL CHECK (receipt::json IS NOT NULL),
    before_sequence  bigint NOT NULL,
    PRIMARY KEY (tenant, subject, request_id)
);
CREATE INDEX requests_by_session ON requests (session);

CREATE TABLE tenant_totals (
    tenant        text PRIMARY KEY,
    sessions      bigint NOT NULL,
    stored_bytes  bigint NOT NULL
);

CREATE TABLE usage (
    tenant               text NOT NULL,
    quarter              bigint NOT NULL,
    session_id           text NOT NULL,
    subject              text NOT NULL,
    provider_id          text NOT NULL,
    model_id             text NOT NULL,
    input_tokens         bigint,
    cache_read_tokens    bigint,
    cache_write_tokens   bigint,
    output_tokens        bigint,
    reasoning_tokens     bigint,
    shown_output_tokens  bigint,
    cost_pico_usd        bigint,
    steps                bigint NOT NULL,
    steps_without_price  bigint NOT NULL,
    turns                bigint NOT NULL,
    estimated_steps      bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, quarter, session_id, subject, provider_id, model_id)
);

CREATE TABLE usage_days (
    tenant         text NOT NULL,
    day            bigint NOT NULL,
    tokens         bigint NOT NULL,
    cost_pico_usd  bigint NOT NULL,
    PRIMARY KEY (tenant, day)
);

CREATE TABLE uploads (
    id              bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    tenant          text NOT NULL,
    upload_id       text NOT NULL,
    subject         text NOT NULL,
    mime            text NOT NULL,
    filename        text NOT NULL,
    size_bytes      bigint NOT NULL,
    received_bytes  bigint NOT NULL DEFAULT 0,
    sealed          smallint NOT NULL DEFAULT 0,
    sha256          text NOT NULL DEFAULT '',
    created_at_us   bigint NOT NULL,
    expires_at_us   bigint NOT NULL,
    removed         smallint NOT NULL DEFAULT 0,
    request_id      text NOT NULL DEFAULT '',
    fingerprint     text NOT NULL DEFAULT '',
    receipt         text NOT NULL DEFAULT '',
    shard           smallint NOT NULL,
    UNIQUE (tenant, upload_id)
);
CREATE UNIQUE INDEX uploads_by_request ON uploads (tenant, subject, request_id) WHERE request_id <> '';
CREATE INDEX uploads_of_tenants ON uploads (tenant) WHERE removed = 0;
CREATE INDEX uploads_by_expiry ON uploads (expires_at_us) WHERE removed = 0;
CREATE INDEX uploads_removed ON uploads (id) WHERE removed = 1;
CREATE INDEX uploads_removed_of_tenants ON uploads (tenant, received_bytes) WHERE removed = 1;

CREATE TABLE upload_blocks (
    id      bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    upload  bigint NOT NULL REFERENCES uploads (id),
    number  bigint NOT NULL,
    bytes   bytea NOT NULL,
    UNIQUE (upload, number)
);

CREATE TABLE search_index (
    rowid  bigint PRIMARY KEY,
    terms  tsvector NOT NULL
);
CREATE INDEX search_index_terms ON search_index USING gin (terms);

CREATE TABLE search_entries (
    id          bigint PRIMARY KEY,
    message     bigint NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    part_index  bigint NOT NULL,
    at_us       bigint NOT NULL,
    words       bigint NOT NULL,
    excerpt     text
);
CREATE UNIQUE INDEX search_entries_of_messages ON search_entries (message, part_index);

CREATE TABLE search_state (
    id       bigint PRIMARY KEY CHECK (id = 1),
    version  text NOT NULL,
    below    bigint NOT NULL
);
INSERT INTO search_state VALUES (1, '', 0);
"""

SEVERAL_SERVERS = """
-- which history of the database positions and timelines are of, and how often a server has begun to write to it
CREATE TABLE lineage (
    id               bigint PRIMARY KEY CHECK (id = 1),
    history          text NOT NULL,
    position_offset  bigint NOT NULL,
    starts           bigint NOT NULL
);
INSERT INTO lineage VALUES (1, '', 0, 0);

-- where a server is reached, by the process of PostgreSQL that serves its writing connection
CREATE TABLE nodes (
    pid      bigint PRIMARY KEY,
    address  text NOT NULL
);
"""

TOKENS = """
-- the tokens of callers, which SQLite has in a file of their own
CREATE TABLE tokens (
    token_id         text PRIMARY KEY,
    token_hash       bytea NOT NULL UNIQUE,
    tenant           text NOT NULL,
    subject          text NOT NULL,
    role             text NOT NULL,
    created_at_ms    bigint NOT NULL,
    expires_at_ms    bigint,
    last_used_at_ms  bigint,
    revoked_at_ms    bigint
);
"""

MIGRATIONS: tuple[str, ...] = (SCHEMA, SEVERAL_SERVERS, TOKENS)
"""Element n - 1 turns schema n - 1 into schema n. Texts are compared by their bytes, as in SQLite."""

TOKENS_VERSION = MIGRATIONS.index(TOKENS) + 1
"""The first schema that has tokens."""

AHEAD = 1
"""Number of migrations of the next release with which this one can work."""


def schema_version(db: Database, *, takes_unfinished: bool = False) -> int:
    """Returns the version of the schema; 0 when the database is empty. Changes nothing.

    Args:
        db: The database.
        takes_unfinished: Whether it may be the target of a move that has not ended.

    Raises:
        StorageCorrupt: it has other tables.
        StorageSchemaTooNew: a version of Turnwire after the next one has written it.
        Unfinished: a move to it has not ended.
    """
    found = db.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()")
    tables = {name for (name,) in found}
    if MARK in tables and not takes_unfinished:
        raise Unfinished
    if "schema_version" not in tables:
        if tables - {MARK}:
            raise StorageCorrupt("the database is not empty, and not a Turnwire database")
        return 0
    [(version,)] = db.rows("SELECT version FROM schema_version")
    if version > len(MIGRATIONS) + AHEAD:
        text = f"the database has schema version {version}, this version knows {len(MIGRATIONS)}: use a newer one"
        raise StorageSchemaTooNew(text, {"version": str(version), "known": str(len(MIGRATIONS))})
    return int(version)


def migrate(db: Database, *, takes_unfinished: bool = False) -> None:
    """Brings the database to the newest schema. Idempotent; servers may call it at the same time.

    Raises:
        StorageCorrupt, StorageSchemaTooNew, StorageError: see `schema_version`; nothing was changed.
    """
    db.row("SELECT pg_advisory_lock(?)", (_LOCK,))
    try:
        version = schema_version(db, takes_unfinished=takes_unfinished)
        for number in range(version + 1, len(MIGRATIONS) + 1):
            with db.transaction():
                db.run(MIGRATIONS[number - 1].replace(" text", ' text COLLATE "C"'))
                if number == 1:
                    db.run("CREATE TABLE schema_version (version bigint NOT NULL)")
                    db.run("INSERT INTO schema_version VALUES (0)")
                db.run("UPDATE schema_version SET version = ?", (number,))
    finally:
        db.row("SELECT pg_advisory_unlock(?)", (_LOCK,))
