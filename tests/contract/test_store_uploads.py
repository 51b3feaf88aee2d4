"""Uploads: what `ports.moving.uploads.UploadStore` promises."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.domain_values import NOW, adding, creating, make_message
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.errors import InvalidRequest, QuotaExceeded, TooManyUploads, UploadNotFound, UploadOffsetOutOfRange
from turnwire.domain.principal import Principal, Role
from turnwire.ports.commit import RecordRequest
from turnwire.ports.moving.uploads import Chunk, Upload, UploadLimits
from turnwire.storage.sql.accounts import count_anew
from turnwire.storage.sql.uploads import BLOCK_BYTES
from turnwire.storage.sql.writer import MAX_BATCH_BYTES

ANN = Principal(tenant="default", subject="ann", role=Role.WRITER)
LATER = NOW + timedelta(days=1)
WORDS = bytes(range(256)) * (3 * BLOCK_BYTES // 256) + b"the end"
"""Three blocks and a bit."""


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """An empty store."""
    async with opened_store(tmp_path) as running:
        yield running


def limits(max_uploads: int, max_removed_bytes: int = 2**40) -> UploadLimits:
    """Returns the limits of a tenant."""
    return UploadLimits(max_uploads=max_uploads, max_removed_bytes=max_removed_bytes)


TEN = limits(10)


def _new(upload_id: str = "upl_1", tenant: str = "default", **fields: Any) -> Upload:
    return Upload(upload_id=upload_id, tenant=tenant, subject="ann", created_at=NOW, expires_at=LATER, **fields)


async def _created(opened: OpenedStore, upload_id: str = "upl_1", tenant: str = "default") -> Upload:
    return await opened.store.uploads.create(_new(upload_id, tenant), TEN, None)


async def _write(opened: OpenedStore, offset: int, data: bytes, *, is_last: bool = False) -> Upload:
    chunk = Chunk(offset=offset, data=data, is_last=is_last)
    return await opened.store.uploads.write("default", "upl_1", chunk, LATER)


async def _bytes(opened: OpenedStore) -> bytes:
    return b"".join([piece async for piece in opened.store.uploads.pieces("default", "upl_1")])


def _stored(opened: OpenedStore, tenant: str = "default") -> int:
    return opened.store.of(tenant).account(NOW).stored_bytes


def _rows(opened: OpenedStore, table: str) -> int:
    with opened.database() as db:
        (count,) = db.row(f"SELECT count(*) FROM {table}")
    return int(count)


async def _emptied(opened: OpenedStore) -> None:
    """Returns when no row of an upload is left."""
    while _rows(opened, "uploads") or _rows(opened, "upload_blocks"):
        await asyncio.sleep(0.01)


async def test_what_was_created_is_found(opened: OpenedStore) -> None:
    """With everything that it was given, by its tenant alone."""
    new = _new(mime="application/zip", filename="a.zip", size_bytes=7)
    assert await opened.store.uploads.create(new, TEN, None) == new
    assert await opened.store.uploads.upload("default", "upl_1") == new
    for tenant, upload_id in (("other", "upl_1"), ("default", "upl_2")):
        with pytest.raises(UploadNotFound):
            await opened.store.uploads.upload(tenant, upload_id)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 5, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES, len(WORDS)])
async def test_pieces_of_any_size_make_the_same_bytes(opened: OpenedStore, size: int) -> None:
    """And the same rows: however they came, all blocks but the last are full."""
    await _created(opened)
    content = WORDS if size > 5 else WORDS[:200]
    for offset in range(0, len(content), size):
        written = await _write(opened, offset, content[offset : offset + size])
        assert written.received_bytes == min(offset + size, len(content))
    assert await _bytes(opened) == content
    assert _rows(opened, "upload_blocks") == -(-len(content) // BLOCK_BYTES)


async def test_bytes_that_came_again_change_nothing(opened: OpenedStore) -> None:
    """Also when more follow them, which are stored."""
    await _created(opened)
    first = await _write(opened, 0, WORDS[:100])
    assert await _write(opened, 0, WORDS[:100]) == first
    assert await _write(opened, 50, b"") == first
    assert (await _write(opened, 20, WORDS[20:300])).received_bytes == 300
    assert (await _write(opened, 1, WORDS[1 : BLOCK_BYTES + 9])).received_bytes == BLOCK_BYTES + 9
    assert await _bytes(opened) == WORDS[: BLOCK_BYTES + 9]


async def test_bytes_that_differ_are_refused(opened: OpenedStore) -> None:
    """Wherever they differ, and nothing of the chunk is stored."""
    await _created(opened)
    await _write(opened, 0, WORDS)
    for place in (0, BLOCK_BYTES - 1, BLOCK_BYTES, len(WORDS) - 1):
        wrong = bytearray(WORDS + b"more")
        wrong[place] ^= 1
        with pytest.raises(InvalidRequest) as refused:
            await _write(opened, 0, bytes(wrong))
        assert (refused.value.violations[0].field, refused.value.metadata["receivedBytes"]) == ("data", str(len(WORDS)))
    assert await _bytes(opened) == WORDS


async def test_a_gap_is_refused(opened: OpenedStore) -> None:
    """The error says where to go on."""
    await _created(opened)
    await _write(opened, 0, b"12345")
    with pytest.raises(UploadOffsetOutOfRange) as refused:
        await _write(opened, 6, b"7")
    assert refused.value.metadata == {"askedOffset": "6", "receivedBytes": "5"}
    assert await _bytes(opened) == b"12345"


async def test_the_last_bytes_seal(opened: OpenedStore) -> None:
    """Nothing follows them; they may come again, and what came before as well."""
    await _created(opened)
    await _write(opened, 0, b"12345")
    with pytest.raises(InvalidRequest):
        await _write(opened, 0, b"1234", is_last=True)
    sealed = await _write(opened, 5, b"67", is_last=True)
    assert (sealed.is_sealed, sealed.is_complete, sealed.received_bytes) == (True, False, 7)
    assert await _write(opened, 5, b"67", is_last=True) == sealed
    assert await _write(opened, 0, b"123") == sealed
    for offset, data in ((7, b"8"), (5, b"678")):
        with pytest.raises(UploadOffsetOutOfRange):
            await _write(opened, offset, data)
    digest = hashlib.sha256(b"1234567").hexdigest()
    complete = await opened.store.uploads.complete("default", "upl_1", digest)
    assert (complete.is_complete, complete.sha256) == (True, digest)
    assert await opened.store.uploads.upload("default", "upl_1") == complete


async def test_a_digest_needs_a_seal(opened: OpenedStore) -> None:
    """An upload that grows has none."""
    await _created(opened)
    assert not (await opened.store.uploads.complete("default", "upl_1", "00")).is_complete


async def test_a_write_puts_the_expiry_off(opened: OpenedStore) -> None:
    """Also one that stores nothing new."""
    await _created(opened)
    later = LATER + timedelta(hours=1)
    await opened.store.uploads.write("default", "upl_1", Chunk(offset=0, data=b""), later)
    assert (await opened.store.uploads.upload("default", "upl_1")).expires_at == later
    assert await opened.store.uploads.remove_expired(LATER + timedelta(minutes=1)) == 0
    assert await opened.store.uploads.remove_expired(later + timedelta(microseconds=1)) == 1
    with pytest.raises(UploadNotFound):
        await opened.store.uploads.upload("default", "upl_1")


async def test_many_expired_ones_are_removed_in_several_steps(opened: OpenedStore) -> None:
    """Each step has a bound."""
    new = (_new(f"upl_{n}") for n in range(130))
    await asyncio.gather(*(opened.store.uploads.create(upload, limits(1000), None) for upload in new))
    steps = [await opened.store.uploads.remove_expired(LATER + timedelta(1)) for _ in range(3)]
    assert steps == [100, 30, 0]


async def test_the_number_of_uploads_is_exact(opened: OpenedStore) -> None:
    """At the same time only those succeed for which there is room; a removed one leaves its place."""
    new = [opened.store.uploads.create(_new(f"upl_{n}"), limits(3), None) for n in range(9)]
    results = await asyncio.gather(*new, return_exceptions=True)
    assert sum(isinstance(result, Upload) for result in results) == 3
    assert sum(isinstance(result, TooManyUploads) for result in results) == 6
    await opened.store.uploads.create(_new("upl_1", "other"), limits(3), None)
    await opened.store.uploads.remove("default", "upl_0")
    await opened.store.uploads.create(_new("upl_new"), limits(3), None)


@pytest.mark.slow
async def test_space_is_not_taken_faster_than_it_is_freed(opened: OpenedStore) -> None:
    """While more of a tenant's bytes than allowed are being removed, it begins no upload; others do."""
    await _created(opened)
    for offset in range(0, 40 * BLOCK_BYTES, 4 * BLOCK_BYTES):
        await _write(opened, offset, bytes(4 * BLOCK_BYTES))
    size = 40 * BLOCK_BYTES
    removing = opened.store.uploads.remove("default", "upl_1")
    results = await asyncio.gather(
        opened.store.uploads.create(_new("upl_2"), limits(9, size - 1), None),
        opened.store.uploads.create(_new("upl_3"), limits(9, size), None),
        opened.store.uploads.create(_new("upl_4", "other"), limits(9, 0), None),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [TooManyUploads, Upload, Upload]
    await removing
    while _rows(opened, "upload_blocks"):
        await asyncio.sleep(0.01)
    while _rows(opened, "uploads") > 2:
        await asyncio.sleep(0.01)
    await opened.store.uploads.create(_new("upl_2"), limits(9, 0), None)


@pytest.mark.slow
async def test_what_is_removed_counts_no_more_at_once(opened: OpenedStore) -> None:
    """Its rows go a little later, in steps; others stay."""
    await _created(opened, tenant="other")
    await opened.store.uploads.write("other", "upl_1", Chunk(offset=0, data=b"1234"), LATER)
    await _created(opened)
    for offset in range(0, 40 * BLOCK_BYTES, 4 * BLOCK_BYTES):
        await _write(opened, offset, bytes(4 * BLOCK_BYTES))
    assert (_stored(opened), _stored(opened, "other")) == (40 * BLOCK_BYTES, 4)
    await opened.store.uploads.remove("default", "upl_1")
    assert (_stored(opened), _stored(opened, "other")) == (0, 4)
    assert _rows(opened, "upload_blocks") > 1
    with pytest.raises(UploadNotFound):
        await opened.store.uploads.remove("default", "upl_1")
    with pytest.raises(UploadNotFound):
        await _bytes(opened)
    while _rows(opened, "upload_blocks") > 1:
        await asyncio.sleep(0.01)
    await opened.store.uploads.remove("other", "upl_1")
    await _emptied(opened)


@pytest.mark.sqlite
async def test_many_small_ones_go_together(opened: OpenedStore) -> None:
    """In few transactions, and none of them counts or is in the way of new ones meanwhile."""
    new = (_new(f"upl_{n}") for n in range(300))
    await asyncio.gather(*(opened.store.uploads.create(upload, limits(1000), None) for upload in new))
    steps: list[str] = []
    await opened.store._writing.run(lambda db: db.set_trace_callback(steps.append))
    await asyncio.gather(*(opened.store.uploads.remove("default", f"upl_{n}") for n in range(300)))
    await opened.store.uploads.create(_new("upl_new"), limits(1), None)
    while _rows(opened, "uploads") > 1:
        await asyncio.sleep(0.01)
    assert steps.count("COMMIT") < 20


@pytest.mark.sqlite
async def test_counting_reads_what_the_tenant_has(opened: OpenedStore) -> None:
    """By an index without those of others and those that are going."""
    statements: list[str] = []
    await opened.store._writing.run(lambda db: db.set_trace_callback(statements.append))
    await _created(opened)
    await opened.store._writing.run(lambda db: db.set_trace_callback(None))
    [count] = [statement for statement in statements if "count(*)" in statement]
    with opened.database() as db:
        [plan] = db.rows(f"EXPLAIN QUERY PLAN {count}")
    assert "uploads_of_tenants (tenant=?" in plan[3]


async def test_an_id_is_free_once_its_upload_is_gone(opened: OpenedStore) -> None:
    """Earlier reads do not show the bytes of another one."""
    await _created(opened)
    await _write(opened, 0, b"old")
    await opened.store.uploads.remove("default", "upl_1")
    await _emptied(opened)
    await _created(opened)
    assert await _bytes(opened) == b""


async def test_a_removal_during_a_read_ends_it(opened: OpenedStore) -> None:
    """With an error: bytes that are cut off are never taken for the whole."""
    await _created(opened)
    for offset in range(0, 8 * BLOCK_BYTES, 4 * BLOCK_BYTES):
        await _write(opened, offset, bytes(4 * BLOCK_BYTES))
    pieces = opened.store.uploads.pieces("default", "upl_1")
    await anext(pieces)
    await opened.store.uploads.remove("default", "upl_1")
    with pytest.raises(UploadNotFound):
        await anext(pieces)


async def test_another_start_has_everything(tmp_path: Path) -> None:
    """The bytes, where to go on, the account, the named request; and it goes on with the removal of the last one."""
    record = RecordRequest(ANN, "req_1", "digest", "{}")
    async with opened_store(tmp_path) as opened:
        await opened.store.uploads.create(_new(), TEN, record)
        before = await _write(opened, 0, WORDS)
        await _created(opened, "upl_2")
        await opened.store.uploads.write("default", "upl_2", Chunk(offset=0, data=b"counts no more"), LATER)
    with opened.database() as db:
        db.run("UPDATE uploads SET removed = 1 WHERE upload_id = 'upl_2'")
        count_anew(db)
    async with opened_store(tmp_path) as opened:
        assert await opened.store.uploads.upload("default", "upl_1") == before
        assert await _bytes(opened) == WORDS
        assert _stored(opened) == len(WORDS)
        known = await opened.store.request(ANN, "req_1")
        assert known is not None
        assert (known.fingerprint, known.receipt_json) == ("digest", "{}")
        while _rows(opened, "uploads") > 1:
            await asyncio.sleep(0.01)
        await opened.store.uploads.remove("default", "upl_1")
        assert await opened.store.request(ANN, "req_1") is None
        await _emptied(opened)


async def test_a_name_is_its_callers_own(opened: OpenedStore) -> None:
    """Tenant and subject count."""
    await opened.store.uploads.create(_new(), TEN, RecordRequest(ANN, "req_1", "digest", "{}"))
    for tenant, subject in (("default", "bob"), ("other", "ann")):
        assert await opened.store.request(Principal(tenant=tenant, subject=subject, role=Role.WRITER), "req_1") is None


async def test_units_fail_alone(opened: OpenedStore) -> None:
    """A chunk that is refused takes neither another chunk nor a message of its transaction with it."""
    await _created(opened)
    await opened.store.commit(creating("ses_1"))
    before = _stored(opened)
    results = await asyncio.gather(
        _write(opened, 0, b"1234"),
        _write(opened, 9, b"too far"),
        opened.store.commit(adding(make_message("msg_1", "hello"))),
        _write(opened, 4, b"5678"),
        return_exceptions=True,
    )
    assert [type(result).__name__ for result in results] == [
        *("Upload", "UploadOffsetOutOfRange", "Committed", "Upload")
    ]
    assert await _bytes(opened) == b"12345678"
    with opened.database() as db:
        (session,) = db.row("SELECT sum(stored_bytes) FROM sessions")
    assert _stored(opened) == session + 8 > before


async def test_large_chunks_do_not_share_one_transaction(opened: OpenedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other writes wait for a bounded number of bytes."""
    monkeypatch.setattr("turnwire.storage.sql.writer.BATCH_SECONDS", 60.0)
    ended = []
    opened.store._writer._observer = type("Ends", (), {"batch_ended": lambda _, end: ended.append(end.commits)})()
    await asyncio.gather(*(_created(opened, f"upl_{n}") for n in range(9)))
    ended.clear()
    chunk = Chunk(offset=0, data=bytes(MAX_BATCH_BYTES // 4))
    await asyncio.gather(*(opened.store.uploads.write("default", f"upl_{n}", chunk, LATER) for n in range(9)))
    assert ended == [4, 4, 1]


async def test_bytes_that_are_there_need_no_quota(opened: OpenedStore) -> None:
    """A client that sends again what it was not told gets an answer. What is announced is checked, and not counted."""
    uploads = opened.store.uploads
    most = UploadLimits(max_uploads=9, max_removed_bytes=2**40, max_stored_bytes=10)
    with pytest.raises(QuotaExceeded):
        await uploads.create(_new("upl_1", size_bytes=11), most, None)
    for number in (1, 2):
        await uploads.create(_new(f"upl_{number}", size_bytes=10), most, None)
    first = Chunk(offset=0, data=b"1234567")
    await uploads.write("default", "upl_1", first, LATER, 10)
    with pytest.raises(QuotaExceeded) as refused:
        await uploads.write("default", "upl_2", Chunk(offset=0, data=b"1234"), LATER, 10)
    assert refused.value.metadata == {"quota": "stored_bytes", "limit": "10", "used": "7"}
    assert (await uploads.write("default", "upl_1", first, LATER, 7)).received_bytes == 7
