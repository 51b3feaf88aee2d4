"""Version 7: alternatives of messages."""

_BRANCHES = """
-- the sequence of the last change of the path; 0: it never changed, and no message has alternatives
ALTER TABLE sessions ADD COLUMN branched_at INTEGER NOT NULL DEFAULT 0;
-- of the first message of a branch that is off the path: the turn that the message before it had on this branch
ALTER TABLE messages ADD COLUMN branch_turn TEXT NOT NULL DEFAULT '';
-- messages that are off the path; see storage/sqlite/hiding/paths.py. The number is OFF_THE_PATH there
CREATE INDEX messages_off_path ON messages (session, previous, place) WHERE hidden_at >= 2199023255552;
"""

MIGRATION = _BRANCHES
"""To this version from the one before."""
