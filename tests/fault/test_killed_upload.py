"""kill -9 while bytes come, and while messages use them: what was answered is there, and everything goes on."""

import asyncio
import hashlib
import random
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from opencode.file.upload_pb2 import CreateUploadRequest, GetUploadRequest, Upload, WriteUploadRequest
from opencode.message.message_pb2 import AbortSessionRequest, SendMessageRequest
from opencode.tool.tool_pb2 import SubmitToolResultRequest, ToolResultFile
from opencode.turn.turn_pb2 import BUSY_POLICY_QUEUE
from tests.support.clients.conversation import FOREVER, ask, messages_of, new_session, refused, turn_ended, watching
from tests.support.clients.tool_calls import LOOK, pending_calls, result
from tests.support.clients.uploads import found, is_used, naming, uploaded
from tests.support.oracles.sound import problems
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

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
    assert problems(tmp_path / "turnwire.db") == []


@dataclass
class Answered:
    """A result with an upload, and whether its client was told that it is stored."""

    request: SubmitToolResultRequest
    upload: Upload
    is_stored: bool = False


async def _submit_all(client: Client, results: list[Answered]) -> None:
    """Submits all results at once, until the server is gone."""

    async def submit(one: Answered) -> None:
        try:
            await client.tools.SubmitToolResult(one.request)
            one.is_stored = True
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE

    await asyncio.gather(*map(submit, results))


@pytest.mark.fault_long
async def test_a_killed_server_has_a_result_with_its_upload_or_neither(tmp_path: Path) -> None:
    """What was answered has its file; the same result comes again and counts once, and its turn goes on."""
    results: list[Answered] = []
    chance = random.Random(7)
    accepted, calls = [], []
    async with server_process(tmp_path) as server, connect(server.address) as client:
        for number in range(8):
            turn, [call] = await pending_calls(client, LOOK)
            upload = await uploaded(client, chance.randbytes(chance.randrange(1, 900_000)))
            request = result(turn, call, f"seen {number}", files=[ToolResultFile(upload_id=upload.upload_id)])
            results.append(Answered(request, upload))
            accepted.append(turn)
            calls.append(call.id)
        submitting = asyncio.create_task(_submit_all(client, results))
        while not any(one.is_stored for one in results):
            await asyncio.sleep(0)
        await server.kill()
        await submitting
    assert problems(tmp_path / "turnwire.db") == []
    async with server_process(tmp_path) as server, connect(server.address) as client:
        for turn, call_id, one in zip(accepted, calls, results, strict=True):
            before = [part.tool_use for part in (await messages_of(client, turn.session_id))[1].parts]
            has_it = {call.id: [file.sha256 for file in call.files] for call in before}[call_id] == [one.upload.sha256]
            assert has_it == await is_used(client, one.upload)
            assert has_it or not one.is_stored
        await _submit_all(client, results)
        for turn, call_id, one in zip(accepted, calls, results, strict=True):
            await turn_ended(client, turn)
            [call] = [part.tool_use for part in (await messages_of(client, turn.session_id))[1].parts]
            assert (call.id, call.output) == (call_id, one.request.output)
            assert [file.sha256 for file in call.files] == [one.upload.sha256]
            assert await is_used(client, one.upload)
        await server.terminate()
    assert problems(tmp_path / "turnwire.db") == []


@pytest.mark.fault_long
async def test_a_killed_server_has_the_files_of_its_queue(tmp_path: Path) -> None:
    """A full queue of messages with uploads is answered after the kill, in its order; one for which there was no room
    leaves its upload.
    """
    chance, limits = random.Random(8), "[limits]\nmax_queued_messages = 10\n"
    uploads, waiting = list[Upload](), []
    async with server_process(tmp_path, limits) as server, connect(server.address) as client:
        first = await client.messages.SendMessage(ask(FOREVER))
        for _ in range(11):
            uploads.append(await uploaded(client, chance.randbytes(chance.randrange(1, 900_000))))
        for upload in uploads[:10]:
            request = naming(upload, session_id=first.session_id)
            request.busy_policy = BUSY_POLICY_QUEUE
            waiting.append(await client.messages.SendMessage(request))
        one_more = client.messages.SendMessage(naming(uploads[10], session_id=first.session_id))
        assert (await refused(one_more)).reason == "CONCURRENCY_LIMIT"
        await server.kill()
    assert problems(tmp_path / "turnwire.db") == []
    async with server_process(tmp_path, limits) as server, connect(server.address) as client:
        await client.messages.AbortSession(
            AbortSessionRequest(session_id=first.session_id, expected_turn_id=first.turn_id, keep_queue=True)
        )
        async with watching(client, first.session_id, after_sequence=0) as watch:
            await watch.until_turn_ended(waiting[-1].turn_id)
        messages = {message.message_id: message for message in await messages_of(client, first.session_id)}
        order = [message_id for message_id in messages if message_id in {one.message_id for one in waiting}]
        assert order == [one.message_id for one in waiting]
        for accepted, upload in zip(waiting, uploads, strict=False):
            [stored] = [part.file for part in messages[accepted.message_id].parts if part.HasField("file")]
            assert stored.sha256 == upload.sha256
        assert [await is_used(client, upload) for upload in uploads] == [True] * 10 + [False]
        await server.terminate()
    assert problems(tmp_path / "turnwire.db") == []
