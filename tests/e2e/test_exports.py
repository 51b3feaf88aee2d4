"""ExportSessions and `turnwire export`: whole sessions as an archive."""

import asyncio
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from opencode.message.content_pb2 import MESSAGE_TYPE_HOST
from opencode.message.message_pb2 import AppendMessageRequest
from opencode.transfer.transfer_pb2 import ExportSessionsRequest
from opencode.turn.turn_service_pb2 import RegenerateMessageRequest, SelectAlternativeRequest
from tests.support.clients.archives import bring, export, records_in
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    file,
    messages_of,
    new_session,
    refused,
    talk,
    text,
    watching,
)
from tests.support.oracles.fold import comparable
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect, running_server
from turnwire.cli.commands import app
from turnwire.core.use_cases.moving import exports
from turnwire.domain.archive.records import ArchivedFile, ArchivedMessage, ArchivedSession, ArchivedTurn, SessionEnd
from turnwire.domain.conversation.messages import FinishReason, Text


async def append(client: Client, session_id: str, *parts: Any) -> str:
    """Appends a message of the host, and returns its id."""
    request = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_HOST, parts=parts)
    return (await client.messages.AppendMessage(request)).message_id


def said(archive: bytes) -> list[str]:
    """Returns the texts of the messages."""
    found = [record.message for record in records_in(archive) if isinstance(record, ArchivedMessage)]
    return ["".join(part.content.text for part in m.parts if isinstance(part.content, Text)) for m in found]


def sessions_in(archive: bytes) -> list[str]:
    """Returns the ids of the sessions, in order."""
    return [record.session.session_id for record in records_in(archive) if isinstance(record, ArchivedSession)]


async def test_an_archive_holds_everything_once(client: Client) -> None:
    """Settings, turns, messages with calls and files, hidden messages with their mark; a file before its message."""
    session_id = await new_session(client, title="Plans", labels={"b": "2", "a": "1"}, metadata_json='{"x": 1}')
    await talk(client, "hello\n/tool nothing {}\n/step\nDone.", session_id)
    request = ask("look", session_id)
    request.parts.append(file(data=b"the plan", filename="plan.txt", mime="text/plain"))
    accepted = await client.messages.SendMessage(request)
    async with watching(client, session_id, after_sequence=accepted.sequence) as watch:
        await watch.until_turn_ended(accepted.turn_id)
    await client.sessions.RevertSession(session_id=session_id, before_message_id=accepted.message_id)
    records = records_in(await export(client, session_id))
    first = records[0]
    assert isinstance(first, ArchivedSession)
    assert (first.session.title, first.session.labels) == ("Plans", {"a": "1", "b": "2"})
    kinds = [type(record) for record in records]
    assert kinds.count(ArchivedTurn) == 2
    assert kinds.count(ArchivedFile) == 1
    assert records[kinds.index(ArchivedFile)] == ArchivedFile(hashlib.sha256(b"the plan").hexdigest(), b"the plan")
    messages = [record for record in records if isinstance(record, ArchivedMessage)]
    assert [record.hidden for record in messages] == [False] * (len(messages) - 2) + [True] * 2
    assert isinstance(records[-1], SessionEnd)
    assert records[-1].messages == len(messages)


async def test_equal_sessions_give_equal_bytes(client: Client) -> None:
    """A stream that was cut goes on at an offset, and knows when its beginning is another one by now."""
    session_id = await new_session(client)
    for _ in range(3):
        await append(client, session_id, text("x" * 60_000))
    whole = await export(client, session_id)
    assert whole == await export(client, session_id)
    for offset in (1, 65_536, 100_000, len(whole)):
        prefix = hashlib.sha256(whole[:offset]).hexdigest()
        request = ExportSessionsRequest(
            session_ids=[session_id], include_files=True, offset=offset, prefix_sha256=prefix
        )
        rest = [answer.data async for answer in client.transfer.ExportSessions(request)]
        assert b"".join(rest) == whole[offset:]
    await append(client, session_id, text("one more"))
    for offset, prefix in ((len(whole), hashlib.sha256(whole).hexdigest()), (2 * len(whole), "")):
        request = ExportSessionsRequest(
            session_ids=[session_id], include_files=True, offset=offset, prefix_sha256=prefix
        )
        gone = await refused(client.transfer.ExportSessions(request).read())
        assert (gone.code, gone.reason) == (grpc.StatusCode.OUT_OF_RANGE, "EXPORT_CHANGED")


@pytest.mark.own_server
async def test_all_sessions_come_in_the_order_of_their_creation(client: Client) -> None:
    """Later changes do not matter; those that are asked for come in the order of the request."""
    made = [await new_session(client, title=str(number)) for number in range(3)]
    await append(client, made[0], text("hello"))
    assert sessions_in(await export(client)) == made
    assert sessions_in(await export(client, made[2], made[0])) == [made[2], made[0]]
    await client.sessions.DeleteSession(session_id=made[1])
    assert sessions_in(await export(client)) == [made[0], made[2]]


@pytest.mark.own_server
async def test_an_empty_tenant_has_an_archive(client: Client) -> None:
    """With no session."""
    lines = [json.loads(line) for line in (await export(client)).splitlines()]
    assert lines == [
        {"kind": "archive", "format": "turnwire", "version": 4, "files": True},
        {"kind": "archive_end", "sessions": 0},
    ]


async def test_a_running_turn_ends_the_archive_before_its_first_open_message(client: Client) -> None:
    """The question is there, its turn counts as interrupted, and what waits behind it is not there."""
    session_id = await new_session(client)
    await talk(client, "before", session_id)
    running = await client.messages.SendMessage(ask(FOREVER, session_id))
    async with watching(client, session_id, after_sequence=running.sequence) as watch:
        await watch.until_kind("message_added", 2)
    await client.messages.SendMessage(ask("it waits", session_id))
    archive = await export(client, session_id)
    assert said(archive) == ["before", "before", FOREVER]
    turns = [record.turn for record in records_in(archive) if isinstance(record, ArchivedTurn)]
    assert [turn.finish_reason for turn in turns] == [FinishReason.STOP, FinishReason.INTERRUPTED]
    await client.messages.AbortSession(session_id=session_id)


async def test_files_can_stay_away(client: Client) -> None:
    """Then the header says so, and messages still name them."""
    session_id = await new_session(client)
    await append(client, session_id, text("see"))
    request = AppendMessageRequest(session_id=session_id, type=1, parts=[file(data=b"abc", filename="a.txt")])
    await client.messages.AppendMessage(request)
    archive = await export(client, session_id, include_files=False)
    assert json.loads(archive.splitlines()[0])["files"] is False
    assert not [record for record in records_in(archive) if isinstance(record, ArchivedFile)]


@pytest.mark.parametrize(
    ("fields", "code", "reason", "named"),
    [
        ({"session_ids": ["ses_none"]}, "NOT_FOUND", "SESSION_NOT_FOUND", []),
        ({"format": "papyrus"}, "INVALID_ARGUMENT", "INVALID_REQUEST", ["format"]),
        ({"session_ids": ["a", "a"]}, "INVALID_ARGUMENT", "INVALID_REQUEST", ["session_ids"]),
        ({"session_ids": [""]}, "INVALID_ARGUMENT", "INVALID_REQUEST", ["session_ids"]),
        ({"session_ids": [str(n) for n in range(1001)]}, "INVALID_ARGUMENT", "INVALID_REQUEST", ["session_ids"]),
        ({"prefix_sha256": "ABC"}, "INVALID_ARGUMENT", "INVALID_REQUEST", ["prefix_sha256"]),
    ],
)
async def test_wrong_requests_are_refused(
    client: Client, fields: dict[str, Any], code: str, reason: str, named: list[str]
) -> None:
    """Before the first byte, with the field."""
    found = await refused(client.transfer.ExportSessions(**fields).read())
    assert (found.code.name, found.reason, found.fields) == (code, reason, named)


@pytest.mark.slow
async def test_slow_readers_hold_their_places_and_nothing_else(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third export of a tenant is refused while two are read slowly, messages are stored meanwhile, and a reader that
    goes away leaves its place.
    """
    monkeypatch.setattr(exports, "MEMORY_BYTES", 1)
    session_id = await new_session(client)
    for _ in range(16):  # far more than a connection holds on its way
        await append(client, session_id, text("x" * 2_000_000))
    slow = [client.transfer.ExportSessions() for _ in range(2)]
    for call in slow:
        await call.read()
    third = await refused(client.transfer.ExportSessions().read())
    assert (third.code, third.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT")
    await append(client, session_id, text("meanwhile"))
    slow[0].cancel()
    while True:
        try:
            assert "meanwhile" in said(await export(client))
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        else:
            break
    assert len(await messages_of(client, session_id)) == 17
    slow[1].cancel()


async def test_command_writes_a_file_at_once(tmp_path: Path) -> None:
    """The whole archive or nothing, as bytes on standard output or as facts about a file."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client, title="Plans")
        expected = await export(client)

        async def run(*arguments: str) -> Any:
            command = ["export", *arguments, "--target", server.address]
            return await asyncio.to_thread(CliRunner().invoke, app, command)

        assert (await run()).stdout_bytes == expected
        target = tmp_path / "sessions.jsonl"
        done = await run(session_id, "-o", str(target), "--json")
        assert json.loads(done.stdout) == {
            "file": str(target),
            "bytes": len(expected),
            "sha256": hashlib.sha256(expected).hexdigest(),
        }
        assert target.read_bytes() == expected
        failed = await run("ses_none", "-o", str(target))
        assert (failed.exit_code, failed.stdout) == (1, "")
        assert "SESSION_NOT_FOUND" in failed.stderr or "was not found" in failed.stderr
        assert target.read_bytes() == expected
        assert [path.name for path in tmp_path.iterdir() if "sessions.jsonl" in path.name] == ["sessions.jsonl"]
        assert (await run("--json")).exit_code == 2


@pytest.mark.slow
async def test_command_replaces_files_alone(tmp_path: Path) -> None:
    """Behind a link the file that it names; a device stays and is written to, and nothing is left of what failed."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        await new_session(client, title="Plans")
        expected = await export(client)

        async def run(target: Path) -> Any:
            command = ["export", "-o", os.fspath(target), "--target", server.address]
            return await asyncio.to_thread(CliRunner().invoke, app, command)

        folder = tmp_path / "archives"
        folder.mkdir()
        link, pipe = folder / "link", folder / "pipe"
        link.symlink_to(tmp_path / "real")
        assert (await run(link)).exit_code == 0
        assert link.is_symlink()
        assert (tmp_path / "real").read_bytes() == expected
        os.mkfifo(pipe)
        read = asyncio.create_task(asyncio.to_thread(pipe.read_bytes))
        assert (await run(pipe)).exit_code == 0
        assert pipe.is_fifo()
        assert await read == expected
        assert (await run(folder)).exit_code == 1
        assert {path.name for path in folder.iterdir()} == {"link", "pipe"}


@pytest.mark.slow
async def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 too."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        await new_session(client, title="Plans")
        target = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl")
        for command in (["export", "-o", target], ["import", target]):
            done = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--target", server.address])
            assert done.exit_code == 0, done.output


@pytest.mark.slow
async def test_archives_keep_alternatives(client: Client, tmp_path: Path) -> None:
    """A server that imports one numbers and selects them as the first did; exported again, they are the same bytes."""
    session_id = (await talk(client, "one")).session_id
    question, first = await messages_of(client, session_id)
    await talk(client, "two", session_id)
    made = []
    for words in ("", "uno", ""):
        request = RegenerateMessageRequest(session_id=session_id, message_id=question.message_id)
        request.new_parts.extend([text(words)] if words else [])
        made.append(await client.turns.RegenerateMessage(request))
        async with watching(client, session_id, resume_token=made[-1].resume_token) as watch:
            await watch.until_turn_ended(made[-1].turn.turn_id)
    archive = await export(client, session_id)
    (tmp_path / "other").mkdir()
    async with running_server(tmp_path / "other") as server, connect(server.address) as other:
        await bring(other, archive)
        assert await export(other, session_id) == archive
        for message_id, numbers in (
            (first.message_id, [(2, 0), (3, 0), (0, 0), (0, 0)]),
            (made[1].user_message_id, [(2, 1), (0, 0)]),
            (question.message_id, [(2, 0), (3, 2)]),
        ):
            listed = []
            for one in (client, other):
                select = SelectAlternativeRequest(session_id=session_id, message_id=message_id)
                await one.turns.SelectAlternative(select)
                listed.append(comparable(await messages_of(one, session_id)))
                for message in listed[-1]:
                    message.ClearField("request_id")
            assert listed[0] == listed[1]
            assert [(m.alternative_count, m.alternative_index) for m in listed[1]] == numbers
