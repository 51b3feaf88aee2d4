"""Version 2: permission requests, and files of tool results."""

MIGRATION = """
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
"""To this version from the one before."""
