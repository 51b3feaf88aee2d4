"""Version 3: principals, timelines, versions of the codec, and the order of messages."""

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

MIGRATION = (
    _TOOL_CALLS_BY_ID + _REQUESTS_OF_PRINCIPALS + _TURN_NUMBERS + _TIMELINES + _CODEC_VERSIONS + _MESSAGES_BEFORE
)
"""To this version from the one before."""
