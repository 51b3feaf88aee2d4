"""Requests about uploads as inputs of the core, checked for form."""

from opencode.file import upload_pb2 as pb
from turnwire.api.wire.requests.checks import Checks
from turnwire.api.wire.requests.fingerprints import fingerprint
from turnwire.core.intake.requests import NewUpload
from turnwire.domain.conversation.limits import MAX_NUMBER
from turnwire.ports.moving.uploads import Chunk

MAX_CHUNK_BYTES = 4 * 2**20
"""Bytes of one request, as the contract says: the writer of the database is busy with them for some milliseconds."""


def create_upload_request(request: pb.CreateUploadRequest) -> NewUpload:
    """Returns what is to be uploaded. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    if request.size_bytes > MAX_NUMBER:
        checks.fail("size_bytes", f"is more than {MAX_NUMBER}", "OUT_OF_RANGE")
    new = NewUpload(
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint("create_upload", request),
        mime=checks.at_most("mime", request.mime, 255),
        filename=checks.at_most("filename", request.filename, 1024),
        size_bytes=request.size_bytes,
    )
    checks.done()
    return new


def write_upload_request(request: pb.WriteUploadRequest) -> Chunk:
    """Returns the bytes and their place. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    checks.required("upload_id", request.upload_id)
    if request.offset > MAX_NUMBER:
        checks.fail("offset", f"is more than {MAX_NUMBER}", "OUT_OF_RANGE")
    if len(request.data) > MAX_CHUNK_BYTES:
        checks.fail(
            "data",
            f"has {len(request.data)} bytes, at most {MAX_CHUNK_BYTES} are allowed",
            "TOO_LARGE",
            MAX_CHUNK_BYTES,
        )
    checks.done()
    return Chunk(offset=request.offset, data=request.data, is_last=request.last)
