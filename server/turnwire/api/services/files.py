"""opencode.file.FileService."""

from collections.abc import AsyncGenerator

from opencode.file import file_pb2 as pb
from turnwire.api.wire import from_proto
from turnwire.domain.errors import StoredFileNotFound
from turnwire.ports.store import Store

CHUNK_BYTES = 64 * 1024
"""As the contract promises; also about what one write carries well."""


class FileService:
    """Reads stored files."""

    def __init__(self, store: Store) -> None:
        """Takes the store."""
        self._store = store

    async def DownloadFile(self, request: pb.DownloadFileRequest) -> AsyncGenerator[pb.DownloadFileResponse]:
        """Yields the bytes of a file in order."""
        from_proto.required_ids(session_id=request.session_id, sha256=request.sha256)
        content = await self._store.session_file(request.session_id, request.sha256)
        if content is None:
            raise StoredFileNotFound(request.sha256)
        yield pb.DownloadFileResponse(data=content[:CHUNK_BYTES], size_bytes=len(content))
        for start in range(CHUNK_BYTES, len(content), CHUNK_BYTES):
            yield pb.DownloadFileResponse(data=content[start : start + CHUNK_BYTES])
