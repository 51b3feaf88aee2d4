"""opencode.file.FileService and UploadService."""

from collections.abc import AsyncGenerator

from opencode.file import file_pb2 as pb
from opencode.file import upload_pb2
from turnwire.api.wire.answers.files import upload
from turnwire.api.wire.requests.checks import required_ids
from turnwire.api.wire.requests.uploads import create_upload_request, write_upload_request
from turnwire.core.use_cases.uploads import Files, Uploads
from turnwire.domain.principal import Principal

CHUNK_BYTES = 64 * 1024
"""Size of a chunk, as the contract promises; also about as much as one write carries well."""


class FileService:
    """Reads stored files."""

    def __init__(self, files: Files) -> None:
        """Takes the use cases."""
        self._files = files

    async def DownloadFile(
        self, principal: Principal, request: pb.DownloadFileRequest
    ) -> AsyncGenerator[pb.DownloadFileResponse]:
        """Yields the bytes of a file in order."""
        required_ids(session_id=request.session_id, sha256=request.sha256)
        content = await self._files.read(principal, request.session_id, request.sha256)
        yield pb.DownloadFileResponse(data=content[:CHUNK_BYTES], size_bytes=len(content))
        for start in range(CHUNK_BYTES, len(content), CHUNK_BYTES):
            yield pb.DownloadFileResponse(data=content[start : start + CHUNK_BYTES])


class UploadService:
    """Receives bytes in pieces."""

    def __init__(self, uploads: Uploads) -> None:
        """Takes the use cases."""
        self._uploads = uploads

    async def CreateUpload(
        self, principal: Principal, request: upload_pb2.CreateUploadRequest
    ) -> upload_pb2.CreateUploadResponse:
        """Begins an upload."""
        created = await self._uploads.create(principal, create_upload_request(request))
        return upload_pb2.CreateUploadResponse(upload=upload(created))

    async def WriteUpload(
        self, principal: Principal, request: upload_pb2.WriteUploadRequest
    ) -> upload_pb2.WriteUploadResponse:
        """Stores bytes."""
        chunk = write_upload_request(request)
        written = await self._uploads.write(principal, request.upload_id, chunk)
        return upload_pb2.WriteUploadResponse(upload=upload(written))

    async def GetUpload(
        self, principal: Principal, request: upload_pb2.GetUploadRequest
    ) -> upload_pb2.GetUploadResponse:
        """Returns an upload."""
        required_ids(upload_id=request.upload_id)
        found = await self._uploads.get(principal, request.upload_id)
        return upload_pb2.GetUploadResponse(upload=upload(found))

    async def DeleteUpload(
        self, principal: Principal, request: upload_pb2.DeleteUploadRequest
    ) -> upload_pb2.DeleteUploadResponse:
        """Removes an upload."""
        required_ids(upload_id=request.upload_id)
        await self._uploads.delete(principal, request.upload_id)
        return upload_pb2.DeleteUploadResponse()
