"""Uploads that requests name, and their bytes as nameless files for code that has to seek in them."""

import asyncio
import contextlib
import errno
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO

from turnwire.domain.errors import InvalidRequest, StorageError, StorageFull
from turnwire.ports.moving.uploads import Upload, UploadStore


async def complete_upload(
    store: UploadStore, tenant: str, upload_id: str, field: str = "upload_id", *, used_too: bool = False
) -> Upload:
    """Returns an upload that can be used.

    Args:
        store: Has the uploads.
        tenant: The tenant of the upload.
        upload_id: Its id.
        field: Path of the id in the request, for errors.
        used_too: Whether to return a recently used one too.

    Raises:
        UploadNotFound: the tenant has no such upload.
        InvalidRequest: it is not complete.
    """
    upload = await store.upload(tenant, upload_id, used_too=used_too)
    if not upload.is_complete:
        received = str(upload.received_bytes)
        text = f"is not complete: {received} bytes arrived so far, and the last ones are missing"
        raise InvalidRequest.of(field, text, receivedBytes=received)
    return upload


@contextlib.asynccontextmanager
async def spooled(store: UploadStore, tenant: str, upload_id: str, folder: Path) -> AsyncIterator[BinaryIO]:
    """Copies a complete upload, in pieces, into a nameless file, which is deleted when the context or the process ends.

    The upload stays: call `UploadStore.remove` when it is used up. Removing it does not change the file. Cancelling
    removes the file.

    Args:
        store: Has the upload.
        tenant: The tenant of the upload.
        upload_id: Its id.
        folder: Folder of the file; all bytes have to fit on its disk.

    Yields:
        The file, which can seek, at its beginning. Reads block: read on a thread.

    Raises:
        UploadNotFound: the tenant has no such upload, or it was removed meanwhile.
        InvalidRequest: `upload_id` names one that is not complete.
        StorageFull: no space is left in the folder.
        StorageError: the bytes cannot be read, or the file cannot be written.
    """
    await complete_upload(store, tenant, upload_id)
    with disk_errors(folder):
        file = await _created(folder)
    try:
        async for piece in store.pieces(tenant, upload_id):
            with disk_errors(folder):
                await asyncio.to_thread(file.write, piece)
        with disk_errors(folder):
            await asyncio.to_thread(file.seek, 0)  # writes what is buffered first
        yield file
    finally:
        with contextlib.suppress(OSError):  # closing tries again to write what is buffered
            await asyncio.to_thread(file.close)


async def _created(folder: Path) -> BinaryIO:
    """Creates a file on a thread. When the caller is cancelled meanwhile, it is closed once it exists."""

    def create() -> BinaryIO:
        return tempfile.TemporaryFile(prefix="turnwire-", dir=folder)

    creating = asyncio.get_running_loop().run_in_executor(None, create)
    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        creating.add_done_callback(_close)
        raise


def _close(created: "asyncio.Future[BinaryIO]") -> None:
    if not created.cancelled() and created.exception() is None:
        created.result().close()


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turns an OSError about a file in a folder into a StorageError: StorageFull when no space is left."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageFull("no space is left for a temporary file") from error
        raise StorageError(f"cannot write a temporary file: {error.strerror}", {"path": str(folder)}) from error
