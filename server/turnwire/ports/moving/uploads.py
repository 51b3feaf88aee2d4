"""Uploads: bytes that a client sends in pieces, kept until they are used or expire.

An upload grows only at its end. Its last bytes seal it; it is complete once its digest is stored too. When a future of
`UploadStore` is done, its change is durable: it survives a crash of the server and of the machine. An upload is found
by its tenant and its id, as a session is (`turnwire.ports.store`).
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
    """The announced size; 0 if none was announced."""
    received_bytes: int = 0
    """Also the offset of the next bytes."""
    is_sealed: bool = False
    """Whether the last bytes have arrived. A sealed upload does not grow."""
    sha256: str = ""
    """Lower-case hexadecimal digest of all bytes; "" until the upload is complete."""
    created_at: datetime
    expires_at: datetime
    """The upload is removed after this moment."""

    @property
    def is_complete(self) -> bool:
        """Whether all bytes have arrived and their digest is known."""
        return bool(self.sha256)


class Chunk(Struct, frozen=True, kw_only=True):
    """Some bytes of an upload."""

    offset: int
    """Offset of the first byte; from 0."""
    data: bytes
    is_last: bool = False
    """Whether these are the last bytes."""

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.offset + len(self.data)


class UploadLimits(Struct, frozen=True, kw_only=True):
    """The limits of a tenant when an upload is added."""

    max_uploads: int
    """Maximum number of uploads, the new one included."""
    max_removed_bytes: int
    """Maximum bytes of removed uploads that still take space. Without this limit, a tenant that uploads and removes
    faster than space is freed would exceed its quota."""
    max_stored_bytes: int = 0
    """Maximum bytes that the tenant stores, with the announced bytes of the new upload; 0 sets no limit."""


class UploadStore(Protocol):
    """Keeps the uploads of all tenants. Every method may raise a `StorageError`.

    Methods that return a future fix the position of their change in the order of all commits; the future is done when
    the change is durable and counts in the tenant's account (`TenantStore.account`). It must not be cancelled.
    """

    def create(self, upload: Upload, limits: UploadLimits, record: RecordRequest | None) -> "Future[Upload]":
        """Stores an upload without bytes.

        Args:
            upload: The upload to store.
            limits: Limits of the tenant.
            record: The named request, of the upload's tenant and subject; remembered for as long as the upload exists
                (`Store.request`). None when the request has no name.

        Raises:
            TooManyUploads: the tenant would have too many, or too many of its removed bytes still take space.
            QuotaExceeded: the tenant would store more than it may.
        """
        ...

    def write(
        self, tenant: str, upload_id: str, chunk: Chunk, expires_at: datetime, max_stored_bytes: int = 0
    ) -> "Future[Upload]":
        """Stores bytes at the end, and the new expiry. Idempotent: bytes that are already stored are compared and stay.

        Args:
            tenant: The tenant of the upload.
            upload_id: Its id.
            chunk: The bytes.
            expires_at: When it expires.
            max_stored_bytes: Maximum stored bytes of the tenant; 0 sets no limit.

        Returns:
            The upload after the change.

        Raises:
            UploadNotFound: the tenant has no such upload.
            UploadOffsetOutOfRange: bytes before these are missing, or the upload is sealed before their end.
            QuotaExceeded: the tenant would store more than it may.
            InvalidRequest: `data` differs from the bytes stored at its offset, or bytes follow the last chunk.
        """
        ...

    def complete(self, tenant: str, upload_id: str, sha256: str) -> "Future[Upload]":
        """Stores the digest of a sealed upload. Idempotent. Raises UploadNotFound."""
        ...

    def remove(self, tenant: str, upload_id: str) -> "Future[None]":
        """Removes an upload. Its bytes stop counting at once; their space is freed a little later.

        Raises:
            UploadNotFound: the tenant has no such upload.
        """
        ...

    def remove_expired(self, now: datetime) -> "Future[int]":
        """Removes at most 100 expired uploads of all tenants. Returns the number of them."""
        ...

    async def upload(self, tenant: str, upload_id: str, *, used_too: bool = False) -> Upload:
        """Returns an upload. Safe to cancel.

        Args:
            tenant: The tenant of the upload.
            upload_id: Its id.
            used_too: Whether to return one that a commit has used (`ports.commit.UseUpload`), for as long as it is
                remembered. No other method finds it, and it has no bytes.

        Raises:
            UploadNotFound: the tenant has no such upload.
        """
        ...

    def pieces(self, tenant: str, upload_id: str) -> AsyncIterator[bytes]:
        """Yields the bytes, in order, as pieces of at most 1 MiB. Safe to cancel, and to abandon half way.

        Each piece is read when it is requested, so a large upload takes the memory of one piece.

        Raises:
            UploadNotFound: the tenant has no such upload, or it was removed meanwhile.
        """
        ...
