"""Requests about uploads become inputs of the core; every wrong field is named."""

import pytest

from opencode.file.upload_pb2 import CreateUploadRequest, WriteUploadRequest
from tests.support.fakes.domain_values import violations_of
from turnwire.api.wire.requests.uploads import MAX_CHUNK_BYTES, create_upload_request, write_upload_request
from turnwire.domain.conversation.limits import MAX_NUMBER
from turnwire.domain.errors import InvalidRequest
from turnwire.ports.moving.uploads import Chunk


def test_a_name_belongs_to_one_content() -> None:
    """The digest is that of everything but the name; without a name there is none."""
    first = create_upload_request(CreateUploadRequest(filename="a", request_id="1"))
    other = create_upload_request(CreateUploadRequest(filename="a", request_id="2"))
    assert first.fingerprint == other.fingerprint != ""
    assert create_upload_request(CreateUploadRequest(filename="b", request_id="1")).fingerprint != first.fingerprint
    assert create_upload_request(CreateUploadRequest(filename="a")).fingerprint == ""


def test_a_chunk_has_its_place() -> None:
    """And knows its end."""
    chunk = write_upload_request(WriteUploadRequest(upload_id="u", offset=7, data=b"123", last=True))
    assert chunk == Chunk(offset=7, data=b"123", is_last=True)
    assert chunk.end == 10


def test_every_wrong_field_is_named() -> None:
    """At once."""
    chunk = WriteUploadRequest(offset=2**63, data=bytes(MAX_CHUNK_BYTES + 1))
    assert [field for field, _ in violations_of(write_upload_request, chunk)] == ["upload_id", "offset", "data"]
    upload = CreateUploadRequest(request_id="1" * 129, mime="m" * 256, filename="f" * 1025)
    assert [field for field, _ in violations_of(create_upload_request, upload)] == ["request_id", "mime", "filename"]


def test_the_largest_values_are_right() -> None:
    """One more is wrong: no database keeps a larger number."""
    largest = CreateUploadRequest(request_id="1" * 128, mime="m" * 255, filename="f" * 1024, size_bytes=MAX_NUMBER)
    new = create_upload_request(largest)
    assert (new.request_id, new.mime, new.filename) == (largest.request_id, largest.mime, largest.filename)
    assert new.size_bytes == MAX_NUMBER
    with pytest.raises(InvalidRequest):
        create_upload_request(CreateUploadRequest(size_bytes=MAX_NUMBER + 1))
    data = bytes(MAX_CHUNK_BYTES)
    chunk = write_upload_request(WriteUploadRequest(upload_id="u", offset=MAX_NUMBER, data=data))
    assert chunk == Chunk(offset=MAX_NUMBER, data=data, is_last=False)
    with pytest.raises(InvalidRequest):
        write_upload_request(WriteUploadRequest(upload_id="u", offset=MAX_NUMBER + 1))
