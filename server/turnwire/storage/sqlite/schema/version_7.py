"""Version 7: alternatives of messages."""

_BRANCHES = """
-- the sequence of the last change of the path; 0: it never changed, and no message has alternatives
ALTER TABLE sessions ADD COLUMN branched_at INTEGER NOT NULL DEFAULT 0;
-- of a message off the path: the turn of the message before it when the path led on to this one; NULL: as it has it now
ALTER TABLE messages ADD COLUMN branch_turn TEXT;
-- messages that are off the path; see storage/sqlite/hiding/paths.py. The number is OFF_THE_PATH there
CREATE INDEX messages_off_path ON messages (session, previous, place) WHERE hidden_at >= 2199023255552;
"""

MIGRATION = _BRANCHES
"""To this version from the one before."""
