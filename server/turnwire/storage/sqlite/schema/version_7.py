"""Version 7: alternatives of messages; open calls of client tools."""

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

MIGRATION = _BRANCHES + _LEASES
