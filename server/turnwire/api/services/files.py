"""opencode.file.FileService."""

from collections.abc import AsyncGenerator

from opencode.file import file_pb2 as pb
from turnwire.api.wire.requests.checks import required_ids
from turnwire.core.use_cases.files import Files
from turnwire.domain.principal import Principal

CHUNK_BYTES = 64 * 1024
"""As the contract promises; also about what one write carries well."""


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
