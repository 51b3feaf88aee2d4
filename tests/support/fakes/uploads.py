"""A store of uploads in memory, whose changes end when a test says so."""

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from turnwire.domain.errors import UploadNotFound
from turnwire.ports.commit import RecordRequest
from turnwire.ports.moving.uploads import Chunk, Upload, UploadLimits


@dataclass
class FakeUploads:
    """Appends every chunk, whatever its offset. Stores at once, or `release` does."""

    automatic: bool = True
    uploads: dict[str, Upload] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    waiting: list[tuple["Future[Any]", Any]] = field(default_factory=list)
    readings: int = 0
    """Number of times that the bytes of an upload were read from the beginning."""
    may_read: asyncio.Event = field(default_factory=asyncio.Event)
    """Each piece waits for it; set by default."""
    looked_at: list[datetime] = field(default_factory=list)
    """The moments of all looks for expired uploads."""
    expired: list[int | Exception] = field(default_factory=list)
    """Results of the next looks."""

    def __post_init__(self) -> None:
        """Lets reads happen."""
        self.may_read.set()

    def _end(self, result: Any) -> "Future[Any]":
        future: Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append((future, result))
        if self.automatic:
            self.release()
        return future

    def release(self) -> None:
        """Ends all changes that wait."""
        for future, result in self.waiting:
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
        self.waiting.clear()

    def create(self, upload: Upload, limits: UploadLimits, record: RecordRequest | None) -> "Future[Upload]":
        """Stores an upload."""
        self.uploads[upload.upload_id], self.contents[upload.upload_id] = upload, b""
        return self._end(upload)

    def write(
        self, tenant: str, upload_id: str, chunk: Chunk, expires_at: datetime, max_stored_bytes: int = 0
    ) -> "Future[Upload]":
        """Appends bytes."""
        self.contents[upload_id] += chunk.data
        return self._changed(
            upload_id,
            received_bytes=len(self.contents[upload_id]),
            is_sealed=self.uploads[upload_id].is_sealed or chunk.is_last,
            expires_at=expires_at,
        )

    def complete(self, tenant: str, upload_id: str, sha256: str) -> "Future[Upload]":
        """Stores the digest."""
        return self._changed(upload_id, sha256=sha256)

    def _changed(self, upload_id: str, **fields: Any) -> "Future[Upload]":
        self.uploads[upload_id] = msgspec.structs.replace(self.uploads[upload_id], **fields)
        return self._end(self.uploads[upload_id])

    def remove_expired(self, now: datetime) -> "Future[int]":
        """Returns what the test says."""
        self.looked_at.append(now)
        return self._end(self.expired.pop(0) if self.expired else 0)

    async def upload(self, tenant: str, upload_id: str, *, used_too: bool = False) -> Upload:
        """Returns an upload."""
        if upload_id not in self.uploads:
            raise UploadNotFound(upload_id)
        return self.uploads[upload_id]

    async def pieces(self, tenant: str, upload_id: str) -> AsyncIterator[bytes]:
        """Yields single bytes."""
        self.readings += 1
        for place in range(len(self.contents[upload_id])):
            await self.may_read.wait()
            yield self.contents[upload_id][place : place + 1]
