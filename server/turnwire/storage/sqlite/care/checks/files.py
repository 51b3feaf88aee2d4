"""Stored files: their bytes are those of their hash, and something uses them."""

import hashlib
from collections.abc import Iterator

from turnwire.domain.principal import is_staging
from turnwire.storage.sqlite.care.findings import Finding, Problem, Severity, Statement
from turnwire.storage.sqlite.care.inspection import Inspection

WRONG_BYTES = Problem("files.bytes", Severity.ERROR, "the bytes of a file are not those of its hash")
UNUSED = Problem("files.unused", Severity.WARNING, "nothing uses a stored file")

_IS_USED = (
    "EXISTS (SELECT 1 FROM parts WHERE parts.file = files.id)"
    " OR EXISTS (SELECT 1 FROM part_files WHERE part_files.file = files.id)"
)

CHUNK_BYTES = 2**20
"""Read at once, whatever the file's size."""


def check_files(inspection: Inspection) -> Iterator[Finding]:
    """Reads the bytes of each file once."""
    rows = inspection.db.execute(f"SELECT id, tenant, sha256, {_IS_USED} FROM files ORDER BY id")
    for row, tenant, sha256, is_used in rows:
        inspection.advance("files", 1)
        if not is_used and is_staging(tenant):  # its message comes later
            continue
        if not is_used:
            # by then a part that was filed wrongly may use it again
            yield Finding(UNUSED, sha256, (Statement(f"DELETE FROM files WHERE id = ? AND NOT ({_IS_USED})", (row,)),))
        elif _hash(inspection, row) != sha256:
            yield Finding(WRONG_BYTES, sha256)


def _hash(inspection: Inspection, row: int) -> str:
    digest = hashlib.sha256()
    with inspection.db.blobopen("files", "content", row, readonly=True) as content:
        while chunk := content.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
