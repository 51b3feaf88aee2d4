"""Requests about uploads become inputs of the core; every wrong field is named."""

import pytest

from opencode.file.upload_pb2 import CreateUploadRequest, WriteUploadRequest
from turnwire.api.wire.requests.files.uploads import MAX_CHUNK_BYTES, create_upload_request, write_upload_request
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
    with pytest.raises(InvalidRequest) as caught:
        write_upload_request(WriteUploadRequest(offset=2**63, data=bytes(MAX_CHUNK_BYTES + 1)))
    assert [violation.field for violation in caught.value.violations] == ["upload_id", "offset", "data"]
