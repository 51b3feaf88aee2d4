"""Uploads as clients make them: in pieces, again after a break, within limits, and each tenant for itself."""

import asyncio
import contextlib
import hashlib
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from opencode.file.upload_pb2 import Upload, WriteUploadRequest
from tests.support.clients.conversation import refused
from tests.support.servers.running import Client, connect, running_server
from tests.support.servers.tenants import connect_as, server_of_tenants
from turnwire import app
from turnwire.domain.principal import Role

ARCHIVE = random.Random(1).randbytes(3_000_000)


async def create(client: Client, **fields: object) -> Upload:
    """Begins an upload."""
    return (await client.uploads.CreateUpload(**fields)).upload  # type: ignore[arg-type]


async def write(client: Client, upload_id: str, offset: int, data: bytes, *, last: bool = False) -> Upload:
    """Sends bytes."""
    request = WriteUploadRequest(upload_id=upload_id, offset=offset, data=data, last=last)
    return (await client.uploads.WriteUpload(request)).upload


async def get(client: Client, upload_id: str) -> Upload:
    """Returns an upload."""
    return (await client.uploads.GetUpload(upload_id=upload_id)).upload


async def delete(client: Client, upload_id: str) -> None:
    """Removes an upload."""
    await client.uploads.DeleteUpload(upload_id=upload_id)


async def send(client: Client, upload_id: str, content: bytes, piece: int = 2**20, begin: int = 0) -> Upload:
    """Sends all bytes from a place on, in pieces, the last one marked."""
    upload = Upload()
    for offset in range(begin, max(len(content), 1), piece):
        data = content[offset : offset + piece]
        upload = await write(client, upload_id, offset, data, last=offset + piece >= len(content))
    return upload


async def stored_bytes(client: Client) -> int:
    """Returns what counts for the quota of the client's tenant."""
    quotas = (await client.usage.ListQuotas()).quotas
    return next(quota.used for quota in quotas if quota.name == "stored_bytes")


@contextlib.asynccontextmanager
async def client_of(folder: Path, toml: str) -> AsyncIterator[Client]:
    """Yields a client of a server with some configuration."""
    async with running_server(folder, toml) as server, connect(server.address) as client:
        yield client


async def test_an_upload_in_pieces(client: Client) -> None:
    """It grows with each answer, and the last one has the digest of all bytes."""
    created = await create(client, mime="application/zip", filename="C/data.zip", size_bytes=len(ARCHIVE))
    assert (created.mime, created.filename, created.size_bytes) == ("application/zip", "data.zip", len(ARCHIVE))
    assert (created.received_bytes, created.sha256) == (0, "")
    assert created.expire_time.seconds - created.create_time.seconds == 86_400
    first = await write(client, created.upload_id, 0, ARCHIVE[:1_000_001])
    assert (first.received_bytes, first.sha256) == (1_000_001, "")
    assert await get(client, created.upload_id) == first
    complete = await send(client, created.upload_id, ARCHIVE, 700_000, 1_000_001)
    assert (complete.received_bytes, complete.sha256) == (len(ARCHIVE), hashlib.sha256(ARCHIVE).hexdigest())
    assert await get(client, created.upload_id) == complete


@pytest.mark.matrix
@pytest.mark.parametrize("content", [b"", b"x"])
async def test_a_small_upload_of_unknown_size(client: Client, content: bytes) -> None:
    """Also one without any byte."""
    upload = await send(client, (await create(client)).upload_id, content)
    assert (upload.size_bytes, upload.received_bytes) == (0, len(content))
    assert upload.sha256 == hashlib.sha256(content).hexdigest()


async def test_the_last_bytes_may_come_alone(client: Client) -> None:
    """Without data, once everything is there."""
    upload = await create(client, size_bytes=4)
    await write(client, upload.upload_id, 0, b"data")
    assert (await write(client, upload.upload_id, 4, b"", last=True)).sha256 == hashlib.sha256(b"data").hexdigest()


async def test_bytes_may_come_twice(client: Client) -> None:
    """The answer is the present state, and what follows them is added; a complete upload answers them too."""
    upload = await create(client, size_bytes=10)
    for _ in range(2):
        assert (await write(client, upload.upload_id, 0, b"01234")).received_bytes == 5
    assert (await write(client, upload.upload_id, 3, b"3456")).received_bytes == 7
    complete = await write(client, upload.upload_id, 7, b"789", last=True)
    again = await write(client, upload.upload_id, 7, b"789", last=True)
    assert (again.sha256, again.received_bytes) == (complete.sha256, 10)
    assert (await write(client, upload.upload_id, 0, b"01234")).sha256 == complete.sha256


async def test_wrong_places_are_refused(client: Client) -> None:
    """With where to go on; nothing is stored."""
    upload = await create(client)
    await write(client, upload.upload_id, 0, b"01234")
    gap = await refused(write(client, upload.upload_id, 6, b"6"))
    assert (gap.code, gap.reason) == (grpc.StatusCode.OUT_OF_RANGE, "UPLOAD_OFFSET_OUT_OF_RANGE")
    assert gap.metadata == {"askedOffset": "6", "receivedBytes": "5"}
    differs = await refused(write(client, upload.upload_id, 3, b"xx56"))
    assert (differs.code, differs.reason, differs.fields) == (
        *(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", ["data"]),
    )
    early = await refused(write(client, upload.upload_id, 0, b"01", last=True))
    assert (early.reason, early.fields) == ("INVALID_REQUEST", ["last"])
    assert (await get(client, upload.upload_id)).received_bytes == 5
    await write(client, upload.upload_id, 5, b"5", last=True)
    after = await refused(write(client, upload.upload_id, 6, b"6"))
    assert (after.code, after.reason) == (gap.code, gap.reason)


async def test_another_size_than_announced_is_refused(client: Client) -> None:
    """More as soon as it comes, less at the end; the upload can still be completed."""
    upload = await create(client, size_bytes=5)
    more = await refused(write(client, upload.upload_id, 0, b"012345"))
    assert (more.reason, more.fields) == ("INVALID_REQUEST", ["data"])
    less = await refused(write(client, upload.upload_id, 0, b"0123", last=True))
    assert (less.reason, less.fields) == ("INVALID_REQUEST", ["last"])
    assert less.metadata["sizeBytes"] == "5"
    assert (await get(client, upload.upload_id)).received_bytes == 0
    assert (await write(client, upload.upload_id, 0, b"01234", last=True)).sha256


async def test_a_named_request_is_carried_out_once(client: Client) -> None:
    """A retry gets the upload as it is now; another request of that name is refused, whatever its method is."""
    first = await create(client, filename="a", request_id="once")
    grown = await write(client, first.upload_id, 0, b"12")
    assert await create(client, filename="a", request_id="once") == grown
    assert (await refused(create(client, filename="b", request_id="once"))).reason == "REQUEST_ID_REUSED"
    session = client.sessions.CreateSession(request_id="once")
    assert (await refused(session)).reason == "REQUEST_ID_REUSED"
    await client.sessions.CreateSession(request_id="a session")
    assert (await refused(create(client, request_id="a session"))).reason == "REQUEST_ID_REUSED"
    several = await asyncio.gather(*(create(client, request_id="several") for _ in range(5)))
    assert len({upload.upload_id for upload in several}) == 1
    await delete(client, first.upload_id)
    assert (await create(client, filename="a", request_id="once")).upload_id != first.upload_id


async def test_a_deleted_upload_is_unknown(client: Client) -> None:
    """At once, in every method."""
    upload = await create(client)
    await write(client, upload.upload_id, 0, b"12")
    await delete(client, upload.upload_id)
    for call in (
        get(client, upload.upload_id),
        write(client, upload.upload_id, 2, b"3"),
        delete(client, upload.upload_id),
    ):
        refusal = await refused(call)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "UPLOAD_NOT_FOUND")


@pytest.mark.slow
async def test_writers_of_one_upload_do_not_disturb_each_other(client: Client) -> None:
    """Each sends everything and follows the errors; the bytes are right, and all get the same digest."""
    upload = await create(client, size_bytes=len(ARCHIVE))

    async def one(seed: int) -> str:
        chance, offset = random.Random(seed), 0
        while True:
            data = ARCHIVE[offset : offset + chance.randrange(1, 300_000)]
            last = offset + len(data) == len(ARCHIVE)
            answer = await write(client, upload.upload_id, offset, data, last=last)
            if answer.sha256:
                return answer.sha256
            offset = chance.choice((offset + len(data), answer.received_bytes))

    assert set(await asyncio.gather(*map(one, range(4)))) == {hashlib.sha256(ARCHIVE).hexdigest()}


async def test_last_bytes_that_come_at_once_make_one_digest(client: Client) -> None:
    """All callers get it."""
    upload = await create(client)
    await write(client, upload.upload_id, 0, ARCHIVE[:1000])
    answers = await asyncio.gather(*(write(client, upload.upload_id, 1000, b"end", last=True) for _ in range(8)))
    assert {answer.sha256 for answer in answers} == {hashlib.sha256(ARCHIVE[:1000] + b"end").hexdigest()}


async def test_limits_are_kept_and_told(tmp_path: Path) -> None:
    """The size, announced or not, and the number of uploads."""
    async with client_of(tmp_path, "[files]\nmax_upload_bytes = 10\nmax_uploads = 2\n") as client:
        info = await client.server.GetServerInfo()
        assert (info.limits["files.max_upload_bytes"], info.limits["files.max_uploads"]) == (10, 2)
        assert "uploads" in info.features
        announced = await refused(create(client, size_bytes=11))
        assert (announced.reason, announced.fields) == ("MESSAGE_TOO_LARGE", ["size_bytes"])
        upload = await create(client)
        await write(client, upload.upload_id, 0, b"0123456789")
        more = await refused(write(client, upload.upload_id, 10, b"x"))
        sizes = {"maxBytes": "10", "actualBytes": "11", "limit": "files.max_upload_bytes", "limitValue": "10"}
        assert (more.reason, more.metadata) == ("MESSAGE_TOO_LARGE", {"field": "data", **sizes})
        await write(client, upload.upload_id, 10, b"", last=True)
        await create(client)
        third = await refused(create(client))
        assert (third.code, third.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT")
        assert third.metadata == {"limit": "files.max_uploads", "limitValue": "2", "used": "2"}
        await delete(client, upload.upload_id)
        await create(client)


async def test_uploads_count_for_the_quota(tmp_path: Path) -> None:
    """Exactly, by the bytes that came; what is announced must fit; deleting gives room at once; so does a restart."""
    quotas = "[tenants.acme.quotas]\nmax_stored_bytes = 100\n"
    async with server_of_tenants(tmp_path, quotas) as server, connect_as(server.address, "acme") as client:
        assert (await refused(create(client, size_bytes=101))).reason == "QUOTA_EXCEEDED"
        upload = await create(client, size_bytes=100)
        other = await create(client, size_bytes=100)
        writes = [write(client, one.upload_id, 0, bytes(60)) for one in (upload, other)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert sum(isinstance(result, Upload) for result in results) == 1
        full, empty = (upload, other) if isinstance(results[0], Upload) else (other, upload)
        assert await stored_bytes(client) == 60
        assert (await refused(write(client, empty.upload_id, 0, bytes(41)))).reason == "QUOTA_EXCEEDED"
        await write(client, empty.upload_id, 0, bytes(40))
        assert (await write(client, full.upload_id, 0, bytes(60))).received_bytes == 60
    async with server_of_tenants(tmp_path, quotas) as server, connect_as(server.address, "acme") as client:
        assert await stored_bytes(client) == 100
        await delete(client, full.upload_id)
        assert await stored_bytes(client) == 40
        assert (await write(client, empty.upload_id, 40, bytes(60), last=True)).sha256


async def test_uploads_are_those_of_a_tenant(tmp_path: Path) -> None:
    """Another caller of the tenant goes on; a reader looks only; another tenant does not know it."""
    async with (
        server_of_tenants(tmp_path) as server,
        connect_as(server.address, "acme", "ann") as ann,
        connect_as(server.address, "acme", "ben") as ben,
        connect_as(server.address, "acme", "eve", Role.READER) as reader,
        connect_as(server.address, "other", "ann") as other,
    ):
        upload = await create(ann, size_bytes=4)
        await write(ann, upload.upload_id, 0, b"12")
        assert (await write(ben, upload.upload_id, 2, b"34")).received_bytes == 4
        assert (await get(reader, upload.upload_id)).received_bytes == 4
        for call in (create(reader), write(reader, upload.upload_id, 4, b""), delete(reader, upload.upload_id)):
            assert (await refused(call)).code is grpc.StatusCode.PERMISSION_DENIED
        for call in (get(other, upload.upload_id), write(other, upload.upload_id, 4, b"")):
            assert (await refused(call)).reason == "UPLOAD_NOT_FOUND"
        assert (await stored_bytes(ann), await stored_bytes(other)) == (4, 0)


@pytest.mark.slow
async def test_an_upload_without_a_write_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day after the last one, complete or not; a start removes it as well, and its bytes count no more."""
    present = datetime(2026, 11, 1, tzinfo=UTC)
    monkeypatch.setattr(app, "utc_now", lambda: present)
    async with client_of(tmp_path, "") as client:
        old, renewed = [(await create(client)).upload_id for _ in range(2)]
        for upload_id in (old, renewed):
            await write(client, upload_id, 0, b"1234", last=upload_id == old)
        present += timedelta(hours=23)
        await write(client, renewed, 0, b"")
        present += timedelta(hours=2)
    async with client_of(tmp_path, "") as client:
        while await stored_bytes(client) != 4:
            await asyncio.sleep(0.01)
        assert (await refused(get(client, old))).reason == "UPLOAD_NOT_FOUND"
        assert (await get(client, renewed)).received_bytes == 4
