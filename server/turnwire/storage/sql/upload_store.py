"""Implements `ports.moving.uploads.UploadStore`; see there for every method."""

from asyncio import Future
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from functools import partial

from turnwire.domain.errors import StorageCorrupt
from turnwire.ports.commit import RecordRequest
from turnwire.ports.moving.uploads import Chunk, Upload, UploadLimits
from turnwire.storage.sql import uploads as rows
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.writer import GroupWriter, Other

PIECE_BYTES = 2**20
"""Bytes read at once: few switches between threads, and little memory."""

STEP_BLOCKS = 8
"""Maximum blocks that one step removes, 2 MiB: it blocks commits for some milliseconds. Two gigabytes at once would do
so for seconds."""
STEP_UPLOADS = 64
"""Maximum uploads that one step removes: many small ones are removed as fast as they can be made."""


class SqlUploads:
    """The uploads in the database of a store. Changes go through its writer, reads through its reader."""

    def __init__(self, writer: GroupWriter, reading: Connection[Database], on_removal: Callable[[], None]) -> None:
        """Takes the parts of the store, which closes them, and a function to call when there is something to remove."""
        self._writer = writer
        self._reading = reading
        self._on_removal = on_removal

    def create(self, upload: Upload, limits: UploadLimits, record: RecordRequest | None) -> Future[Upload]:
        """Stores an upload."""
        work = partial(rows.create, upload=upload, limits=limits, record=record)
        return self._writer.carry_out(Other(work))

    def write(
        self, tenant: str, upload_id: str, chunk: Chunk, expires_at: datetime, max_stored_bytes: int = 0
    ) -> Future[Upload]:
        """Stores bytes."""
        work = partial(
            rows.write,
            tenant=tenant,
            upload_id=upload_id,
            chunk=chunk,
            expires_at=expires_at,
            max_stored_bytes=max_stored_bytes,
        )
        return self._writer.carry_out(Other(work, len(chunk.data)))

    def complete(self, tenant: str, upload_id: str, sha256: str) -> Future[Upload]:
        """Stores the digest."""
        work = partial(rows.complete, tenant=tenant, upload_id=upload_id, sha256=sha256)
        return self._writer.carry_out(Other(work))

    def remove(self, tenant: str, upload_id: str) -> Future[None]:
        """Removes an upload."""
        removing = self._writer.carry_out(Other(partial(rows.remove, tenant=tenant, upload_id=upload_id)))
        removing.add_done_callback(lambda _: self._on_removal())
        return removing

    def remove_expired(self, now: datetime) -> Future[int]:
        """Removes expired uploads."""
        removing = self._writer.carry_out(Other(partial(rows.remove_expired, now=now)))
        removing.add_done_callback(lambda _: self._on_removal())
        return removing

    async def upload(self, tenant: str, upload_id: str, *, used_too: bool = False) -> Upload:
        """Returns an upload."""
        reading = partial(rows.find, used_too=used_too)
        _, upload = await self._reading.run(reading, tenant, upload_id)
        return upload

    async def pieces(self, tenant: str, upload_id: str) -> AsyncIterator[bytes]:
        """Yields the bytes."""
        offset = 0
        while piece := await self._reading.run(_piece, tenant, upload_id, offset):
            yield piece
            offset += len(piece)


def _piece(db: Database, tenant: str, upload_id: str, offset: int) -> bytes:
    """Returns the bytes from an offset up to the end of a piece."""
    row, upload = rows.find(db, tenant, upload_id)
    end = min(offset + PIECE_BYTES, upload.received_bytes)
    piece = rows.read_bytes(db, row, offset, end)
    if len(piece) < end - offset:
        rows.find(db, tenant, upload_id)  # it may have been removed between the two queries
        raise StorageCorrupt(f"bytes of the upload {upload_id} are missing", {"uploadId": upload_id})
    return piece


def remove_some(db: Database) -> bool:
    """Removes some of what `uploads.remove` has marked. Returns False when nothing is left to remove."""
    some = db.rows("SELECT id FROM uploads WHERE removed = 1 ORDER BY id LIMIT ?", (STEP_UPLOADS,))
    if not some:
        return False
    left = STEP_BLOCKS
    for row in some:
        left -= rows.remove_some_blocks(db, row[0], left)
        if not left:  # it may have more
            break
        db.run("DELETE FROM uploads WHERE id = ?", row)
    return True
