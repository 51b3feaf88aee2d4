"""Uploads as SQL: a row each, and their bytes in blocks of one size, however small the pieces are in which they come.

So an offset is found by the number of its block, and comparing or removing bytes costs what these bytes are, not how
many writes there were. Functions that write run inside the writer's transaction, append to the ledger their changes of
the tenant's account, and raise before they write.
"""

from datetime import datetime

from turnwire.domain.errors import (
    InvalidRequest,
    StorageCorrupt,
    TooManyUploads,
    UploadNotFound,
    UploadOffsetOutOfRange,
)
from turnwire.ports.commit import RecordRequest, UseUpload
from turnwire.ports.moving.uploads import Chunk, Upload, UploadLimits
from turnwire.storage.accounts import Delta, Ledger
from turnwire.storage.rows import microseconds, moment
from turnwire.storage.sql.accounts import check_bytes
from turnwire.storage.sql.changes import insert
from turnwire.storage.sql.database import Database

BLOCK_BYTES = 256 * 1024
"""Size of each block except the last one. An append writes the last block again, so that one of a single byte costs
this much at most; a piece of a megabyte at a multiple of this size writes nothing twice."""

MAX_EXPIRED = 100
"""Maximum uploads that one transaction removes."""

USED = 2
"""In the column `sealed`: its bytes belong to a file now, and it is remembered only for a while."""

_SELECT = (
    "SELECT id, upload_id, tenant, subject, mime, filename, size_bytes, received_bytes, sealed, sha256,"
    " created_at_us, expires_at_us FROM uploads WHERE tenant = ? AND upload_id = ? AND removed = 0"
)

_CREATE = insert(
    "uploads",
    "upload_id, tenant, subject, mime, filename, size_bytes, created_at_us, expires_at_us, request_id, fingerprint,"
    " receipt",
)

_REMOVE = (
    "UPDATE uploads SET removed = 1, request_id = '' WHERE id IN (SELECT id FROM uploads WHERE {} AND removed = 0"
    " LIMIT {}) RETURNING tenant, received_bytes"
)


def find(db: Database, tenant: str, upload_id: str, *, used_too: bool = False) -> tuple[int, Upload]:
    """Returns the row and the value of an upload; a used one only with `used_too`. Raises UploadNotFound."""
    found = db.row(_SELECT, (tenant, upload_id))
    if found is None or (found[8] == USED and not used_too):
        raise UploadNotFound(upload_id)
    row, upload_id, tenant, subject, mime, filename, size, received, sealed, sha256, created, expires = found
    return row, Upload(
        upload_id=upload_id,
        tenant=tenant,
        subject=subject,
        mime=mime,
        filename=filename,
        size_bytes=size,
        received_bytes=size if sealed == USED else received,
        is_sealed=bool(sealed),
        sha256=sha256,
        created_at=moment(created),
        expires_at=moment(expires),
    )


def create(db: Database, ledger: Ledger, upload: Upload, limits: UploadLimits, record: RecordRequest | None) -> Upload:
    """See `UploadStore.create`. Nothing counts yet."""
    _check_limits(db, upload.tenant, limits)
    announced = Delta(upload.tenant, stored_bytes=upload.size_bytes)
    check_bytes(db, ledger, announced, limits.max_stored_bytes)
    named = ("", "", "") if record is None else (record.request_id, record.fingerprint, record.receipt_json)
    row = (
        *(upload.upload_id, upload.tenant, upload.subject, upload.mime, upload.filename, upload.size_bytes),
        *(microseconds(upload.created_at), microseconds(upload.expires_at)),
        *named,
    )
    db.write(_CREATE, [row])
    return upload


def _check_limits(db: Database, tenant: str, limits: UploadLimits) -> None:
    """Raises TooManyUploads when a tenant may not have one more."""
    have = "SELECT count(*) FROM uploads WHERE tenant = ? AND removed = 0 AND sealed < ?"
    [(count,)] = db.rows(have, (tenant, USED))
    if count >= limits.max_uploads:
        text = f"the tenant has {count} uploads, at most {limits.max_uploads} are allowed"
        raise TooManyUploads.of("files.max_uploads", limits.max_uploads, text, used=str(count))
    [(leaving,)] = db.rows(
        "SELECT coalesce(sum(received_bytes), 0) FROM uploads WHERE tenant = ? AND removed = 1", (tenant,)
    )
    if leaving > limits.max_removed_bytes:
        text = f"{leaving} bytes of deleted uploads still take space; wait for a moment"
        raise TooManyUploads.of("files.max_upload_bytes", limits.max_removed_bytes, text, used=str(leaving))


def write(
    db: Database,
    ledger: Ledger,
    *,
    tenant: str,
    upload_id: str,
    chunk: Chunk,
    expires_at: datetime,
    max_stored_bytes: int = 0,
) -> Upload:
    """See `UploadStore.write`."""
    row, upload = find(db, tenant, upload_id)
    received = upload.received_bytes
    if chunk.offset > received or (upload.is_sealed and chunk.end > received):
        raise UploadOffsetOutOfRange(chunk.offset, received, is_complete=upload.is_sealed)
    if chunk.is_last and chunk.end < received:
        raise InvalidRequest.of("last", f"the upload has {received} bytes already", receivedBytes=str(received))
    known = max(0, min(chunk.end, received) - chunk.offset)
    if read_bytes(db, row, chunk.offset, chunk.offset + known) != chunk.data[:known]:
        raise InvalidRequest.of("data", "differs from the bytes that were sent before", receivedBytes=str(received))
    if chunk.end > received:
        added = Delta(tenant, stored_bytes=chunk.end - received)
        check_bytes(db, ledger, added, max_stored_bytes)
        append_bytes(db, row, received, memoryview(chunk.data)[known:])
        ledger.deltas.append(added)
    db.run(
        "UPDATE uploads SET received_bytes = ?, sealed = ?, expires_at_us = ? WHERE id = ?",
        (max(received, chunk.end), upload.is_sealed or chunk.is_last, microseconds(expires_at), row),
    )
    return find(db, tenant, upload_id)[1]


def complete(db: Database, ledger: Ledger, tenant: str, upload_id: str, sha256: str) -> Upload:
    """See `UploadStore.complete`."""
    del ledger
    db.run(
        "UPDATE uploads SET sha256 = ? WHERE tenant = ? AND upload_id = ? AND sealed = 1 AND removed = 0",
        (sha256, tenant, upload_id),
    )
    return find(db, tenant, upload_id)[1]


def use(db: Database, tenant: str, change: UseUpload) -> bytes:
    """Uses an upload up and returns its bytes, which it no longer has: the caller stores them, and counts them no more.

    Raises:
        UploadNotFound: there is no such upload, it is used, or not complete with that digest.
        StorageCorrupt: bytes of it are missing.
    """
    row, upload = find(db, tenant, change.upload_id)
    if upload.sha256 != change.sha256:
        raise UploadNotFound(change.upload_id)
    content = read_bytes(db, row, 0, upload.received_bytes)
    if len(content) != upload.received_bytes:
        raise StorageCorrupt(f"bytes of the upload {upload.upload_id} are missing", {"uploadId": upload.upload_id})
    remove_blocks(db, row)
    db.run(
        "UPDATE uploads SET sealed = ?, size_bytes = ?, received_bytes = 0, request_id = '',"
        f" expires_at_us = {db.dialect.least}(expires_at_us, ?) WHERE id = ?",
        (USED, upload.received_bytes, microseconds(change.known_until), row),
    )
    return content


def remove(db: Database, ledger: Ledger, tenant: str, upload_id: str) -> None:
    """See `UploadStore.remove`. The blocks stay until `remove_some` has removed them, but no longer count."""
    which = _REMOVE.format("tenant = ? AND upload_id = ? AND sealed < ?", 1)
    removed = db.rows(which, (tenant, upload_id, USED))
    if not removed:
        raise UploadNotFound(upload_id)
    ledger.deltas += (Delta(owner, stored_bytes=-size) for owner, size in removed)


def remove_expired(db: Database, ledger: Ledger, now: datetime) -> int:
    """See `UploadStore.remove_expired`."""
    if not db.is_first("expiry"):
        return 0
    removed = db.rows(_REMOVE.format("expires_at_us < ?", MAX_EXPIRED), (microseconds(now),))
    ledger.deltas += (Delta(owner, stored_bytes=-size) for owner, size in removed)
    return len(removed)


def read_bytes(db: Database, upload: int, start: int, end: int) -> bytes:
    """Returns the stored bytes between two offsets, the second exclusive; fewer at the end of what is stored."""
    if end <= start:
        return b""
    first = start // BLOCK_BYTES
    rows = db.rows(
        "SELECT bytes FROM upload_blocks WHERE upload = ? AND number BETWEEN ? AND ? ORDER BY number",
        (upload, first, (end - 1) // BLOCK_BYTES),
    )
    found = b"".join(block for (block,) in rows)
    return found[start - first * BLOCK_BYTES : end - first * BLOCK_BYTES]


def append_bytes(db: Database, upload: int, received: int, data: memoryview) -> None:
    """Appends bytes to those that are stored, whose number is `received`."""
    number, filled = divmod(received, BLOCK_BYTES)
    if filled and data:
        [(last,)] = db.rows("SELECT bytes FROM upload_blocks WHERE upload = ? AND number = ?", (upload, number))
        head = data[: BLOCK_BYTES - filled]
        db.run("UPDATE upload_blocks SET bytes = ? WHERE upload = ? AND number = ?", (last + head, upload, number))
        data, number = data[len(head) :], number + 1
    blocks = (data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES))
    db.run_many(
        "INSERT INTO upload_blocks (upload, number, bytes) VALUES (?, ?, ?)",
        ((upload, place, block) for place, block in enumerate(blocks, number)),
    )


def remove_blocks(db: Database, upload: int) -> None:
    """Removes the blocks of an upload in one step: for one that is small, or whose bytes are rewritten anyway."""
    db.run("DELETE FROM upload_blocks WHERE upload = ?", (upload,))


def remove_some_blocks(db: Database, upload: int, blocks: int) -> int:
    """Removes some blocks of an upload. Returns the number that it removed; 0 when none is left."""
    some = "SELECT id FROM upload_blocks WHERE upload = ? ORDER BY number DESC LIMIT ?"
    return db.run(f"DELETE FROM upload_blocks WHERE id IN ({some})", (upload, blocks))
