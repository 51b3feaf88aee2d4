"""Version 7: alternatives, open calls, lists with filters, totals of tenants, texts stored once, growth, questions."""

_BRANCHES = """
-- the sequence of the last change of the path; 0: it never changed, and no message has alternatives
ALTER TABLE sessions ADD COLUMN branched_at INTEGER NOT NULL DEFAULT 0;
-- of a message off the path: the turn of the message before it when the path led on to this one; NULL: as it has it now
ALTER TABLE messages ADD COLUMN branch_turn TEXT;
-- messages that are off the path; see storage/sqlite/hiding/paths.py. The number is OFF_THE_PATH there
CREATE INDEX messages_off_path ON messages (session, previous, place) WHERE hidden_at >= 2199023255552;
"""

_LEASES = """
-- calls that a client may run now; tool_call_id and tool as in the part, since_us: when the call became ready
CREATE TABLE open_calls (
    part          INTEGER PRIMARY KEY REFERENCES parts (id) ON DELETE CASCADE,
    session       INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    tenant        TEXT NOT NULL,
    tool          TEXT NOT NULL,
    tool_call_id  TEXT NOT NULL,
    since_us      INTEGER NOT NULL
) STRICT;
CREATE INDEX open_calls_of_tenants ON open_calls (tenant, since_us, tool_call_id);
CREATE INDEX open_calls_of_sessions ON open_calls (session, since_us, tool_call_id);

-- of turns that have not ended; a part leaves out what has its default, such as the status "pending"
INSERT INTO open_calls (part, session, tenant, tool, tool_call_id, since_us)
SELECT parts.id, messages.session, sessions.tenant, json_extract(parts.body, '$.content.name'), parts.tool_call_id,
       1000000 * CAST(strftime('%s', json_extract(parts.body, '$.content.started_at')) AS INTEGER)
FROM turns
CROSS JOIN messages ON messages.turn_id = turns.turn_id
CROSS JOIN parts ON parts.message = messages.id
CROSS JOIN sessions ON sessions.id = messages.session
WHERE turns.ended = 0 AND messages.turn_id <> '' AND parts.tool_call_id IS NOT NULL
    AND coalesce(json_extract(parts.body, '$.content.status'), 'pending') = 'pending'
    AND json_extract(parts.body, '$.content.started_at') IS NOT NULL
    AND coalesce(json_extract(parts.body, '$.content.permission_id'), '') = ''
    AND instr(json_extract(parts.body, '$.content.name'), '.') = 0;
"""

_SESSION_LISTS = """
-- archived: 1 when it is archived. archived_at_us: since when, in microseconds since 1970; else 0. created_at_us and
-- title_key, which has no upper case, repeat what the body says, because lists are ordered by them
ALTER TABLE sessions ADD COLUMN archived_at_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN created_at_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN title_key TEXT NOT NULL DEFAULT '';
UPDATE sessions SET title_key = folded(coalesce(json_extract(body, '$.title'), '')),
    created_at_us = microseconds(json_extract(body, '$.created_at'));
DROP INDEX sessions_by_update;
CREATE INDEX sessions_by_update ON sessions (tenant, archived, updated_at_us, session_id);
CREATE INDEX sessions_by_creation ON sessions (tenant, archived, created_at_us, session_id);
CREATE INDEX sessions_by_title ON sessions (tenant, archived, title_key, session_id);

-- by what sessions are found: their labels, as key=value, and their directory, as @path. See storage/sqlite/listing/
CREATE TABLE session_facets (
    tenant   TEXT NOT NULL,
    facet    TEXT NOT NULL,
    session  INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    PRIMARY KEY (tenant, facet, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_facets_of_sessions ON session_facets (session);
INSERT INTO session_facets (tenant, facet, session)
SELECT tenant, '@' || coalesce(json_extract(body, '$.directory'), ''), id FROM sessions;
INSERT INTO session_facets (tenant, facet, session)
SELECT tenant, label.key || '=' || label.value, sessions.id FROM sessions, json_each(body, '$.labels') AS label;
"""

_TOTALS = """
-- what each tenant has, so that a start need not read all that it has. Staged sessions count for nobody
CREATE TABLE tenant_totals (
    tenant        TEXT PRIMARY KEY,
    sessions      INTEGER NOT NULL,
    stored_bytes  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO tenant_totals (tenant, sessions, stored_bytes)
SELECT tenant, sum(sessions), sum(stored_bytes) FROM (
    SELECT tenant, count(*) AS sessions, sum(stored_bytes) AS stored_bytes FROM sessions GROUP BY tenant
    UNION ALL SELECT tenant, 0, sum(length(content)) FROM files GROUP BY tenant
    UNION ALL SELECT tenant, 0, sum(received_bytes) FROM uploads WHERE removed = 0 GROUP BY tenant
) WHERE substr(tenant, 1, 1) <> '*' GROUP BY tenant;

-- what each tenant has used on the newest days (UTC, counted since 1970), as it counts towards quotas
CREATE TABLE usage_days (
    tenant         TEXT NOT NULL,
    day            INTEGER NOT NULL,
    tokens         INTEGER NOT NULL,
    cost_pico_usd  INTEGER NOT NULL,
    PRIMARY KEY (tenant, day)
) STRICT, WITHOUT ROWID;
INSERT INTO usage_days (tenant, day, tokens, cost_pico_usd)
SELECT tenant, quarter / 96, sum(coalesce(input_tokens, 0) + coalesce(cache_read_tokens, 0)
        + coalesce(cache_write_tokens, 0) + coalesce(output_tokens, 0) + coalesce(reasoning_tokens, 0)),
    sum(coalesce(cost_pico_usd, 0))
FROM usage GROUP BY 1, 2;
"""

_QUESTIONS = """
-- what tool calls ask. hold: what a call needs to go on after its questions, with what was filled in; NULL as soon as
-- the call goes on or ends, and for a call that cannot go on in another process
CREATE TABLE questions (
    id           INTEGER PRIMARY KEY,
    question_id  TEXT NOT NULL UNIQUE,
    session      INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    tenant       TEXT NOT NULL,
    open         INTEGER NOT NULL,
    body         TEXT NOT NULL,
    hold         TEXT
) STRICT;
CREATE INDEX questions_by_session ON questions (session, open, id);
CREATE INDEX questions_open ON questions (tenant, id) WHERE open = 1;
CREATE INDEX questions_held ON questions (session, id) WHERE hold IS NOT NULL;
CREATE TRIGGER question_added AFTER INSERT ON questions BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes + length(CAST(new.body AS BLOB)) WHERE id = new.session;
END;
CREATE TRIGGER question_changed AFTER UPDATE OF body ON questions BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes + length(CAST(new.body AS BLOB)) - length(CAST(old.body AS BLOB))
    WHERE id = new.session;
END;
"""

_TEXTS = """
-- the texts of a part, in UTF-8; body has them when shown is NULL (rows of older versions, until they are renewed).
-- shown and shown_between: what stands before and between them in the display form; see storage/sqlite/part_rows.py
ALTER TABLE parts ADD COLUMN text BLOB;
ALTER TABLE parts ADD COLUMN output BLOB;
ALTER TABLE parts ADD COLUMN shown BLOB;
ALTER TABLE parts ADD COLUMN shown_between BLOB;
-- of the whole display form; messages.display is only its beginning now. 0 in rows of older versions
ALTER TABLE messages ADD COLUMN display_bytes INTEGER NOT NULL DEFAULT 0;
-- what is still of an older version of the codec: among the messages with ids below this one
CREATE TABLE renewal_backlog (
    id     INTEGER PRIMARY KEY,
    below  INTEGER NOT NULL
) STRICT;
DROP INDEX IF EXISTS messages_outdated;
"""

_GROWTH = """
-- of a part that streams: how many bytes of its text stand in part_growth, behind what `text` has
ALTER TABLE parts ADD COLUMN grown INTEGER NOT NULL DEFAULT 0;
-- what came since the save before; at: the bytes of the rows before it
CREATE TABLE part_growth (
    part  INTEGER NOT NULL REFERENCES parts (id) ON DELETE CASCADE,
    at    INTEGER NOT NULL,
    text  BLOB NOT NULL,
    PRIMARY KEY (part, at)
) STRICT, WITHOUT ROWID;
-- who writes the text writes all of it
CREATE TRIGGER part_whole AFTER UPDATE OF text ON parts WHEN old.grown > 0 BEGIN
    DELETE FROM part_growth WHERE part = old.id;
    UPDATE parts SET grown = 0 WHERE id = old.id;
END;
"""

_TRIGGERS = """
DROP TRIGGER part_added;
DROP TRIGGER part_changed;
DROP TRIGGER message_removed;
CREATE TRIGGER part_added AFTER INSERT ON parts BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes
        + length(CAST(new.body AS BLOB)) + coalesce(length(new.text), 0) + coalesce(length(new.output), 0)
    WHERE id = (SELECT session FROM messages WHERE id = new.message);
END;
CREATE TRIGGER part_changed AFTER UPDATE OF body, text, output, grown ON parts BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes
        + length(CAST(new.body AS BLOB)) + coalesce(length(new.text), 0) + coalesce(length(new.output), 0) + new.grown
        - length(CAST(old.body AS BLOB)) - coalesce(length(old.text), 0) - coalesce(length(old.output), 0) - old.grown
    WHERE id = (SELECT session FROM messages WHERE id = new.message);
END;
CREATE TRIGGER message_removed BEFORE DELETE ON messages BEGIN
    UPDATE sessions SET stored_bytes = stored_bytes - length(CAST(old.body AS BLOB)) - (
        SELECT coalesce(sum(
            length(CAST(body AS BLOB)) + coalesce(length(text), 0) + coalesce(length(output), 0) + grown
        ), 0) FROM parts WHERE message = old.id
    ) WHERE id = old.session;
END;

-- a row that is renewed says what it said before
ALTER TABLE search_removals ADD COLUMN text BLOB;
ALTER TABLE search_removals ADD COLUMN output BLOB;
DROP TRIGGER part_removed;
DROP TRIGGER part_rewritten;
CREATE TRIGGER part_removed BEFORE DELETE ON parts BEGIN
    INSERT INTO search_removals (id, facets, excerpt, body, text, output)
    SELECT id, facets, excerpt, CASE WHEN excerpt IS NULL THEN old.body END,
        CASE WHEN excerpt IS NULL THEN old.text END, CASE WHEN excerpt IS NULL THEN old.output END
    FROM search_entries WHERE part = old.id;
    DELETE FROM search_entries WHERE part = old.id;
END;
CREATE TRIGGER part_rewritten BEFORE UPDATE OF body, text, output ON parts
WHEN old.shown IS NOT NULL
    AND (old.body <> new.body OR old.text IS NOT new.text OR old.output IS NOT new.output) BEGIN
    INSERT INTO search_removals (id, facets, excerpt, body, text, output)
    SELECT id, facets, excerpt, CASE WHEN excerpt IS NULL THEN old.body END,
        CASE WHEN excerpt IS NULL THEN old.text END, CASE WHEN excerpt IS NULL THEN old.output END
    FROM search_entries WHERE part = old.id;
    DELETE FROM search_entries WHERE part = old.id;
END;
"""

_RETENTION = """
-- the newest position of the log at the beginning of an hour since 1970: events up to it are older
CREATE TABLE log_hours (
    hour      INTEGER PRIMARY KEY,
    position  INTEGER NOT NULL
) STRICT;
-- of the first event of a turn; 0 where that was not kept. What a turn has told is kept while it runs
ALTER TABLE turns ADD COLUMN first_sequence INTEGER NOT NULL DEFAULT 0;
"""

_LOG = _TEXTS + _GROWTH + _TRIGGERS + _RETENTION

_COUNTED_BY_THE_WRITER = """
-- the writer counts what it adds to sessions.stored_bytes: for a statement with a trigger, SQLite copies each page that
-- it changes. What is removed, and what is written seldom, is still counted by triggers
DROP TRIGGER event_added;
DROP TRIGGER turn_added;
DROP TRIGGER turn_changed;
"""

MIGRATION = _BRANCHES + _LEASES + _SESSION_LISTS + _TOTALS + _LOG + _COUNTED_BY_THE_WRITER + _QUESTIONS
"""To this version from the one before. `folded` and `microseconds` are functions that `migrate` gives to SQLite."""
