"""Version 6: uploads, and searching."""

_UPLOADS = """
-- bytes that a client sends in pieces. size_bytes: as announced, 0 when it was not; sealed: 1 once the last bytes came;
-- sha256: '' until the upload is complete; removed: 1 while its blocks are being removed, a few at a time.
-- request_id to receipt: of the named request that made it, as in requests
CREATE TABLE uploads (
    id              INTEGER PRIMARY KEY,
    tenant          TEXT NOT NULL,
    upload_id       TEXT NOT NULL,
    subject         TEXT NOT NULL,
    mime            TEXT NOT NULL,
    filename        TEXT NOT NULL,
    size_bytes      INTEGER NOT NULL,
    received_bytes  INTEGER NOT NULL DEFAULT 0,
    sealed          INTEGER NOT NULL DEFAULT 0,
    sha256          TEXT NOT NULL DEFAULT '',
    created_at_us   INTEGER NOT NULL,
    expires_at_us   INTEGER NOT NULL,
    removed         INTEGER NOT NULL DEFAULT 0,
    request_id      TEXT NOT NULL DEFAULT '',
    fingerprint     TEXT NOT NULL DEFAULT '',
    receipt         TEXT NOT NULL DEFAULT '',
    UNIQUE (tenant, upload_id)
) STRICT;
CREATE UNIQUE INDEX uploads_by_request ON uploads (tenant, subject, request_id) WHERE request_id <> '';
-- what a tenant has; those that are being removed may be many, and are not read
CREATE INDEX uploads_of_tenants ON uploads (tenant) WHERE removed = 0;
CREATE INDEX uploads_by_expiry ON uploads (expires_at_us) WHERE removed = 0;
CREATE INDEX uploads_removed ON uploads (id) WHERE removed = 1;
CREATE INDEX uploads_removed_of_tenants ON uploads (tenant, received_bytes) WHERE removed = 1;

-- number counts from 0. All blocks of an upload but the last have the same size; see storage/sqlite/uploads/blocks.py
CREATE TABLE upload_blocks (
    id      INTEGER PRIMARY KEY,
    upload  INTEGER NOT NULL REFERENCES uploads (id),
    number  INTEGER NOT NULL,
    bytes   BLOB NOT NULL,
    UNIQUE (upload, number)
) STRICT;
"""

_SEARCH = """
-- the words of messages; see storage/sqlite/searching/. Has no text of its own. A row is an entry, or one to be removed
CREATE VIRTUAL TABLE search_index USING fts5(terms, content = '', tokenize = "ascii tokenchars '_.'");

-- version: which words the index has; another one makes it anew
CREATE TABLE search_state (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    version  TEXT NOT NULL
) STRICT;
INSERT INTO search_state VALUES (1, '');

-- a short name of a tenant for the words of its messages
CREATE TABLE search_tenants (
    id      INTEGER PRIMARY KEY,
    tenant  TEXT NOT NULL UNIQUE
) STRICT;

-- one for each part that is found. id: the second of its message, and a number in it. excerpt: what of a large part is
-- searched; NULL when its body says it. words: how many it has
CREATE TABLE search_entries (
    id       INTEGER PRIMARY KEY,
    part     INTEGER NOT NULL UNIQUE,
    message  INTEGER NOT NULL,
    at_us    INTEGER NOT NULL,
    words    INTEGER NOT NULL,
    facets   TEXT NOT NULL,
    excerpt  TEXT
) STRICT;

-- rows of the index whose part is gone or was rewritten, with what removes their words
CREATE TABLE search_removals (
    id       INTEGER PRIMARY KEY,
    facets   TEXT NOT NULL,
    excerpt  TEXT,
    body     TEXT
) STRICT;

-- one row while messages are still to be indexed: those with ids below this one
CREATE TABLE search_backlog (
    id     INTEGER PRIMARY KEY,
    below  INTEGER NOT NULL
) STRICT;

CREATE TRIGGER part_removed BEFORE DELETE ON parts BEGIN
    INSERT INTO search_removals (id, facets, excerpt, body)
    SELECT id, facets, excerpt, CASE WHEN excerpt IS NULL THEN old.body END FROM search_entries WHERE part = old.id;
    DELETE FROM search_entries WHERE part = old.id;
END;
CREATE TRIGGER part_rewritten BEFORE UPDATE OF body ON parts WHEN old.body <> new.body BEGIN
    INSERT INTO search_removals (id, facets, excerpt, body)
    SELECT id, facets, excerpt, CASE WHEN excerpt IS NULL THEN old.body END FROM search_entries WHERE part = old.id;
    DELETE FROM search_entries WHERE part = old.id;
END;
"""

MIGRATION = _UPLOADS + _SEARCH
"""To this version from the one before."""
