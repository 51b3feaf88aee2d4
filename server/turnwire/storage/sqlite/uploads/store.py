"""Implements `ports.moving.uploads.UploadStore`; see there for every method."""

import sqlite3
from asyncio import Future
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial

import aiosqlite

from turnwire.domain.errors import StorageCorrupt
from turnwire.ports.commit import RecordRequest
from turnwire.ports.moving.uploads import Chunk, Upload, UploadLimits
from turnwire.storage.sqlite.connection import run
from turnwire.storage.sqlite.steps import Steps
from turnwire.storage.sqlite.uploads import blocks, changes
from turnwire.storage.sqlite.writing.writer import GroupWriter, Other

PIECE_BYTES = 2**20
"""Read at once: few trips between threads, and little memory."""


class SqliteUploads:
    """The uploads in the database of a `SqliteStore`. Changes go through its writer, reads through its reader."""

    def __init__(self, writer: GroupWriter, reading: aiosqlite.Connection, removal: Steps) -> None:
        """Takes the parts of the store, which starts and closes them."""
        self._writer = writer
        self._reading = reading
        self._removal = removal

    def create(self, upload: Upload, limits: UploadLimits, record: RecordRequest | None) -> Future[Upload]:
        """Stores an upload."""
        create = partial(changes.create, upload=upload, limits=limits, record=record)
        return self._writer.carry_out(Other(create))

    def write(self, tenant: str, upload_id: str, chunk: Chunk, expires_at: datetime) -> Future[Upload]:
        """Stores bytes."""
        write = partial(changes.write, tenant=tenant, upload_id=upload_id, chunk=chunk, expires_at=expires_at)
        return self._writer.carry_out(Other(write, len(chunk.data)))

    def complete(self, tenant: str, upload_id: str, sha256: str) -> Future[Upload]:
        """Stores the digest."""
        complete = partial(changes.complete, tenant=tenant, upload_id=upload_id, sha256=sha256)
        return self._writer.carry_out(Other(complete))

    def remove(self, tenant: str, upload_id: str) -> Future[None]:
        """Removes an upload."""
        removing = self._writer.carry_out(Other(partial(changes.remove, tenant=tenant, upload_id=upload_id)))
        removing.add_done_callback(lambda _: self._removal.wake())
        return removing

    def remove_expired(self, now: datetime) -> Future[int]:
        """Removes expired uploads."""
        removing = self._writer.carry_out(Other(partial(changes.remove_expired, now=now)))
        removing.add_done_callback(lambda _: self._removal.wake())
        return removing

    async def upload(self, tenant: str, upload_id: str, *, used_too: bool = False) -> Upload:
        """Returns an upload."""
        find = partial(changes.find, used_too=used_too)
        _, upload = await run(self._reading, find, tenant, upload_id)
        return upload

    async def pieces(self, tenant: str, upload_id: str, offset: int = 0) -> AsyncIterator[bytes]:
        """Yields the bytes."""
        while piece := await run(self._reading, _piece, tenant, upload_id, offset):
            yield piece
            offset += len(piece)


def _piece(db: sqlite3.Connection, tenant: str, upload_id: str, offset: int) -> bytes:
    """Returns the bytes from an offset up to the end of a piece."""
    row, upload = changes.find(db, tenant, upload_id)
    end = min(offset + PIECE_BYTES, upload.received_bytes)
    piece = blocks.read(db, row, offset, end)
    if len(piece) < end - offset:
        changes.find(db, tenant, upload_id)  # it may have been removed between the two queries
        raise StorageCorrupt(f"bytes of the upload {upload_id} are missing", {"uploadId": upload_id})
    return piece
