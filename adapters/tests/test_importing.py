"""Files of other systems on a real server: imported with the command, again when they have grown, killed meanwhile."""

import asyncio
import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from adapters.tests.commands import finished, started, told
from adapters.tests.pynchy_file import BOT_NAME, make_old_file, many_rows, old_rows
from opencode.message.content_pb2 import (
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_TOOL_RESULT,
    MESSAGE_TYPE_USER,
)
from opencode.message.message_pb2 import ExplainContextRequest
from opencode.session.session_pb2 import ListSessionsRequest, RestoreSessionRequest
from tests.support.clients.archives import export
from tests.support.clients.conversation import messages_of, session_of, talk, text, words_of
from tests.support.servers.process import ServerProcess, server_process
from tests.support.servers.running import Client, connect

PYNCHY = ("import", "pynchy", "--bot-name", BOT_NAME)
TRACES = ("What does she", "cut in the mid", "tool_name", "not JSON at all", "tool_use_id", "total_cost_usd")

ROWS = [
    {"id": 1, "session_id": 7, "kind": "system", "content": "Be brief."},
    {"id": 2, "session_id": 7, "kind": "user", "content": "before the clear"},
    {"id": 3, "session_id": 7, "kind": "clear"},
    {"id": 4, "session_id": 7, "kind": "user", "content": "What is there?"},
    {"id": 5, "session_id": 7, "kind": "usage", "data_json": "{}"},
    {
        "id": 6,
        "session_id": 7,
        "kind": "tool_call",
        "data_json": json.dumps(
            {
                "tool_call_id": "c1",
                "name": "bash",
                "arguments": '{"command": "ls"}',
                "thinking": {"text": "I look.", "signature": "sealed-1"},
            }
        ),
    },
    {
        "id": 7,
        "session_id": 7,
        "kind": "tool_result",
        "data_json": '{"tool_call_id": "c1", "output": "a.py", "success": true}',
    },
    {"id": 8, "session_id": 7, "kind": "assistant", "content": "There is a.py."},
    {"id": 9, "session_id": 8, "kind": "user", "content": "of another one"},
]
MADE_BY = ("--provider", "anthropic", "--model", "claude-sonnet-4-5", "--api", "anthropic")


def as_lines(rows: Any) -> bytes:
    """Returns rows as a file of ikigai."""
    return b"".join(json.dumps({"created_at": "2026-01-31T22:00:00Z", **row}).encode() + b"\n" for row in rows)


async def sessions_of(client: Client) -> list[Any]:
    """Returns all sessions, by title."""
    found = (await client.sessions.ListSessions(ListSessionsRequest())).sessions
    return sorted([await session_of(client, one.id) for one in found], key=lambda session: str(session.title))


async def until_sessions(client: Client, count: int) -> None:
    """Waits until an import has stored some sessions."""
    while True:
        try:
            if len(await sessions_of(client)) >= count:
                return
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE
        await asyncio.sleep(0)


async def explained(client: Client, session_id: str) -> Any:
    """Returns what a model would be sent."""
    request = ExplainContextRequest(session_id=session_id, parts=[text("and now?")])
    return await client.messages.ExplainContext(request)


async def test_a_file_of_pynchy_is_imported_at_once(tmp_path: Path) -> None:
    """Its 404 rows are messages of sessions; lists show neither traces nor what was cleared, and no model gets what is
    the host's. The file is only read; the same command again finds everything there.
    """
    path = make_old_file(tmp_path / "messages.db")
    before = path.read_bytes()
    async with server_process(tmp_path) as server, connect(server.address) as client:
        dry = await told(*PYNCHY, "--dry-run", path, target=server.address)
        assert (dry["messages"], dry["import"]["session_count"], await sessions_of(client)) == (404, 4, [])
        done = await told(*PYNCHY, "--verify", path, target=server.address)
        assert done["verification"]["right"]
        assert done["import"]["comparison"]["incomplete_session_count"] == 0
        assert sum(session["message_count"] for session in done["import"]["sessions"]) == len(old_rows()) == 404
        sessions = await sessions_of(client)
        assert [session.title for session in sessions] == ["Ada", "Family", "gone@g.us", "tui://local"]
        assert {session.origin.system for session in sessions} == {"pynchy"}
        conversations = [await messages_of(client, session.id) for session in sessions]
        types = Counter(message.type for messages in conversations for message in messages)
        assert sum(types.values()) == 404 - done["hidden"]
        assert set(types) == {
            MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT, MESSAGE_TYPE_HOST, MESSAGE_TYPE_TOOL_RESULT,
        }  # fmt: skip
        assert not any("legacy_kind" in message.metadata_json for messages in conversations for message in messages)
        for session, messages in zip(sessions, conversations, strict=True):
            request = (await explained(client, session.id)).request_json
            sent = {words_of(message) for message in messages if message.type == MESSAGE_TYPE_USER} - {""}
            hosts = {words_of(message) for message in messages if message.type == MESSAGE_TYPE_HOST} - {"", *sent}
            assert all(json.dumps(words, ensure_ascii=False)[1:-1] in request for words in sent)
            assert not any(json.dumps(words, ensure_ascii=False) in request for words in hosts)
            assert not any(trace in request for trace in TRACES)
        whole = await export(client)
        people = await finished(*PYNCHY, path, target=server.address)
        assert people.decode().splitlines()[-1] == "0 sessions imported, 4 were there already"
        assert await export(client) == whole
    assert path.read_bytes() == before


@pytest.mark.parametrize("switch", [(), ("--reclassify",)])
async def test_no_model_is_sent_a_trace_even_where_all_is_shown(tmp_path: Path, switch: tuple[str, ...]) -> None:
    """Traces stay out when messages that were cleared are shown again; reclassified notices are sent."""
    path = make_old_file(tmp_path / "messages.db")
    async with server_process(tmp_path) as server, connect(server.address) as client:
        await finished(*PYNCHY, *switch, path, target=server.address)
        sent = ""
        for session in await sessions_of(client):
            try:
                await client.sessions.RestoreSession(RestoreSessionRequest(session_id=session.id))
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
            sent += (await explained(client, session.id)).request_json
    assert not any(trace in sent for trace in TRACES)
    assert ("Context was compacted" in sent) == bool(switch)
    assert all(words in sent for words in ("And number", "not found"))


async def test_an_imported_room_keeps_its_speakers(tmp_path: Path) -> None:
    """Names that pynchy wrote in front of texts are taken off by the import; the model gets those of people."""
    path = make_old_file(tmp_path / "messages.db")
    named = 0
    async with server_process(tmp_path) as server, connect(server.address) as client:
        await finished(*PYNCHY, path, target=server.address)
        for session in await sessions_of(client):
            found = (await explained(client, session.id)).repairs
            users = [m for m in await messages_of(client, session.id) if m.type == MESSAGE_TYPE_USER]
            names = {repair.explanation for repair in found if repair.reason == "SPEAKER_NAMED"}
            assert bool(names) == (len({message.sender for message in users if message.sender}) > 1)
            named += len(names)
    assert named > 1


async def test_a_file_of_pynchy_that_has_grown_goes_on(tmp_path: Path) -> None:
    """The same command adds what was written since, --verify asks the server, and a chat that goes on there stays."""
    path = make_old_file(tmp_path / "messages.db", many_rows(300))
    async with server_process(tmp_path) as server, connect(server.address) as client:
        done = await told(*PYNCHY, "--verify", path, target=server.address)
        assert done["import"]["incomplete_session_count"] == 0
        path.unlink()
        make_old_file(path, many_rows(450))
        outcomes = [one["outcome"] for one in (await told(*PYNCHY, path, target=server.address))["import"]["sessions"]]
        assert set(outcomes) == {"IMPORT_OUTCOME_ADDED"}
        again = await told(*PYNCHY, "--verify", path, target=server.address)
        assert {one["outcome"] for one in again["import"]["sessions"]} == {"IMPORT_OUTCOME_UNCHANGED"}
        assert sum(one["message_count"] for one in again["import"]["sessions"]) == 450
        [first, *others] = await sessions_of(client)
        await talk(client, "and on", first.id)
        path.unlink()
        make_old_file(path, many_rows(600))
        last = await told(*PYNCHY, path, target=server.address, code=1)
        by_id = {one["session_id"]: one["outcome"] for one in last["import"]["sessions"]}
        assert by_id[first.id] == "IMPORT_OUTCOME_DIFFERS"
        assert {by_id[one.id] for one in others} == {"IMPORT_OUTCOME_ADDED"}


async def test_a_server_that_lacks_a_row_is_noticed(tmp_path: Path) -> None:
    """By --verify, with the exit code."""
    path = make_old_file(tmp_path / "messages.db", many_rows(30))
    async with server_process(tmp_path) as server, connect(server.address) as client:
        await finished(*PYNCHY, path, target=server.address)
        for session in await sessions_of(client):
            await talk(client, "and on", session.id)
        path.unlink()
        make_old_file(path, many_rows(60))
        people = await finished(*PYNCHY, "--verify", path, target=server.address, code=1)
        assert people.decode().splitlines()[-1] == "the server lacks something of 3 of 3 sessions"


async def test_rows_of_ikigai_are_imported(tmp_path: Path) -> None:
    """Lists show what was not cleared; the prompt is the session's; the seal goes back to its model alone."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(as_lines(ROWS))
    command = ("import", "ikigai", path, "--skip", "usage", *MADE_BY)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        done = await told(*command, "--verify", target=server.address)
        assert [one["reason"] for one in done["problems"]] == ["ROW_LEFT_OUT"]
        first, second = await sessions_of(client)
        assert (first.title, first.settings.system, first.origin.system) == ("7", "Be brief.", "ikigai")
        found = await messages_of(client, first.id)
        assert [words_of(message) for message in found] == ["What is there?", "", "There is a.py."]
        call = found[1].parts[1].tool_use
        assert (call.name, call.status, call.output, call.call_id) == ("bash", "success", "a.py", "c1")
        assert [words_of(message) for message in await messages_of(client, second.id)] == ["of another one"]
        archive = await export(client)
        assert b"sealed-1" in archive
        again = await told(*command, target=server.address)
        assert [one["outcome"] for one in again["import"]["sessions"]] == ["IMPORT_OUTCOME_UNCHANGED"] * 2
        path.write_bytes(as_lines([*ROWS, {"id": 10, "session_id": 8, "kind": "assistant", "content": "and on"}]))
        grown = await told(*command, target=server.address)
        assert [one["outcome"] for one in grown["import"]["sessions"]] == [
            "IMPORT_OUTCOME_UNCHANGED", "IMPORT_OUTCOME_ADDED",
        ]  # fmt: skip
        path.write_bytes(as_lines([*ROWS, {"id": 11, "session_id": 9, "kind": "user", "content": 7}]))
        whole = await export(client)
        process = await started(*command, target=server.address)
        _, error = await process.communicate()
        assert process.returncode == 2
        assert b"line 10: content: must be text, not a number" in error
        assert await export(client) == whole


def moves(name: str, folder: Path) -> tuple[str | Path, ...]:
    """Makes a large file of a system and returns the command that moves its three conversations in."""
    if name == "pynchy":
        return (*PYNCHY, make_old_file(folder / "messages.db", many_rows(6_000)))
    path = folder / "rows.jsonl"
    row = {"kind": "user", "content": "A question of usual length."}
    path.write_bytes(as_lines({"id": number, "session_id": number // 2_000, **row} for number in range(6_000)))
    return ("import", "ikigai", path)


def without_ids(archive: bytes) -> list[bytes]:
    """Returns the sessions of an archive with numbers in place of the ids."""
    sessions = re.split(rb'^(?=\{"kind":"session",)', b"".join(archive.splitlines(keepends=True)[1:-1]), flags=re.M)

    def numbered(session: bytes) -> bytes:
        names = dict[bytes, bytes]()
        return re.sub(
            rb"(ses|msg|trn|prt)_[0-9a-f]{32}", lambda m: names.setdefault(m[0], b"%s_%d" % (m[1], len(names))), session
        )

    return sorted(map(numbered, sessions))


@dataclass(frozen=True)
class Move:
    """A command that moves a large file in."""

    command: tuple[str | Path, ...]
    folder: Path
    """Where the file is, and nothing else."""
    moved: list[bytes]
    """The sessions of a server that nobody has killed, where the command has run."""


@pytest.fixture(scope="module", params=["pynchy", "ikigai"])
async def move(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Move:
    """A command of each system, undisturbed once."""
    folder = tmp_path_factory.mktemp(request.param)
    command = moves(request.param, folder)
    async with server_process(tmp_path_factory.mktemp("undisturbed")) as server, connect(server.address) as client:
        await finished(*command, target=server.address)
        return Move(command, folder, without_ids(await export(client)))


async def test_an_import_whose_command_is_killed_is_finished_by_the_same_command(tmp_path: Path, move: Move) -> None:
    """All is as if nobody had been killed, and nothing is there twice. A killed command leaves no file."""
    command, files = move.command, set(move.folder.iterdir())
    async with server_process(tmp_path) as server, connect(server.address) as client:
        process = await started(*command, target=server.address)
        await until_sessions(client, 1)
        assert process.returncode is None, "not killed in the middle"
        process.kill()
        await process.communicate()
        while True:
            again = await started(*command, "--json", target=server.address)
            output, error = await again.communicate()
            if again.returncode == 0:
                break
            assert b"IMPORT_RUNNING" in error or b"FAILED_PRECONDITION" in error
        assert json.loads(output)["import"]["sessions"][0]["existed"]
        assert without_ids(await export(client)) == move.moved
        assert len(await sessions_of(client)) == 3
    assert set(move.folder.iterdir()) == files


async def test_an_import_whose_server_is_killed_goes_on(tmp_path: Path, move: Move) -> None:
    """By itself when a server is there again soon; the same command finds everything there."""
    command = move.command
    async with server_process(tmp_path) as server, connect(server.address) as client:
        process = await started(*command, "--json", target=server.address)
        await until_sessions(client, 1)
        await server.kill()
        assert process.returncode is None, "not killed in the middle"
    restarted = await ServerProcess.start(tmp_path, listen=server.address)
    try:
        output, error = await process.communicate()
        assert (process.returncode, error.decode()) == (0, "")
        assert json.loads(output)["import"]["sessions"][0]["existed"]
        done = await told(*command, target=restarted.address)
        assert [session["existed"] for session in done["import"]["sessions"]] == [True] * 3
        async with connect(restarted.address) as client:
            assert without_ids(await export(client)) == move.moved
    finally:
        await restarted.kill()


OPENCODE = """
CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT, slug TEXT, directory TEXT, title TEXT,
    version TEXT, revert TEXT, time_created INTEGER, time_updated INTEGER, time_archived INTEGER);
CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);
CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER, time_updated INTEGER,
    data TEXT);
INSERT INTO session VALUES ('ses_1', 'p', NULL, 's', '/', 'Fix it', '1.18.33', NULL, 1769900000000, 1769900009000,
    NULL);
INSERT INTO session VALUES ('ses_2', 'p', NULL, 's', '/', 'Other', '1.18.33', NULL, 1769900001000, 1769900009000, 5);
"""
MODEL = {"providerID": "anthropic", "modelID": "claude-sonnet-4-5"}
QUESTION = {"role": "user", "time": {"created": 1769900000000}, "agent": "build", "model": MODEL}
ANSWER = {
    "role": "assistant", "time": {"created": 1769900001000, "completed": 1769900002000}, "parentID": "msg_1",
    **MODEL, "mode": "build", "agent": "build", "path": {"cwd": "/", "root": "/"}, "cost": 0.25, "finish": "stop",
    "tokens": {"input": 3, "output": 4, "reasoning": 0, "cache": {"read": 0, "write": 0}},
}  # fmt: skip
CALL = {
    "type": "tool", "callID": "c1", "tool": "bash",
    "state": {
        "status": "completed", "input": {"command": "ls"}, "output": "a.py", "title": "ls", "metadata": {},
        "time": {"start": 1769900001000, "end": 1769900001500},
    },
}  # fmt: skip


def opencode_database(path: Path, *messages: tuple[str, str, Any, list[Any]]) -> Path:
    """Makes a database of OpenCode, which its program has open with a log."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"PRAGMA journal_mode=WAL;{OPENCODE}")
        for number, (message_id, session_id, data, parts) in enumerate(messages):
            at = 1769900000000 + number
            db.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", (message_id, session_id, at, at, json.dumps(data)))
            for index, part in enumerate(parts):
                row = (f"prt_{number}_{index}", message_id, session_id, at, at, json.dumps(part))
                db.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)
        db.commit()
    return path


TALK: list[tuple[str, str, Any, list[Any]]] = [
    ("msg_1", "ses_1", QUESTION, [{"type": "text", "text": "Fix it. 直す"}]),
    ("msg_2", "ses_1", ANSWER, [{"type": "reasoning", "text": "hm"}, CALL, {"type": "text", "text": "It is fixed."}]),
    ("msg_3", "ses_2", QUESTION, [{"type": "text", "text": "of another one"}]),
]


async def test_a_database_of_opencode_is_imported(tmp_path: Path) -> None:
    """As its sessions would be from their exports: the same import goes on with those, and with a grown database."""
    path = opencode_database(tmp_path / "opencode.db", *TALK)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        only = await told("import", "opencode", path, "--session", "ses_2", target=server.address)
        assert only["import"]["session_count"] == 1
        done = await told("import", "opencode", path, "--verify", target=server.address)
        assert [one["outcome"] for one in done["import"]["sessions"]] == [
            "IMPORT_OUTCOME_CREATED", "IMPORT_OUTCOME_UNCHANGED",
        ]  # fmt: skip
        assert done["import"]["comparison"]["incomplete_session_count"] == 0
        first, second = await sessions_of(client)
        assert (first.title, first.origin.system, first.HasField("archive_time")) == ("Fix it", "opencode", False)
        assert second.HasField("archive_time")
        found = await messages_of(client, first.id)
        assert [words_of(message) for message in found] == ["Fix it. 直す", "It is fixed."]
        assert found[1].parts[1].tool_use.output == "a.py"
        assert found[1].cost_pico_usd == 250_000_000_000
        more = (
            "msg_4",
            "ses_1",
            {**QUESTION, "time": {"created": 1769900003000}},
            [{"type": "text", "text": "and on"}],
        )
        path.unlink()
        opencode_database(path, *TALK, more)
        people = await finished("import", "opencode", path, target=server.address)
        assert "1 of them got 1 new messages" in people.decode()


async def test_a_wrong_row_of_opencode_refuses_the_file_or_is_left_out(tmp_path: Path) -> None:
    """As the switch says; what is no such database is refused."""
    path = opencode_database(tmp_path / "opencode.db", *TALK)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE part SET data = '{' WHERE id = 'prt_2_0'")
        db.commit()
    async with server_process(tmp_path) as server:
        process = await started("import", "opencode", path, target=server.address)
        _, error = await process.communicate()
        assert (process.returncode, b"part[prt_2_0].data: It is no JSON object." in error) == (2, True)
        done = await told("import", "opencode", path, "--skip-bad", target=server.address)
        assert [one["place"] for one in done["problems"]] == ["part[prt_2_0].data"]
        assert done["import"]["session_count"] == 2
        process = await started("import", "opencode", path, "--session", "ses_9", target=server.address)
        assert b"there is no session ses_9" in (await process.communicate())[1]
        other = make_old_file(tmp_path / "messages.db")
        process = await started("import", "opencode", other, target=server.address)
        assert b"it is no database of OpenCode" in (await process.communicate())[1]
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("DELETE FROM session")
        process = await started("import", "opencode", path, target=server.address)
        assert b"there are no sessions in it" in (await process.communicate())[1]
        assert process.returncode == 2
