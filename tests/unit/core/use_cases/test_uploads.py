"""Receiving goes on without its caller, counts what is not stored yet, makes each digest once, and forgets."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from tests.support.fakes.core import FakeStore, make_environment
from tests.support.fakes.loop import begun, elapse, settled
from tests.support.fakes.uploads import FakeUploads
from turnwire.core.intake.requests import NamedRequests, NewUpload
from turnwire.core.settings import FileSettings
from turnwire.core.use_cases.uploads import INTERVAL_SECONDS, MAX_DIGESTS, UploadExpiry, Uploads
from turnwire.domain.errors import InvalidRequest, ShuttingDown, StorageError, StorageFull
from turnwire.domain.principal import BUILT_IN
from turnwire.ports.moving.uploads import Chunk, Upload

MINUTE = timedelta(seconds=INTERVAL_SECONDS)


class World:
    """The use cases on a store in memory."""

    def __init__(self, *, automatic: bool = True, **files: int) -> None:
        self.fake = FakeUploads(automatic)
        self.store = FakeStore(uploads=self.fake)
        environment = make_environment(self.store, settings={"files": FileSettings(**files)})
        self.uploads = Uploads(environment, NamedRequests(environment.store, environment.detached))

    async def begun(self, size: int = 0) -> str:
        """Returns the id of a new upload."""
        creating = await begun(self.uploads.create(BUILT_IN, NewUpload(size_bytes=size)))
        self.fake.release()
        return (await creating).upload_id

    def writing(self, upload_id: str, offset: int, data: bytes, *, is_last: bool = False) -> "asyncio.Task[Upload]":
        """Starts a write."""
        chunk = Chunk(offset=offset, data=data, is_last=is_last)
        return asyncio.create_task(self.uploads.write(BUILT_IN, upload_id, chunk))


async def test_a_name_loses_its_folders() -> None:
    """As that of an attachment does; the media type must have the form of one."""
    world = World()
    new = NewUpload(filename="../a/b.zip", mime="application/zip")
    assert (await world.uploads.create(BUILT_IN, new)).filename == "b.zip"
    with pytest.raises(InvalidRequest):
        await world.uploads.create(BUILT_IN, NewUpload(mime="zip"))


async def test_a_cancelled_write_is_stored() -> None:
    """Its future is the store's own."""
    world = World(automatic=False)
    writing = world.writing(await world.begun(), 0, b"123456")
    await settled()
    writing.cancel()
    await settled()
    assert not world.fake.waiting[0][0].cancelled()
    world.fake.release()


async def test_a_digest_that_failed_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next write of its client, as after a moment without a disk; all who wait for it learn of the error."""
    world = World()
    upload_id = await world.begun()
    world.fake.may_read.clear()

    async def unreadable(tenant: str, upload_id: str) -> AsyncIterator[bytes]:
        await world.fake.may_read.wait()
        raise StorageError("the disk is gone")
        yield b""

    with monkeypatch.context() as patched:
        patched.setattr(world.fake, "pieces", unreadable)
        writes = [world.writing(upload_id, 0, b"data", is_last=True)]
        await settled()
        writes.append(world.writing(upload_id, 4, b"", is_last=True))
        await settled()
        world.fake.may_read.set()
        assert [type(end) for end in await asyncio.gather(*writes, return_exceptions=True)] == [StorageError] * 2
    again = await world.writing(upload_id, 4, b"", is_last=True)
    assert again.sha256 == hashlib.sha256(b"data").hexdigest()


async def test_tenants_have_turns_with_digests() -> None:
    """However many uploads of another one were complete before."""
    world, ended = World(), list[str]()

    async def complete(upload_id: str, name: str) -> None:
        await world.writing(upload_id, 0, name.encode(), is_last=True)
        ended.append(name)

    upload_ids = [await world.begun() for _ in range(10)]
    world.fake.may_read.clear()
    calls = []
    for number, upload_id in enumerate(upload_ids):
        name = "many" if number < 9 else "one"
        upload = world.fake.uploads[upload_id]
        world.fake.uploads[upload_id] = msgspec.structs.replace(upload, tenant=name)
        calls.append(asyncio.create_task(complete(upload_id, name)))
        await settled()
    world.fake.may_read.set()
    await asyncio.gather(*calls)
    assert ended.index("one") <= 2 * MAX_DIGESTS


async def test_a_sealed_upload_is_completed_by_any_write() -> None:
    """The process may have ended between the last bytes and the digest."""
    world = World()
    upload_id = await world.begun()
    chunk, expires_at = Chunk(offset=0, data=b"data", is_last=True), world.fake.uploads[upload_id].expires_at
    await world.fake.write("default", upload_id, chunk, expires_at)
    assert not (await world.uploads.get(BUILT_IN, upload_id)).is_complete
    assert (await world.writing(upload_id, 4, b"")).is_complete


async def test_the_stop_ends_digests() -> None:
    """The client sends its last bytes again after the restart."""
    world = World()
    upload_id = await world.begun()
    world.fake.may_read.clear()
    writing = world.writing(upload_id, 0, b"data", is_last=True)
    await settled()
    await world.uploads.aclose()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert not world.fake.uploads[upload_id].is_complete


async def test_looks_go_on_until_nothing_is_found() -> None:
    """Each removes a bounded number; one that fails does not end them."""
    fake = FakeUploads(expired=[100, 7, 0, StorageFull("no space"), ShuttingDown(), 1])
    expiry = UploadExpiry(make_environment(FakeStore(uploads=fake)))
    expiry.start()
    await settled()
    assert len(fake.looked_at) == 3
    await elapse(MINUTE)
    assert len(fake.looked_at) == 4
    await elapse(MINUTE)
    assert len(fake.looked_at) == 5
    await elapse(MINUTE)
    assert len(fake.looked_at) == 7
    await expiry.aclose()
    await elapse(MINUTE)
    assert len(fake.looked_at) == 7
    await expiry.aclose()


async def test_the_stop_cancels_no_change_of_the_store() -> None:
    """The store's own future is not the task's to cancel."""
    fake = FakeUploads(automatic=False)
    expiry = UploadExpiry(make_environment(FakeStore(uploads=fake)))
    expiry.start()
    await settled()
    await expiry.aclose()
    [(future, _)] = fake.waiting
    assert not future.done()
