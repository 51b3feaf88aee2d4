"""Uploads: bytes that a client sends in pieces, kept until they are used up or expire.

An upload grows at its end only. Its last bytes seal it; it is complete once its digest is stored too. What a future of
`UploadStore` has answered is durable: it survives a crash of the server and of the machine.

An upload is found by its tenant and its id, as a session is (`turnwire.ports.store`).
"""

from asyncio import Future
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from turnwire.ports.commit import RecordRequest


class Upload(Struct, frozen=True, kw_only=True):
    """An upload without its bytes."""

    upload_id: str
    tenant: str
    subject: str
    """The subject that created it; "" for an unidentified caller."""
    mime: str = ""
    filename: str = ""
    size_bytes: int = 0
    """As announced; 0 when it was not."""
    received_bytes: int = 0
    """The next bytes have this offset."""
    is_sealed: bool = False
    """Whether the last bytes have come. It does not grow any more."""
    sha256: str = ""
    """Lower-case hexadecimal digest of all bytes; "" until the upload is complete."""
    created_at: datetime
    expires_at: datetime
    """It is removed after this moment."""

    @property
    def is_complete(self) -> bool:
        """Whether all bytes have come and their digest is known."""
        return bool(self.sha256)


class Chunk(Struct, frozen=True, kw_only=True):
    """Some bytes of an upload."""

    offset: int
    """Offset of the first byte; from 0."""
    data: bytes
    is_last: bool = False
    """Whether nothing follows."""

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.offset + len(self.data)


class UploadLimits(Struct, frozen=True, kw_only=True):
    """The limits of a tenant when an upload is added."""

    max_uploads: int
    """Uploads, with the new one."""
    max_removed_bytes: int
    """Bytes of removed uploads that still take space. Without this bound, who uploads and removes faster than space is
    freed would have more than its quota."""
    max_stored_bytes: int = 0
    """All that it stores, with the announced bytes of the new one; 0 sets no limit."""


class UploadStore(Protocol):
    """Keeps the uploads of all tenants. Every method may raise a `StorageError`.

    Methods that return a future fix the place of their change in the order of all commits; the future is done when the
    change is durable and counts in the tenant's account (`TenantStore.account`). It must not be cancelled.
    """

    def create(self, upload: Upload, limits: UploadLimits, record: RecordRequest | None) -> "Future[Upload]":
        """Stores an upload without bytes.

        Args:
            upload: The upload to store.
            limits: Limits of the tenant.
            record: The named request, of the upload's tenant and subject; remembered for as long as the upload exists
                (`Store.request`). None when the request has no name.

        Raises:
            TooManyUploads: the tenant would have more, or has more that is being removed.
            QuotaExceeded: it would store more.
        """
        ...

    def write(
        self, tenant: str, upload_id: str, chunk: Chunk, expires_at: datetime, max_stored_bytes: int = 0
    ) -> "Future[Upload]":
        """Stores bytes at the end, and when the upload expires. Idempotent: stored bytes are compared and stay.

        Args:
            tenant: The tenant of the upload.
            upload_id: Its id.
            chunk: The bytes.
            expires_at: When it expires.
            max_stored_bytes: Maximum stored bytes of the tenant; 0 sets no limit.

        Returns:
            The upload as it is then.

        Raises:
            UploadNotFound: the tenant has no such upload.
            UploadOffsetOutOfRange: bytes would be missing before these ones, or the upload is sealed before their end.
            QuotaExceeded: the tenant would store more than it may.
            InvalidRequest: `data` differs from what is stored at its place, or bytes follow those of the last chunk.
        """
        ...

    def complete(self, tenant: str, upload_id: str, sha256: str) -> "Future[Upload]":
        """Stores the digest of a sealed upload. Idempotent. Raises UploadNotFound."""
        ...

    def remove(self, tenant: str, upload_id: str) -> "Future[None]":
        """Removes an upload. Its bytes stop to count at once; the space is free a little later.

        Raises:
            UploadNotFound: the tenant has no such upload.
        """
        ...

    def remove_expired(self, now: datetime) -> "Future[int]":
        """Removes the uploads of all tenants that have expired, at most 100. Returns how many it removed."""
        ...

    async def upload(self, tenant: str, upload_id: str, *, used_too: bool = False) -> Upload:
        """Returns an upload. Safe to cancel.

        Args:
            tenant: The tenant of the upload.
            upload_id: Its id.
            used_too: Whether to return one that a commit has used (`ports.commit.UseUpload`) a while ago at most.
                Nothing else finds it, and it has no bytes.

        Raises:
            UploadNotFound: the tenant has no such upload.
        """
        ...

    def pieces(self, tenant: str, upload_id: str) -> AsyncIterator[bytes]:
        """Yields the bytes, in order, as pieces of at most 1 MiB. Safe to cancel and to leave.

        Each piece is read when it is asked for, so that a large upload costs the memory of one piece.

        Raises:
            UploadNotFound: the tenant has no such upload, or it was removed meanwhile.
        """
        ...
