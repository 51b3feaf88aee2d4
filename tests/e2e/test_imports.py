"""ImportSessions over a real channel, and `turnwire import`."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from opencode.event.session_event_pb2 import CONVERSATION_CHANGE_IMPORTED
from opencode.transfer.transfer_pb2 import ImportSessionsRequest, ImportSessionsResponse
from tests.support.clients.archives import bring, export, upload
from tests.support.clients.conversation import (
    ask,
    displayed,
    file,
    kinds,
    messages_of,
    new_session,
    refused,
    talk,
    watching,
)
from tests.support.oracles.archives import golden_records
from tests.support.servers.moving import lines
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect
from tests.support.servers.tenants import connect_as, server_of_tenants
from turnwire.cli.commands import app


async def conversation(client: Client) -> str:
    """Makes a session with calls and a file, and returns its id."""
    session_id = await new_session(client, title="Plans", labels={"team": "red"})
    await talk(client, "hello\n/tool nothing {}\n/step\nDone.", session_id)
    request = ask("look", session_id)
    request.parts.append(file(data=b"the plan", filename="plan.txt", mime="text/plain"))
    await client.messages.SendMessage(request)
    async with watching(client, session_id, after_sequence=0) as watch:
        await watch.until_kind("turn_ended", 2)
    return session_id


async def test_a_session_moves_to_another_tenant(tmp_path: Path) -> None:
    """It reads the same there, and goes on; watchers of all sessions see it come."""
    async with (
        server_of_tenants(tmp_path) as server,
        connect_as(server.address, "alice") as alice,
        connect_as(server.address, "bob") as bob,
    ):
        session_id = await conversation(alice)
        archive = await export(alice, session_id)
        async with watching(bob) as watch:
            await watch.until_kind("caught_up")
            [moved] = [one for answer in await bring(bob, archive) for one in answer.sessions]
            changed = await watch.until_kind("conversation_changed")
            assert changed.conversation_changed.change == CONVERSATION_CHANGE_IMPORTED
            assert kinds([e for e in watch.events if e.session_id == moved.session_id])[0] == "session_created"
        assert (moved.source_id, moved.existed) == (session_id, False)
        assert moved.session_id != session_id
        theirs, mine = await messages_of(bob, moved.session_id), await messages_of(alice, session_id)
        assert [[part.text for part in m.parts] for m in theirs] == [[part.text for part in m.parts] for m in mine]
        assert len(await displayed(bob, moved.session_id)) == len(await displayed(alice, session_id)) > 3
        found = await bob.search.SearchMessages(query="hello")
        assert [hit.session_id for hit in found.hits] == [moved.session_id] * len(found.hits) != []
        accepted = await talk(bob, "and on", moved.session_id)
        assert accepted.session_id == moved.session_id
        assert await export(alice, session_id) == archive
        again = await refused(alice.transfer.ImportSessions(upload_id="upl_1").read())
        assert (again.code, again.reason) == (grpc.StatusCode.NOT_FOUND, "UPLOAD_NOT_FOUND")


@pytest.mark.slow
async def test_a_caller_who_goes_away_is_not_missed(client: Client) -> None:
    """The import goes on; the same name joins it or gets its outcome."""
    archive = lines([one for number in range(30) for one in golden_records(str(number))])
    request = ImportSessionsRequest(upload_id=await upload(client, archive), request_id="mine")
    first = client.transfer.ImportSessions(request)
    await first.read()
    first.cancel()
    answers = [answer async for answer in client.transfer.ImportSessions(request)]
    assert answers[-1].session_count == 30
    assert answers[-1].done_bytes == answers[-1].total_bytes == len(archive)
    assert len([one for answer in answers for one in answer.sessions]) == 30
    other = ImportSessionsRequest(upload_id=request.upload_id, request_id="mine", dry_run=True)
    assert (await refused(client.transfer.ImportSessions(other).read())).reason == "REQUEST_ID_REUSED"


@pytest.mark.slow
async def test_one_import_of_a_tenant_runs_at_a_time(client: Client) -> None:
    """Another one is refused until its end."""
    archive = lines([one for number in range(40) for one in golden_records(str(number))])
    ids = [await upload(client, archive) for _ in range(2)]
    first = client.transfer.ImportSessions(upload_id=ids[0])
    await first.read()
    second = await refused(client.transfer.ImportSessions(upload_id=ids[1]).read())
    assert (second.code, second.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "IMPORT_RUNNING")
    while await first.read() is not grpc.aio.EOF:
        pass
    answers = [a async for a in client.transfer.ImportSessions(upload_id=ids[1])]
    assert all(one.existed for answer in answers for one in answer.sessions)


def chat(count: int) -> bytes:
    """Returns an archive of OpenAI's form with a number of messages."""
    roles = ("user", "assistant")
    said = [{"role": roles[number % 2], "content": f"sounding {number}"} for number in range(count)]
    return json.dumps({"id": "boat", "messages": said}).encode()


def of(answers: list[ImportSessionsResponse]) -> tuple[int, int, int, int]:
    """Returns what became of the only session of an import, and how many are incomplete."""
    [one] = [session for answer in answers for session in answer.sessions]
    counts = one.added_message_count, one.missing_message_count, answers[-1].incomplete_session_count
    return (one.outcome, *counts)


@pytest.mark.slow
async def test_command_says_what_became_of_each_session(tmp_path: Path) -> None:
    """Added, unchanged or differing; --verify compares alone, and exits with 1 where the server lacks something."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        archive = tmp_path / "chat.json"

        async def run(count: int, *arguments: str) -> Any:
            archive.write_bytes(chat(count))
            command = ["import", str(archive), "--format", "openai", *arguments, "--target", server.address]
            done = await asyncio.to_thread(CliRunner().invoke, app, command)
            return done.exit_code, done.stdout.splitlines()

        missing = "the session is not here"
        assert await run(3, "--verify") == (
            1,
            [f"MISSING boat: {missing}", "the server lacks something of 1 of 1 session"],
        )
        assert await run(3) == (0, ["1 session imported, 0 were there already"])
        assert await run(3, "--verify") == (0, ["verified: the server has all messages of 1 session"])
        code, [problem, lacks] = await run(5, "--verify")
        assert (code, lacks) == (1, "the server lacks something of 1 of 1 session")
        assert problem.endswith(": 2 messages from here on are not here")
        there = "0 sessions imported, 1 was there already"
        would = "0 sessions would be imported, 1 was there already"
        assert await run(5, "--dry-run") == (0, [would, "1 of them would get 2 new messages"])
        assert await run(5) == (0, [there, "1 of them got 2 new messages"])
        assert await run(5) == (0, [there])
        [session] = (await client.sessions.ListSessions()).sessions
        await talk(client, "and on", session.id)
        differs = "1 of them differs, continued or changed since the import: nothing was stored for it"
        assert await run(5) == (0, [there, differs])
        assert await run(5, "--verify") == (0, ["verified: the server has all messages of 1 session"])
        code, [problem, *lines] = await run(6)
        assert (code, lines) == (1, [there, differs])
        assert problem.startswith("DIFFERS ")
        code, [shown] = await run(6, "--json")
        assert (code, json.loads(shown)["incomplete_session_count"]) == (1, 1)


@pytest.mark.slow
async def test_command_imports_what_the_other_one_wrote(tmp_path: Path) -> None:
    """From a file or standard input; a dry run stores nothing; facts for people and programs."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = await conversation(client)
        archive = tmp_path / "sessions.jsonl"
        archive.write_bytes(await export(client))

        async def run(*arguments: str, typed: bytes = b"") -> Any:
            command = ["import", *arguments, "--target", server.address]
            return await asyncio.to_thread(CliRunner().invoke, app, command, input=typed)

        assert "0 sessions imported, 1 was there already" in (await run(str(archive))).stdout
        await client.sessions.DeleteSession(session_id=session_id)
        dry = await run(str(archive), "--dry-run", "--json")
        assert json.loads(dry.stdout)["sessions"][0]["session_id"] == ""
        done = await run("-", "--json", typed=archive.read_bytes())
        assert done.exit_code == 0, done.output
        [session] = json.loads(done.stdout)["sessions"]
        assert (session["session_id"], session["existed"]) == (session_id, False)
        assert hashlib.sha256(await export(client)).digest() == hashlib.sha256(archive.read_bytes()).digest()
        (tmp_path / "wrong").write_bytes(b"{}\n")
        wrong = await run(str(tmp_path / "wrong"))
        assert (wrong.exit_code, wrong.stdout) == (1, "")
        assert f"INVALID_ARGUMENT: {tmp_path / 'wrong'}: line 1" in wrong.stderr
        assert "upload_id" not in wrong.stderr
        assert "(--format names another format" in wrong.stderr
        assert "(--format" not in (await run(str(tmp_path / "wrong"), "--format", "chatgpt")).stderr
        assert (await run(str(tmp_path / "nothing"))).exit_code == 2
        assert (await run(str(archive), "--option", "x")).exit_code == 2
