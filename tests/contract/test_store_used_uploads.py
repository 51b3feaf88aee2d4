"""Uploads that commits use: what `ports.commit.UseUpload` promises."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.fakes.domain_values import NOW, adding, creating, make_message
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.conversation.messages import File
from turnwire.domain.errors import SessionNotFound, UploadNotFound
from turnwire.ports.commit import Commit, PutFile, UseUpload
from turnwire.ports.moving.uploads import Chunk, Upload, UploadLimits
from turnwire.storage.sql.accounts import counted_totals
from turnwire.storage.sql.uploads import BLOCK_BYTES

WORDS = bytes(range(256)) * (3 * BLOCK_BYTES // 256) + b"the end"
"""Three blocks and a bit."""
SHA256 = hashlib.sha256(WORDS).hexdigest()
FILE = File(sha256=SHA256, size_bytes=len(WORDS), mime="text/plain")
LATER = NOW + timedelta(days=1)
USE = UseUpload("upl_1", SHA256, NOW + timedelta(hours=1))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with a session."""
    async with opened_store(tmp_path) as running:
        await running.store.commit(creating())
        yield running


async def _create(opened: OpenedStore, upload_id: str, tenant: str = "default", max_uploads: int = 9) -> Upload:
    new = Upload(upload_id=upload_id, tenant=tenant, subject="ann", created_at=NOW, expires_at=LATER)
    limits = UploadLimits(max_uploads=max_uploads, max_removed_bytes=2**40)
    return await opened.store.uploads.create(new, limits, None)


async def _complete(opened: OpenedStore, tenant: str = "default", upload_id: str = "upl_1") -> None:
    """Stores an upload of all words."""
    await _create(opened, upload_id, tenant)
    chunk = Chunk(offset=0, data=WORDS, is_last=True)
    await opened.store.uploads.write(tenant, upload_id, chunk, LATER)
    await opened.store.uploads.complete(tenant, upload_id, SHA256)


async def _bytes(opened: OpenedStore) -> bytes:
    """Returns the bytes of the first upload."""
    return b"".join([piece async for piece in opened.store.uploads.pieces("default", "upl_1")])


async def _file(opened: OpenedStore) -> bytes | None:
    """Returns the bytes of the file that a message has."""
    return await opened.store.of("default").session_file("ses_1", SHA256)


def _rows(opened: OpenedStore, table: str) -> int:
    with opened.database() as db:
        (count,) = db.row(f"SELECT count(*) FROM {table}")
    return int(count)


def _check_totals(opened: OpenedStore) -> None:
    """Compares the tenant's account with a count of all rows."""
    with opened.database() as db:
        counted = sum(delta.stored_bytes for delta in counted_totals(db) if delta.tenant == "default")
    assert opened.store.of("default").account(NOW).stored_bytes == counted


async def test_a_commit_makes_an_upload_a_file(opened: OpenedStore) -> None:
    """Its bytes count for the file alone, its blocks are gone, and only who asks for used ones finds it."""
    await _complete(opened)
    await opened.store.commit(adding(make_message("msg_1", FILE), NOW, (USE,)))
    assert await _file(opened) == WORDS
    assert (_rows(opened, "upload_blocks"), _rows(opened, "files")) == (0, 1)
    with pytest.raises(UploadNotFound):
        await opened.store.uploads.upload("default", "upl_1")
    used = await opened.store.uploads.upload("default", "upl_1", used_too=True)
    assert (used.sha256, used.received_bytes, used.is_complete) == (SHA256, len(WORDS), True)
    _check_totals(opened)


async def test_a_used_upload_takes_nothing(opened: OpenedStore) -> None:
    """No bytes, no removal, no second use; and it is no upload that the tenant has."""
    await _complete(opened)
    await opened.store.commit(adding(make_message("msg_1", FILE), NOW, (USE,)))
    for again in (
        opened.store.uploads.write("default", "upl_1", Chunk(offset=len(WORDS), data=b""), LATER),
        opened.store.uploads.complete("default", "upl_1", SHA256),
        opened.store.uploads.remove("default", "upl_1"),
        opened.store.commit(adding(make_message("msg_2", FILE), NOW, (USE,))),
    ):
        with pytest.raises(UploadNotFound):
            await again
    await _create(opened, "upl_2", max_uploads=1)
    _check_totals(opened)


async def test_a_commit_that_fails_leaves_the_upload(opened: OpenedStore) -> None:
    """With all its bytes, beside commits that succeed in the same transaction."""
    await _complete(opened)
    await _complete(opened, upload_id="upl_2")
    failing = Commit(session_id="ses_9", at=NOW, changes=(USE,))
    other = adding(make_message("msg_1", FILE), NOW, (UseUpload("upl_2", SHA256, NOW),))
    results = await asyncio.gather(opened.store.commit(failing), opened.store.commit(other), return_exceptions=True)
    assert isinstance(results[0], SessionNotFound)
    assert not isinstance(results[1], BaseException)
    assert await _bytes(opened) == WORDS
    _check_totals(opened)


@pytest.mark.parametrize(
    "use",
    [UseUpload("upl_9", SHA256, LATER), UseUpload("upl_1", "0" * 64, LATER), UseUpload("upl_open", SHA256, LATER)],
)
async def test_what_cannot_be_used_is_not_found(opened: OpenedStore, use: UseUpload) -> None:
    """None, one of other bytes, and one that is not complete; nothing is stored."""
    await _complete(opened)
    await _create(opened, "upl_open")
    with pytest.raises(UploadNotFound):
        await opened.store.commit(adding(make_message("msg_1", FILE), NOW, (use,)))
    assert _rows(opened, "files") == 0
    assert await _bytes(opened) == WORDS


async def test_an_upload_is_used_by_its_own_tenant(opened: OpenedStore) -> None:
    """A session of another tenant does not find it."""
    await _complete(opened, "other")
    with pytest.raises(UploadNotFound):
        await opened.store.commit(adding(make_message("msg_1", FILE), NOW, (USE,)))


async def test_equal_bytes_are_one_file(opened: OpenedStore) -> None:
    """However many uploads and requests brought them: they count once."""
    for number in range(3):
        await _complete(opened, upload_id=f"upl_{number}")
        use = UseUpload(f"upl_{number}", SHA256, LATER)
        await opened.store.commit(adding(make_message(f"msg_{number}", FILE), NOW, (use, PutFile(SHA256, WORDS))))
    assert (_rows(opened, "files"), _rows(opened, "upload_blocks")) == (1, 0)
    _check_totals(opened)


async def test_a_used_upload_is_forgotten(opened: OpenedStore) -> None:
    """When it may be, or when it would have expired; the file stays."""
    await _complete(opened)
    await opened.store.commit(adding(make_message("msg_1", FILE), NOW, (USE,)))
    assert await opened.store.uploads.remove_expired(NOW + timedelta(minutes=59)) == 0
    assert await opened.store.uploads.remove_expired(NOW + timedelta(minutes=61)) == 1
    while _rows(opened, "uploads"):
        await asyncio.sleep(0.01)
    with pytest.raises(UploadNotFound):
        await opened.store.uploads.upload("default", "upl_1", used_too=True)
    assert await _file(opened) == WORDS
    _check_totals(opened)
