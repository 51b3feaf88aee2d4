"""Bytes of files: those of a session, and those that a tenant has."""

from collections.abc import Iterable

from turnwire.storage.sql.columns import session_row
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.pages import check_light

_OF_TENANT = "FROM files WHERE tenant = ? AND sha256 = ?"


def session_file(
    db: Database, tenant: str, session_id: str, sha256: str, *, max_bytes: int | None = None
) -> bytes | None:
    """Returns the bytes of a session's file; see `TenantStore.session_file`. Raises HeavyRead: it has more."""
    for (size,) in db.rows(f"SELECT length(content) {_OF_TENANT}", (tenant, sha256)):
        check_light(size, max_bytes)
    query = (
        f"SELECT content {_OF_TENANT} AND EXISTS (SELECT 1 FROM message_files"
        " JOIN messages ON messages.id = message WHERE file = files.id AND session = ?)"
    )
    row = db.row(query, (tenant, sha256, session_row(db, tenant, session_id)))
    return None if row is None else row[0]


def files(db: Database, tenant: str, hashes: Iterable[str]) -> dict[str, bytes]:
    """Returns the bytes of files; see `TenantStore.files`."""
    found = (db.row(f"SELECT sha256, content {_OF_TENANT}", (tenant, sha256)) for sha256 in hashes)
    return dict(row for row in found if row)


def stored_files(db: Database, tenant: str, hashes: Iterable[str]) -> frozenset[str]:
    """Returns those of the files that are stored; see `TenantStore.stored_files`."""
    return frozenset(sha256 for sha256 in hashes if db.row(f"SELECT 1 {_OF_TENANT}", (tenant, sha256)))
