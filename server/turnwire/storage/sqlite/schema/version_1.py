"""Version 1: sessions, turns, messages, files, events and requests."""

MIGRATION = """
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
"""To this version from the one before."""
