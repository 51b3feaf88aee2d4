"""Uploads as clients make them, and messages and results that name them."""

import grpc

from opencode.file.upload_pb2 import Upload, WriteUploadRequest
from opencode.message.message_pb2 import SendMessageRequest
from tests.support.clients.conversation import file, text
from tests.support.servers.running import Client


async def uploaded(client: Client, content: bytes, *, last: bool = True, **fields: str) -> Upload:
    """Returns a new upload with these bytes, which may be at most 4 MiB; complete unless said otherwise."""
    created = (await client.uploads.CreateUpload(**fields)).upload  # type: ignore[arg-type]
    request = WriteUploadRequest(upload_id=created.upload_id, data=content, last=last)
    return (await client.uploads.WriteUpload(request)).upload


async def found(client: Client, upload: Upload) -> Upload:
    """Returns an upload as it is now."""
    return (await client.uploads.GetUpload(upload_id=upload.upload_id)).upload


def naming(*uploads: Upload, session_id: str = "", request_id: str = "") -> SendMessageRequest:
    """Returns the request that sends a text with uploads."""
    files = [file(upload_id=upload.upload_id) for upload in uploads]
    return SendMessageRequest(session_id=session_id, request_id=request_id, parts=[text("look"), *files])


async def is_used(client: Client, upload: Upload) -> bool:
    """Returns whether nobody can name an upload any more."""
    try:
        await found(client, upload)
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.NOT_FOUND
        return True
    return False
