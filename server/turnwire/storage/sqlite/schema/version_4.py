"""Version 4: tenants, and what each has stored and used."""

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
-- bytes of a session's settings, turns, messages, parts, permission requests and events. Those of a tenant's files are
-- the lengths of files.content
ALTER TABLE sessions ADD COLUMN stored_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET stored_bytes = length(CAST(body AS BLOB))
    + (SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM turns WHERE session = sessions.id)
    + (SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM messages WHERE session = sessions.id)
    + (SELECT coalesce(sum(length(CAST(parts.body AS BLOB))), 0)
        FROM messages JOIN parts ON parts.message = messages.id WHERE messages.session = sessions.id)
    + (SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM permissions WHERE session = sessions.id)
    + (SELECT coalesce(sum(length(frame)), 0) FROM events WHERE events.session_id = sessions.session_id);
CREATE TRIGGER session_added AFTER INSERT ON sessions BEGIN
    UPDATE sessions SET stored_bytes = length(CAST(new.body AS BLOB)) WHERE id = new.id;
END;
CREATE TRIGGER session_changed AFTER UPDATE OF body ON sessions BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes + length(CAST(new.body AS BLOB)) - length(CAST(old.body AS BLOB))
    WHERE id = new.id;
END;
CREATE TRIGGER turn_added AFTER INSERT ON turns BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes + length(CAST(new.body AS BLOB)) WHERE id = new.session;
END;
CREATE TRIGGER turn_changed AFTER UPDATE OF body ON turns BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes + length(CAST(new.body AS BLOB)) - length(CAST(old.body AS BLOB))
    WHERE id = new.session;
END;
CREATE TRIGGER message_added AFTER INSERT ON messages BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes + length(CAST(new.body AS BLOB)) WHERE id = new.session;
END;
CREATE TRIGGER message_changed AFTER UPDATE OF body ON messages BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes + length(CAST(new.body AS BLOB)) - length(CAST(old.body AS BLOB))
    WHERE id = new.session;
END;
-- parts go with their message; a session that is removed is gone before what it has
CREATE TRIGGER message_removed BEFORE DELETE ON messages BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes - length(CAST(old.body AS BLOB)) - (
        SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM parts WHERE message = old.id
    ) WHERE id = old.session;
END;
CREATE TRIGGER part_added AFTER INSERT ON parts BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes + length(CAST(new.body AS BLOB))
    WHERE id = (SELECT session FROM messages WHERE id = new.message);
END;
CREATE TRIGGER part_changed AFTER UPDATE OF body ON parts BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes + length(CAST(new.body AS BLOB)) - length(CAST(old.body AS BLOB))
    WHERE id = (SELECT session FROM messages WHERE id = new.message);
END;
CREATE TRIGGER permission_added AFTER INSERT ON permissions BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes + length(CAST(new.body AS BLOB)) WHERE id = new.session;
END;
CREATE TRIGGER permission_changed AFTER UPDATE OF body ON permissions BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes + length(CAST(new.body AS BLOB)) - length(CAST(old.body AS BLOB))
    WHERE id = new.session;
END;
CREATE TRIGGER event_added AFTER INSERT ON events BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes + length(new.frame) WHERE session_id = new.session_id;
END;
CREATE TRIGGER event_removed AFTER DELETE ON events BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes - length(old.frame) WHERE session_id = old.session_id;
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
    estimated_steps      INTEGER NOT NULL DEFAULT 0,
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

MIGRATION = _TENANTS_OF_SESSIONS + _TENANTS_OF_EVENTS + _TENANTS_OF_FILES + _TOKEN_KEY + _STORED_BYTES + _USAGE
"""To this version from the one before."""
