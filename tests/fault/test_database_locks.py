"""Nothing that others do with the database's files loses a message that was acknowledged."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import DISPOSITION_STARTED
from opencode.tool.tool_pb2 import SubmitToolResultRequest, ToolResultFile
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    file,
    messages_of,
    new_session,
    refused,
    refused_unless_gone,
    talk,
    text,
    tool,
    watching,
    words_of,
)
from tests.support.servers.process import ServerProcess, server_process
from tests.support.servers.running import Client, connect

pytestmark = pytest.mark.slow

OPEN_AND_CLOSE = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute(sys.argv[2]); db.close()"
"""A program of somebody else: uses the database once and closes it."""


def outsider(path: Path, statement: str = "SELECT count(*) FROM messages") -> None:
    """Lets another process use the database once."""
    subprocess.run([sys.executable, "-c", OPEN_AND_CLOSE, str(path), statement], check=True, timeout=200)


def own_names(folder: Path) -> list[str]:
    """Returns names that lead to files of the database, made where they are not there."""
    (folder / "notes.txt").hardlink_to(folder / "turnwire.db")
    (folder / "log.txt").hardlink_to(folder / "turnwire.db-wal")
    (folder / "index.txt").symlink_to("turnwire.db-shm")
    (folder / "sub").symlink_to(".")
    beside = [f"turnwire.db{suffix}" for suffix in ("", "-wal", "-shm", ".lock")]
    return [*beside, str(folder / "turnwire.db"), "sub/turnwire.db", "notes.txt", "log.txt", "index.txt"]


async def check_wal_survives(server: ServerProcess, client: Client, folder: Path, session_id: str) -> None:
    """Lets outsiders open and close the database, sends 20 messages, kills, and finds all of them again."""
    wal = folder / "turnwire.db-wal"
    before = wal.stat().st_ino
    outsider(folder / "turnwire.db")
    outsider(folder / "turnwire.db", f"VACUUM INTO '{folder / 'backup.db'}'")
    said = [f"message {number}" for number in range(20)]
    for words in said:
        await talk(client, words, session_id)
    assert wal.stat().st_ino == before, "the log that the server writes was deleted"
    await server.kill()
    async with server_process(folder) as again, connect(again.address) as client_again:
        assert set(said) <= {words_of(m) for m in await messages_of(client_again, session_id)}
    with sqlite3.connect(folder / "backup.db") as backup:
        assert backup.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_database_is_no_attachment(tmp_path: Path) -> None:
    """By any name it is refused and nothing is stored; the database stays locked against its deletion."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client, directory=str(tmp_path))
        await talk(client, "hello", session_id)
        before = await messages_of(client, session_id)
        for name in own_names(tmp_path):
            named = {"session_id": session_id, "parts": [text("look"), file(path=name)]}
            for call in (
                client.messages.SendMessage(**named),
                client.messages.AppendMessage(type=MESSAGE_TYPE_USER, **named),
                client.messages.ExplainContext(**named),
            ):
                refusal = await refused(call)
                assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["parts[1].file.path"])
                assert "of the server itself" in refusal.message
        assert await messages_of(client, session_id) == before
        await check_wal_survives(server, client, tmp_path, session_id)


async def test_database_is_no_result_of_a_tool(tmp_path: Path) -> None:
    """SubmitToolResult refuses it in the same way, and the call still waits."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client, directory=str(tmp_path))
        async with watching(client, session_id) as watch:
            await client.messages.SendMessage(ask("/tool look {}", session_id, tools=[tool("look")]))
            call_id = (await watch.until_kind("tool_call_updated")).tool_call_updated.state.id
            for name in own_names(tmp_path):
                request = SubmitToolResultRequest(
                    session_id=session_id, tool_call_id=call_id, output="", files=[ToolResultFile(path=name)]
                )
                refusal = await refused(client.tools.SubmitToolResult(request))
                assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["files[0].path"])
            request = SubmitToolResultRequest(session_id=session_id, tool_call_id=call_id, output="done")
            await client.tools.SubmitToolResult(request)
            await watch.until_kind("turn_ended")
        await check_wal_survives(server, client, tmp_path, session_id)


def _delete(path: Path) -> None:
    path.unlink()


def _replace(path: Path) -> None:
    path.with_name("copy").write_bytes(path.read_bytes())
    path.with_name("copy").rename(path)


@pytest.mark.parametrize("do", [_delete, _replace])
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
async def test_lost_file_stops_the_server(tmp_path: Path, suffix: str, do: Callable[[Path], None]) -> None:
    """The next message is refused with DATA_LOSS, one line of the log names the file, and the exit code is 1."""
    lost = tmp_path / f"turnwire.db{suffix}"
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = (await talk(client, "hello")).session_id
        do(lost)
        if refusal := await refused_unless_gone(client.messages.SendMessage(ask("too late", session_id))):
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.DATA_LOSS, "STORAGE_CORRUPT")
            assert refusal.metadata["path"] == str(lost)
        assert await server.ended() == 1
        lines = [line for line in server.stderr if "database_lost" in line]
        assert len(lines) == 1
        assert str(lost) in lines[0]


async def test_deleted_log_is_saved_by_the_stop(tmp_path: Path) -> None:
    """All that was acknowledged before is in the database when the server has stopped."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = (await talk(client, "hello")).session_id
        for number in range(5):
            await talk(client, f"message {number}", session_id)
        before = await messages_of(client, session_id)
        (tmp_path / "turnwire.db-wal").unlink()
        await refused_unless_gone(client.messages.SendMessage(ask("too late", session_id)))
        assert await server.ended() == 1
    async with server_process(tmp_path) as server, connect(server.address) as client:
        assert await messages_of(client, session_id) == before
        await talk(client, "hello again", session_id)


async def test_running_turn_does_not_hold_the_stop(tmp_path: Path) -> None:
    """An answer that can be stored no more ends with the server, within the time of an orderly stop."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client)
        busy = await client.messages.SendMessage(ask(f"/words 20\n{FOREVER}", session_id))
        assert busy.disposition == DISPOSITION_STARTED
        (tmp_path / "turnwire.db-wal").unlink()
        await refused_unless_gone(client.messages.SendMessage(ask("too late")))
        assert await server.ended() == 1


async def test_outsiders_do_not_stop_the_server(tmp_path: Path) -> None:
    """Reading, both ways of backup, writing, a checkpoint and a new index leave it serving; it stops in order."""
    path = tmp_path / "turnwire.db"
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = (await talk(client, "hello")).session_id
        for statement in (
            "SELECT count(*) FROM messages",
            f"VACUUM INTO '{tmp_path / 'compact.db'}'",
            "PRAGMA wal_checkpoint(TRUNCATE)",
            "CREATE INDEX IF NOT EXISTS theirs ON messages (turn_id)",
            "VACUUM",
        ):
            outsider(path, statement)
            await talk(client, "still there?", session_id)
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as reader, sqlite3.connect(tmp_path / "b.db") as copy:
            reader.backup(copy)
        await talk(client, "still there?", session_id)
        assert len((await client.messages.GetMessages(session_id=session_id)).messages) == 14
        assert await server.terminate() == 0
        assert not [line for line in server.stderr if "database_lost" in line]
