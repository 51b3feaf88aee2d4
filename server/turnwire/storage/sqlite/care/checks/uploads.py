"""Uploads: their bytes are there without gaps, and are those of their digest."""

import hashlib
from collections.abc import Iterator

from turnwire.storage.sqlite.care.findings import Finding, Problem, Severity, Statement
from turnwire.storage.sqlite.care.inspection import Inspection
from turnwire.storage.sqlite.uploads.blocks import BLOCK_BYTES
from turnwire.storage.sqlite.uploads.changes import USED

WRONG_BYTES = Problem("uploads.bytes", Severity.ERROR, "the bytes of a complete upload are not those of its digest")
WRONG_LENGTH = Problem(
    "uploads.received", Severity.ERROR, "an upload has not the number of bytes that a client was told"
)


def check_uploads(inspection: Inspection) -> Iterator[Finding]:
    """Reads the bytes of each upload once, one block at a time. What is used or being removed is left out."""
    rows = inspection.db.execute(
        "SELECT id, upload_id, received_bytes, sealed, sha256, removed FROM uploads ORDER BY id"
    )
    for row, upload_id, received, is_sealed, sha256, is_removed in rows:
        inspection.advance("uploads", 1)
        if is_removed or is_sealed == USED:
            continue
        length, digest, is_whole = _stored(inspection, row)
        if length != received or not is_whole:
            yield Finding(WRONG_LENGTH, upload_id, () if is_sealed else _cut(row, length))
        elif sha256 and digest != sha256:
            yield Finding(WRONG_BYTES, upload_id)


def _stored(inspection: Inspection, row: int) -> tuple[int, str, bool]:
    """Returns how many bytes there are up to the first gap, their digest, and whether there is no gap."""
    length, digest = 0, hashlib.sha256()
    blocks = inspection.db.execute("SELECT number, bytes FROM upload_blocks WHERE upload = ? ORDER BY number", (row,))
    for number, block in blocks:
        if number * BLOCK_BYTES != length or not 0 < len(block) <= BLOCK_BYTES:
            return length, digest.hexdigest(), False
        length += len(block)
        digest.update(block)
    return length, digest.hexdigest(), True


def _cut(row: int, length: int) -> tuple[Statement, ...]:
    """Returns what leaves the bytes up to the first gap: the client goes on from there."""
    full = -(-length // BLOCK_BYTES)
    return (
        Statement("DELETE FROM upload_blocks WHERE upload = ? AND number >= ?", (row, full)),
        Statement("UPDATE uploads SET received_bytes = ? WHERE id = ? AND sealed = 0", (length, row)),
    )
