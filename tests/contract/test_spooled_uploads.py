"""An upload as a file that nobody else sees: `turnwire.core.intake.uploads` on the real store."""

import asyncio
import hashlib
import os
import tempfile
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.domain_values import NOW
from tests.support.fakes.opened_store import opened_store
from turnwire.core.intake.uploads import spooled
from turnwire.domain.errors import InvalidRequest, StorageError, StorageFull, UploadNotFound
from turnwire.ports.moving.uploads import Chunk, Upload, UploadLimits
from turnwire.storage.sql.upload_store import SqlUploads

CONTENT = os.urandom(3 * 2**20 + 5)
LATER = NOW + timedelta(days=1)


@pytest.fixture
async def uploads(tmp_path: Path) -> AsyncIterator[SqlUploads]:
    """A store with a complete upload upl_1 and an upload upl_2 that grows."""
    async with opened_store(tmp_path) as opened:
        for upload_id in ("upl_1", "upl_2"):
            new = Upload(upload_id=upload_id, tenant="default", subject="", created_at=NOW, expires_at=LATER)
            await opened.store.uploads.create(new, UploadLimits(max_uploads=9, max_removed_bytes=0), None)
            chunk = Chunk(offset=0, data=CONTENT, is_last=upload_id == "upl_1")
            await opened.store.uploads.write("default", upload_id, chunk, LATER)
        await opened.store.uploads.complete("default", "upl_1", hashlib.sha256(CONTENT).hexdigest())
        yield opened.store.uploads


async def test_the_file_has_all_bytes_and_no_name(uploads: SqlUploads, tmp_path: Path) -> None:
    """It can seek, is closed in the end, and stays whole when the upload is removed."""
    folder = tmp_path / "spool"
    folder.mkdir()
    async with spooled(uploads, "default", "upl_1", folder) as file:
        assert list(folder.iterdir()) == []
        await uploads.remove("default", "upl_1")
        assert file.read() == CONTENT
        file.seek(7)
        assert file.read(3) == CONTENT[7:10]
    assert file.closed


@pytest.mark.parametrize(
    ("tenant", "upload_id", "error"),
    [("default", "upl_2", InvalidRequest), ("default", "upl_3", UploadNotFound), ("other", "upl_1", UploadNotFound)],
)
async def test_only_a_complete_upload_of_the_tenant(
    uploads: SqlUploads, tmp_path: Path, tenant: str, upload_id: str, error: type[Exception]
) -> None:
    """Anything else is refused before a file is made."""
    with pytest.raises(error):
        async with spooled(uploads, tenant, upload_id, tmp_path / "missing"):
            pass


async def test_a_full_disk_is_a_clean_error(
    uploads: SqlUploads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is for the database; a folder that is gone is one too."""
    with pytest.raises(StorageError) as missing:
        async with spooled(uploads, "default", "upl_1", tmp_path / "missing"):
            pass
    assert "No such file" in missing.value.message
    full = Path("/dev/full").open("r+b", buffering=2**16)  # noqa: SIM115 - closed by what is tested
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full)
    with pytest.raises(StorageFull):
        async with spooled(uploads, "default", "upl_1", tmp_path):
            pass
    assert full.closed


async def test_the_file_goes_with_an_error_of_its_user(uploads: SqlUploads, tmp_path: Path) -> None:
    """Which passes unchanged."""
    with pytest.raises(ZeroDivisionError):
        async with spooled(uploads, "default", "upl_1", tmp_path) as file:
            raise ZeroDivisionError
    assert file.closed


async def test_the_file_is_closed_when_it_comes_after_its_user_has_gone(
    uploads: SqlUploads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread creates it, whether somebody waits for it or not."""
    begun, may_create, create = threading.Event(), threading.Event(), tempfile.TemporaryFile
    created = []

    def slow(**options: Any) -> Any:
        begun.set()
        may_create.wait()
        created.append(create(**options))
        return created[0]

    monkeypatch.setattr(tempfile, "TemporaryFile", slow)

    async def use() -> None:
        async with spooled(uploads, "default", "upl_1", tmp_path):
            pass

    using = asyncio.create_task(use())
    await asyncio.to_thread(begun.wait)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    may_create.set()
    async with asyncio.timeout(10):
        while not (created and created[0].closed):
            await asyncio.sleep(0.001)
