"""Messages that name large uploads, as many as come, and one upload that many messages want."""

import asyncio
import contextlib

import grpc

from bench.attacks.attack import Attack, Target
from opencode.file.upload_pb2 import CreateUploadRequest, WriteUploadRequest
from opencode.file.upload_pb2_grpc import UploadServiceStub
from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest, FilePart, MessagePart
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.session.session_pb2 import CreateSessionRequest, DeleteSessionRequest
from opencode.session.session_pb2_grpc import SessionServiceStub

FILE_BYTES = 20 * 2**20
"""The largest file by default."""
PIECE_BYTES = 4 * 2**20
WORKERS = 4
WANTED_BY = 16


async def _run(target: Target) -> None:
    """Each worker sends a file, lets many messages want it, and deletes the session with the one that got it."""
    counts = {"used": 0, "refused": 0}

    async def work() -> None:
        async with grpc.aio.insecure_channel(target.address) as channel:
            messages, sessions = MessageServiceStub(channel), SessionServiceStub(channel)
            uploads = UploadServiceStub(channel)
            while True:
                session_id = (await sessions.CreateSession(CreateSessionRequest())).id
                created = await uploads.CreateUpload(CreateUploadRequest(size_bytes=FILE_BYTES))
                for offset in range(0, FILE_BYTES, PIECE_BYTES):
                    await uploads.WriteUpload(
                        WriteUploadRequest(
                            upload_id=created.upload.upload_id,
                            offset=offset,
                            data=bytes(PIECE_BYTES),
                            last=offset + PIECE_BYTES == FILE_BYTES,
                        )
                    )
                part = MessagePart(file=FilePart(upload_id=created.upload.upload_id))
                request = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[part])
                sent = (messages.AppendMessage(request) for _ in range(WANTED_BY))
                for answer in await asyncio.gather(*sent, return_exceptions=True):
                    counts["refused" if isinstance(answer, grpc.aio.AioRpcError) else "used"] += 1
                await sessions.DeleteSession(DeleteSessionRequest(session_id=session_id))

    async def again() -> None:
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await work()
            await asyncio.sleep(0.05)

    try:
        await asyncio.gather(*(again() for _ in range(WORKERS)))
    finally:
        print(counts)


ATTACKS = (Attack("uploaded_files", "messages that want large uploads", _run),)
