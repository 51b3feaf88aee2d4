"""Version 6: uploads."""

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

MIGRATION = _UPLOADS
"""To this version from the one before."""
