"""Messages and results that name uploads: the bytes become files, and each upload is used once."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from opencode.file.upload_pb2 import Upload
from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import DISPOSITION_DUPLICATE, ExplainContextRequest
from opencode.tool.tool_pb2 import ToolResultFile
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    displayed,
    file,
    messages_of,
    new_session,
    refused,
    streamed,
    talk,
    turn_ended,
)
from tests.support.clients.tool_calls import LOOK, pending_calls, result
from tests.support.clients.uploads import found, is_used, naming, uploaded
from tests.support.servers.running import Client, connect, running_server
from tests.support.servers.tenants import connect_as, server_of_tenants

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 3000
"""Three blocks of an upload."""


async def downloaded(client: Client, session_id: str, sha256: str) -> bytes:
    """Returns the bytes of a file."""
    call = client.files.DownloadFile(session_id=session_id, sha256=sha256)
    return b"".join([part.data async for part in call])


async def files_of(client: Client, session_id: str) -> list[Any]:
    """Returns the files of all messages of a session, in order."""
    messages = await messages_of(client, session_id)
    return [part.file for message in messages for part in message.parts if part.HasField("file")]


async def stored_bytes(client: Client) -> int:
    """Returns what counts for the quota of the client's tenant."""
    quotas = (await client.usage.ListQuotas()).quotas
    return next(quota.used for quota in quotas if quota.name == "stored_bytes")


async def test_an_upload_becomes_a_file_of_the_message(client: Client) -> None:
    """With its bytes, name and media type; the model is told of it, and the upload is gone."""
    upload = await uploaded(client, PICTURE, mime="image/x-mine", filename="cat.png")
    accepted = await client.messages.SendMessage(naming(upload))
    await turn_ended(client, accepted)
    [stored] = await files_of(client, accepted.session_id)
    assert (stored.sha256, stored.size_bytes) == (hashlib.sha256(PICTURE).hexdigest(), len(PICTURE))
    assert (stored.mime, stored.filename, stored.path) == ("image/x-mine", "cat.png", "")
    assert await downloaded(client, accepted.session_id, stored.sha256) == PICTURE
    assert "cat.png" in (await displayed(client, accepted.session_id))[1].text_parts[-1]
    assert await is_used(client, upload)
    again = await refused(client.messages.SendMessage(naming(upload)))
    assert (again.code, again.reason) == (grpc.StatusCode.NOT_FOUND, "UPLOAD_NOT_FOUND")


async def test_the_part_says_more_than_the_upload(client: Client) -> None:
    """Its media type and name win; without any, the name suggests the media type; an empty file is one."""
    for said, mime, name in [
        ({"mime": "image/webp", "filename": "a/dog.py"}, "image/webp", "dog.py"),
        ({}, "text/plain", "notes.txt"),
    ]:
        upload = await uploaded(client, b"", filename="notes.txt")
        parts = [file(upload_id=upload.upload_id, **said)]
        accepted = await client.messages.SendMessage(parts=parts)
        [stored] = await files_of(client, accepted.session_id)
        assert (stored.mime, stored.filename, stored.size_bytes) == (mime, name, 0)


async def _send(client: Client, upload: Upload) -> str:
    return (await client.messages.SendMessage(naming(upload))).session_id


async def _stream(client: Client, upload: Upload) -> str:
    batches = [batch async for batch in streamed(client, naming(upload))]
    return str(batches[0].accepted.session_id)


async def _append(client: Client, upload: Upload) -> str:
    parts = [file(upload_id=upload.upload_id)]
    session_id = await new_session(client)
    await client.messages.AppendMessage(session_id=session_id, type=MESSAGE_TYPE_USER, parts=parts)
    return session_id


async def _edit(client: Client, upload: Upload) -> str:
    session_id = (await client.messages.SendMessage(ask(FOREVER))).session_id
    waiting = await client.messages.SendMessage(ask("wait", session_id))
    parts = [file(upload_id=upload.upload_id)]
    await client.turns.EditQueuedMessage(session_id=session_id, message_id=waiting.message_id, parts=parts)
    return session_id


async def _regenerate(client: Client, upload: Upload) -> str:
    first = await talk(client, "hello")
    parts = [file(upload_id=upload.upload_id)]
    await client.turns.RegenerateMessage(session_id=first.session_id, message_id=first.message_id, new_parts=parts)
    return first.session_id


WAYS = (_send, _stream, _append, _edit, _regenerate)


@pytest.mark.parametrize("way", WAYS)
async def test_every_method_with_parts_takes_uploads(client: Client, way: Callable[..., Awaitable[str]]) -> None:
    """The file is there, the upload used up; and one that is used up is refused."""
    upload = await uploaded(client, PICTURE)
    session_id = await way(client, upload)
    [stored] = await files_of(client, session_id)
    assert await downloaded(client, session_id, stored.sha256) == PICTURE
    assert await is_used(client, upload)
    assert (await refused(way(client, upload))).reason == "UPLOAD_NOT_FOUND"


@pytest.mark.slow
async def test_a_named_message_may_come_again(tmp_path: Path) -> None:
    """With the same answer, also after a restart; another message with the upload is refused, and stores nothing."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        upload = await uploaded(client, PICTURE)
        request = naming(upload, request_id="once")
        first = await client.messages.SendMessage(request)
        assert (await client.messages.SendMessage(request)).message_id == first.message_id
    async with running_server(tmp_path) as server, connect(server.address) as client:
        again = await client.messages.SendMessage(request)
        assert (again.message_id, again.disposition) == (first.message_id, DISPOSITION_DUPLICATE)
        before = len((await client.sessions.ListSessions()).sessions)
        assert (await refused(client.messages.SendMessage(naming(upload)))).reason == "UPLOAD_NOT_FOUND"
        assert len((await client.sessions.ListSessions()).sessions) == before


@pytest.mark.own_server
async def test_one_of_many_messages_gets_the_upload(client: Client) -> None:
    """However many come at once; the others leave nothing behind."""
    upload = await uploaded(client, PICTURE)
    sends = [client.messages.SendMessage(naming(upload)) for _ in range(8)]
    answers = await asyncio.gather(*sends, return_exceptions=True)
    refusals = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert {error.code() for error in refusals} == {grpc.StatusCode.NOT_FOUND}
    assert len(refusals) == 7
    assert len((await client.sessions.ListSessions()).sessions) == 1


async def test_an_upload_is_named_once_in_a_request(client: Client) -> None:
    """Twice is refused on the second place, in messages and results; the upload stays."""
    upload = await uploaded(client, b"x")
    twice = await refused(client.messages.SendMessage(naming(upload, upload)))
    assert (twice.code, twice.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["parts[2].file.upload_id"])
    accepted, [call] = await pending_calls(client, LOOK)
    files = [ToolResultFile(upload_id=upload.upload_id)] * 2
    twice = await refused(client.tools.SubmitToolResult(result(accepted, call, "two", files=files)))
    assert (twice.code, twice.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["files[1].upload_id"])
    assert not await is_used(client, upload)


async def test_an_incomplete_upload_is_refused(client: Client) -> None:
    """On its field, with what came so far; it can still be completed and used."""
    upload = await uploaded(client, b"half", last=False)
    refusal = await refused(client.messages.SendMessage(naming(upload)))
    assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["parts[1].file.upload_id"])
    assert refusal.metadata["receivedBytes"] == "4"
    assert (await found(client, upload)).received_bytes == 4


async def test_uploads_obey_the_limits_of_files(tmp_path: Path) -> None:
    """The limits of one file and of the whole message hold; a refused upload stays."""
    toml = "[files]\nmax_bytes = 100\n[limits]\nmax_message_bytes = 150\n"
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        large = await uploaded(client, bytes(101))
        refusal = await refused(client.messages.SendMessage(naming(large)))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE")
        assert refusal.fields == ["parts[1].file.upload_id"]
        assert (refusal.metadata["limit"], refusal.metadata["limitValue"]) == ("files.max_bytes", "100")
        two = [await uploaded(client, bytes(80)) for _ in range(2)]
        refusal = await refused(client.messages.SendMessage(naming(*two)))
        assert (refusal.reason, refusal.metadata["limit"]) == ("MESSAGE_TOO_LARGE", "limits.max_message_bytes")
        assert [await is_used(client, upload) for upload in (large, *two)] == [False, False, False]
        await client.messages.SendMessage(naming(two[0]))


@pytest.mark.slow
async def test_bytes_count_once(tmp_path: Path) -> None:
    """An upload that becomes a file needs no more room; equal bytes are stored once; the session gives them back."""
    size = 2 * 2**20
    quotas = f"[tenants.acme.quotas]\nmax_stored_bytes = {size + 100_000}\n"
    async with server_of_tenants(tmp_path, quotas) as server, connect_as(server.address, "acme") as client:
        upload = await uploaded(client, bytes(size))
        assert await stored_bytes(client) == size
        accepted = await client.messages.SendMessage(naming(upload))
        await turn_ended(client, accepted)
        used = await stored_bytes(client)
        assert size < used < size + 50_000
        assert (await refused(uploaded(client, bytes(size)))).reason == "QUOTA_EXCEEDED"
        small = [await uploaded(client, b"x" * 1000) for _ in range(2)]
        for one in small:
            await turn_ended(client, await client.messages.SendMessage(naming(one, session_id=accepted.session_id)))
        files = {one.sha256 for one in await files_of(client, accepted.session_id)}
        assert len(files) == 2
        await client.sessions.DeleteSession(session_id=accepted.session_id)
        assert await stored_bytes(client) == 0


async def test_a_result_takes_uploads(tmp_path: Path) -> None:
    """The same result may come again, also after a restart; another one finds the call answered."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        accepted, [call] = await pending_calls(client, LOOK)
        upload = await uploaded(client, PICTURE, filename="cat.png")
        request = result(accepted, call, "seen", files=[ToolResultFile(upload_id=upload.upload_id)])
        answer = await client.tools.SubmitToolResult(request)
        [stored] = answer.tool_call.files
        assert (stored.filename, stored.mime, stored.size_bytes) == ("cat.png", "image/png", len(PICTURE))
        assert await downloaded(client, accepted.session_id, stored.sha256) == PICTURE
        assert await is_used(client, upload)
        assert (await client.tools.SubmitToolResult(request)).tool_call.files == answer.tool_call.files
        await turn_ended(client, accepted)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        assert (await client.tools.SubmitToolResult(request)).tool_call.files == answer.tool_call.files
        other = result(accepted, call, "seen", files=[ToolResultFile(upload_id="upl_never")])
        assert (await refused(client.tools.SubmitToolResult(other))).reason == "UPLOAD_NOT_FOUND"
        changed = result(accepted, call, "else", files=[ToolResultFile(upload_id=upload.upload_id)])
        assert (await refused(client.tools.SubmitToolResult(changed))).reason == "TOOL_CALL_ALREADY_SETTLED"


async def test_a_used_upload_answers_no_other_call(client: Client) -> None:
    """The call stays open, and takes another result."""
    upload = await uploaded(client, PICTURE)
    await client.messages.SendMessage(naming(upload))
    accepted, [call] = await pending_calls(client, LOOK)
    request = result(accepted, call, "seen", files=[ToolResultFile(upload_id=upload.upload_id)])
    refusal = await refused(client.tools.SubmitToolResult(request))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "UPLOAD_NOT_FOUND")
    await client.tools.SubmitToolResult(result(accepted, call, "without"))
    await turn_ended(client, accepted)


async def test_explaining_leaves_the_upload(client: Client) -> None:
    """The explained request has its bytes, and nothing is stored."""
    upload = await uploaded(client, b"plain words", filename="notes.txt")
    session_id = await new_session(client)
    parts = [file(upload_id=upload.upload_id)]
    request = ExplainContextRequest(session_id=session_id, parts=parts)
    explained = await client.messages.ExplainContext(request)
    assert "notes.txt" in explained.request_json
    assert not await is_used(client, upload)


async def test_uploads_of_others_are_unknown(tmp_path: Path) -> None:
    """To messages and to results; the owner still has them."""
    async with (
        server_of_tenants(tmp_path) as server,
        connect_as(server.address, "acme") as owner,
        connect_as(server.address, "other") as other,
    ):
        upload = await uploaded(owner, PICTURE)
        assert (await refused(other.messages.SendMessage(naming(upload)))).reason == "UPLOAD_NOT_FOUND"
        accepted, [call] = await pending_calls(other, LOOK)
        request = result(accepted, call, "seen", files=[ToolResultFile(upload_id=upload.upload_id)])
        assert (await refused(other.tools.SubmitToolResult(request))).reason == "UPLOAD_NOT_FOUND"
        await owner.messages.SendMessage(naming(upload))
        assert (await refused(other.tools.SubmitToolResult(request))).reason == "UPLOAD_NOT_FOUND"
