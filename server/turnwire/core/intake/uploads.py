"""Uploads that requests name, and their bytes as files without a name for those who must seek in them."""

import asyncio
import contextlib
import errno
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from turnwire.domain.errors import InvalidRequest, StorageError, StorageFull
from turnwire.ports.moving.uploads import Upload, UploadStore


async def complete_upload(
    store: UploadStore, tenant: str, upload_id: str, field: str = "upload_id", *, used_too: bool = False
) -> Upload:
    """Returns an upload that can be used.

    Args:
        store: Has the uploads.
        tenant: Whose it is.
        upload_id: Its id.
        field: Path of the id in the request, for errors.
        used_too: Whether to return one that was used a while ago at most.

    Raises:
        UploadNotFound: the tenant has no such upload.
        InvalidRequest: it is not complete.
    """
    upload = await store.upload(tenant, upload_id, used_too=used_too)
    if not upload.is_complete:
        received = str(upload.received_bytes)
        text = f"is not complete: {received} bytes came so far, and the last ones are missing"
        raise InvalidRequest.of(field, text, receivedBytes=received)
    return upload


class SpooledUpload(Struct, frozen=True):
    """A complete upload and its bytes."""

    upload: Upload
    files: tuple[BinaryIO, ...]
    """Each has all bytes and a place of its own: can seek, at its beginning. Reads block: read on a thread. Open
    until the context ends; may be closed before that."""


@contextlib.asynccontextmanager
async def spooled(
    store: UploadStore, tenant: str, upload_id: str, folder: Path, *, readers: int = 1
) -> AsyncIterator[SpooledUpload]:
    """Copies a complete upload, in pieces, into a file without a name, which is gone when the context or process ends.

    The upload stays: call `UploadStore.remove` when it is used up. Removing it does not change the file. Cancelling
    removes the file.

    Args:
        store: Has the upload.
        tenant: Whose it is.
        upload_id: Its id.
        folder: Where the file is; its disk needs room for all bytes.
        readers: How many files to return, which share the bytes.

    Raises:
        UploadNotFound: the tenant has no such upload, or it was removed meanwhile.
        InvalidRequest: `upload_id` names one that is not complete.
        StorageFull: no space is left in the folder.
        StorageError: the bytes cannot be read, or the file cannot be written.
    """
    upload = await complete_upload(store, tenant, upload_id)
    with disk_errors(folder):
        files = await asyncio.to_thread(_created, folder, readers)
    try:
        async for piece in store.pieces(tenant, upload_id):
            with disk_errors(folder):
                await asyncio.to_thread(files[0].write, piece)
        with disk_errors(folder):
            await asyncio.to_thread(files[0].seek, 0)  # writes what is buffered first
        yield SpooledUpload(upload, files)
    finally:
        for file in files:
            with contextlib.suppress(OSError):  # closing tries again to write what is buffered
                await asyncio.to_thread(file.close)


def _created(folder: Path, readers: int) -> tuple[BinaryIO, ...]:
    """Returns a new file that is opened several times and has no name any more; the first can be written."""
    descriptor, name = tempfile.mkstemp(prefix="turnwire-", dir=folder)
    try:
        with contextlib.ExitStack() as stack:
            files: list[BinaryIO] = [stack.enter_context(os.fdopen(descriptor, "w+b"))]
            files += [stack.enter_context(Path(name).open("rb")) for _ in range(1, readers)]
            stack.pop_all()
            return tuple(files)
    finally:
        Path(name).unlink()


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turns an OSError about a file in a folder into a StorageError: StorageFull when no space is left."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageFull("no space is left for a temporary file") from error
        raise StorageError(f"cannot write a temporary file: {error.strerror}", {"path": str(folder)}) from error
