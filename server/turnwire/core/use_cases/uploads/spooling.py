"""The bytes of an upload as a file, for those who must seek in them."""

import asyncio
import contextlib
import errno
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

from msgspec import Struct

from turnwire.domain.errors import InvalidRequest, StorageError, StorageFull
from turnwire.ports.moving.uploads import Upload, UploadStore


class SpooledUpload(Struct, frozen=True):
    """A complete upload and its bytes."""

    upload: Upload
    file: IO[bytes]
    """Binary, can seek, at its beginning. Its reads block: read it on a thread. Open until the context ends."""


@contextlib.asynccontextmanager
async def spooled(store: UploadStore, tenant: str, upload_id: str, folder: Path) -> AsyncIterator[SpooledUpload]:
    """Copies a complete upload, in pieces, into a file without a name, which is gone when the context or process ends.

    The upload stays: call `UploadStore.remove` when it is used up. Removing it does not change the file. Cancelling
    removes the file.

    Args:
        store: Has the upload.
        tenant: Whose it is.
        upload_id: Its id.
        folder: Where the file is; its disk needs room for all bytes.

    Raises:
        UploadNotFound: the tenant has no such upload, or it was removed meanwhile.
        InvalidRequest: `upload_id` names one that is not complete.
        StorageFull: no space is left in the folder.
        StorageError: the bytes cannot be read, or the file cannot be written.
    """
    upload = await store.upload(tenant, upload_id)
    if not upload.is_complete:
        received = str(upload.received_bytes)
        raise InvalidRequest.of("upload_id", f"is not complete: {received} bytes came so far", receivedBytes=received)
    with _translated(folder):
        file: IO[bytes] = await asyncio.to_thread(tempfile.TemporaryFile, dir=folder)
    try:
        async for piece in store.pieces(tenant, upload_id):
            with _translated(folder):
                await asyncio.to_thread(file.write, piece)
        with _translated(folder):
            await asyncio.to_thread(file.seek, 0)  # writes what is buffered first
        yield SpooledUpload(upload, file)
    finally:
        with contextlib.suppress(OSError):  # closing tries again to write what is buffered
            await asyncio.to_thread(file.close)


@contextlib.contextmanager
def _translated(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageFull("no space is left for a copy of the upload") from error
        raise StorageError(f"cannot write a copy of the upload: {error.strerror}", {"path": str(folder)}) from error
