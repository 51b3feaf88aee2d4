"""Version 5: messages that were taken back."""

MIGRATION = """
-- 1: the message was taken back. hidden_at: the sequence of the event of that; see storage/sqlite/hiding/
ALTER TABLE messages ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN hidden_at INTEGER NOT NULL DEFAULT 0;
DROP INDEX messages_in_order;
CREATE UNIQUE INDEX messages_in_order ON messages (session, hidden, queued, place);
"""
"""To this version from the one before."""
