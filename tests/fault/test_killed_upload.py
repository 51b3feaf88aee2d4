"""kill -9 while bytes come, and while messages use them: what was answered is there, and everything goes on."""

import asyncio
import hashlib
import random
from pathlib import Path

import grpc
import pytest

from opencode.file.upload_pb2 import CreateUploadRequest, GetUploadRequest, Upload, WriteUploadRequest
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

pytestmark = pytest.mark.slow

CONTENT = random.Random(9).randbytes(12_000_000)
KILLS = 3


class Sender:
    """A client that sends everything and remembers what it was told."""

    def __init__(self, upload_id: str, chance: random.Random) -> None:
        """Takes the upload."""
        self._upload_id = upload_id
        self._chance = chance
        self.received = 0
        self.sha256 = ""

    async def run(self, client: Client) -> None:
        """Goes on where the server is, until everything is there or the server is gone."""
        found = (await client.uploads.GetUpload(GetUploadRequest(upload_id=self._upload_id))).upload
        assert found.received_bytes >= self.received
        self._heard(found)
        while not self.sha256:
            data = CONTENT[self.received : self.received + self._chance.randrange(1, 400_000)]
            last = self.received + len(data) == len(CONTENT)
            request = WriteUploadRequest(upload_id=self._upload_id, offset=self.received, data=data, last=last)
            try:
                self._heard((await client.uploads.WriteUpload(request)).upload)
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE
                return

    def _heard(self, upload: Upload) -> None:
        self.received, self.sha256 = upload.received_bytes, upload.sha256


async def test_an_upload_goes_on_after_kills(tmp_path: Path) -> None:
    """At the offset that the server names, which is at least what it has answered; the digest is that of all bytes."""
    chance = random.Random(4)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        created = await client.uploads.CreateUpload(CreateUploadRequest(size_bytes=len(CONTENT), request_id="named"))
        await server.kill()
    sender = Sender(created.upload.upload_id, chance)
    for number in range(1, KILLS + 1):
        async with server_process(tmp_path) as server, connect(server.address) as client:
            again = CreateUploadRequest(size_bytes=len(CONTENT), request_id="named")
            assert (await client.uploads.CreateUpload(again)).upload.upload_id == created.upload.upload_id
            running = asyncio.create_task(sender.run(client))
            while sender.received < number * len(CONTENT) // (KILLS + 1):
                await asyncio.sleep(0)
            await server.kill()
            await running
    async with server_process(tmp_path) as server, connect(server.address) as client:
        await sender.run(client)
    assert (sender.received, sender.sha256) == (len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
