"""kill -9 while bytes come, and while messages use them: what was answered is there, and everything goes on."""

import asyncio
import hashlib
import random
from dataclasses import dataclass
from pathlib import Path

import grpc

from opencode.file.upload_pb2 import CreateUploadRequest, GetUploadRequest, Upload, WriteUploadRequest
from opencode.message.message_pb2 import SendMessageRequest
from tests.support.clients.conversation import messages_of, new_session, refused
from tests.support.clients.uploads import found, naming, uploaded
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect
from turnwire.api.wire.codec import ProtoCodec
from turnwire.cli.operator.event_frames import ProtoFrames
from turnwire.storage.sqlite.care.examination import Examiner

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


@dataclass
class Told:
    """A message with an upload that a client has sent, and what it was told."""

    request: SendMessageRequest
    upload: Upload
    message_id: str = ""


async def _send_all(client: Client, all_told: list[Told]) -> None:
    """Sends all messages at once, until the server is gone."""

    async def send(told: Told) -> None:
        try:
            told.message_id = (await client.messages.SendMessage(told.request)).message_id
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE

    await asyncio.gather(*map(send, all_told))


async def test_a_killed_server_used_an_upload_or_has_it(tmp_path: Path) -> None:
    """What was answered has its file; each message comes again under its name and is there once, with one file."""
    all_told: list[Told] = []
    chance = random.Random(6)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client)
        for number in range(12):
            upload = await uploaded(client, chance.randbytes(chance.randrange(1, 900_000)))
            request = naming(upload, session_id=session_id, request_id=f"message {number}")
            all_told.append(Told(request, upload))
        sending = asyncio.create_task(_send_all(client, all_told))
        while not any(told.message_id for told in all_told):
            await asyncio.sleep(0)
        await server.kill()
        await sending
    answered = {told.message_id for told in all_told} - {""}
    async with server_process(tmp_path) as server, connect(server.address) as client:
        assert answered <= {message.message_id for message in await messages_of(client, session_id)}
        await _send_all(client, all_told)
        messages = {message.message_id: message for message in await messages_of(client, session_id)}
        for told in all_told:
            [stored] = [part.file for part in messages[told.message_id].parts if part.HasField("file")]
            assert stored.sha256 == told.upload.sha256
            assert (await refused(found(client, told.upload))).reason == "UPLOAD_NOT_FOUND"
        assert len({told.message_id for told in all_told}) == len(all_told)
    findings = Examiner(ProtoCodec(), ProtoFrames()).examine(tmp_path / "turnwire.db").findings
    assert [finding for finding in findings if finding.name != "turns.unfinished"] == []
