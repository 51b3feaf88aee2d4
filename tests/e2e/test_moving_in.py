"""Conversations of other systems on a real server, brought there by the commands of docs/guides/migrating.md."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.clients.archives import export
from tests.support.clients.conversation import messages_of, session_of, words_of
from tests.support.fakes.foreign_archives import CHATGPT, CLAUDE, OPENAI, OPENCODE, as_json, as_lines, zipped
from tests.support.oracles.archives import golden_records
from tests.support.servers.moving import lines
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

pytestmark = pytest.mark.slow

ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}


async def started(*arguments: str | Path, target: str) -> asyncio.subprocess.Process:
    """Starts a command in a process of its own."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnwire", *map(str, arguments), "--target", target),
        env=ENVIRON,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run(*arguments: str | Path, target: str, code: int = 0) -> bytes:
    """Runs a command, which has to end with an exit code, and returns what it prints."""
    process = await started(*arguments, target=target)
    output, error = await process.communicate()
    assert (process.returncode, error.decode()) == (code, "")
    return output


async def told(*arguments: str | Path, target: str, code: int = 0) -> Any:
    """Runs a command and returns its JSON."""
    return json.loads(await run(*arguments, "--json", target=target, code=code))


async def sessions_of(client: Client) -> list[Any]:
    """Returns all sessions, by title."""
    found = (await client.sessions.ListSessions()).sessions
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


def moves(folder: Path) -> tuple[str | Path, ...]:
    """Makes a large file of another system and returns the command that moves its three conversations in."""
    path = folder / "chats.jsonl"
    messages = [{"role": "user", "content": f"A question of usual length, number {number}."} for number in range(2_000)]
    path.write_bytes(
        as_lines(*({"id": f"{number}", "created": 1_769_900_000, "messages": messages} for number in range(3)))
    )
    return ("import", path, "--format", "openai")


def without_ids(archive: bytes) -> list[bytes]:
    """Returns the sessions of an archive with numbers in place of the ids, which each server makes with its secret."""
    sessions = re.split(rb'^(?=\{"kind":"session",)', b"".join(archive.splitlines(keepends=True)[1:-1]), flags=re.M)

    def numbered(session: bytes) -> bytes:
        names = dict[bytes, bytes]()
        return re.sub(
            rb"(ses|msg|trn|prt)_[0-9a-f]{32}", lambda m: names.setdefault(m[0], b"%s_%d" % (m[1], len(names))), session
        )

    return sorted(map(numbered, sessions))


async def undisturbed(folder: Path, *command: str | Path) -> list[bytes]:
    """Returns the sessions of a server that nobody has killed, where a command has run."""
    folder.mkdir()
    async with server_process(folder) as server, connect(server.address) as client:
        await run(*command, target=server.address)
        return without_ids(await export(client))


async def test_an_import_whose_client_is_killed_is_finished_by_the_same_command(tmp_path: Path) -> None:
    """All is as if nobody had been killed, and nothing is there twice. A killed client leaves no file."""
    command = moves(tmp_path)
    expected = await undisturbed(tmp_path / "other", *command)
    files = set(tmp_path.iterdir())
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
            assert b"FAILED_PRECONDITION" in error  # the server still finishes what it has begun
        assert json.loads(output)["sessions"][0]["existed"]
        assert without_ids(await export(client)) == expected
        assert len(await sessions_of(client)) == 3
    assert {file for file in tmp_path.iterdir() if not file.name.startswith("turnwire")} == files


FORMATS = {
    "chatgpt": (
        zipped(conversations_dot_json=as_json([CHATGPT])),
        {"Charts": ["Draw this. 絵", "Here it is."]},
        "FILE_NOT_IN_ARCHIVE",
    ),
    "claude": (zipped(conversations_dot_json=as_json([CLAUDE])), {"Poems": ["Read this. 詩", "Thanks."]}, "FILE"),
    "openai": (as_lines(OPENAI), {"Weather": ["What is that? 天気", "The sun."]}, ""),
    "opencode": (as_json(OPENCODE), {"Fix it": ["Fix it. 直す", "It is fixed."]}, ""),
}
"""Of each format: an archive, what lists show of its sessions by title, and a problem that is told."""


@pytest.mark.parametrize("name", FORMATS)
async def test_an_export_of_another_system_is_imported(tmp_path: Path, name: str) -> None:
    """Lists show its conversations; the same command again finds them there; what has no place is told."""
    archive, expected, problem = FORMATS[name]
    path = tmp_path / "export"
    path.write_bytes(archive)
    command = ["import", path, "--format", name]
    async with server_process(tmp_path) as server, connect(server.address) as client:
        done = await told(*command, target=server.address)
        assert [session["existed"] for session in done["sessions"]] == [False] * len(expected)
        assert any(one["reason"].startswith(problem) for one in done["problems"]) or not problem
        sessions = await sessions_of(client)
        assert [session.title for session in sessions] == list(expected)
        assert {session.origin.system for session in sessions} == {name}
        for session in sessions:
            words = "\n".join(map(words_of, await messages_of(client, session.id)))
            assert all(one in words for one in expected[session.title])
        whole = await export(client)
        again = await told(*command, target=server.address)
        assert [session["existed"] for session in again["sessions"]] == [True] * len(expected)
        assert [session["session_id"] for session in again["sessions"]] == [
            session["session_id"] for session in done["sessions"]
        ]
        assert await export(client) == whole
        if name in ("openai", "opencode"):
            written = (await run("export", "--format", name, target=server.address)).decode()
            assert all(json.dumps(one, ensure_ascii=False)[1:-1] in written for one in expected[sessions[0].title])


async def test_a_database_with_every_kind_of_content_is_exported_imported_and_exported(tmp_path: Path) -> None:
    """With the commands; the second archive is the first one, byte for byte."""
    first, second, third = (tmp_path / f"{name}.jsonl" for name in ("first", "second", "third"))
    first.write_bytes(lines([*golden_records(), *golden_records("other")]))
    foreign = tmp_path / "foreign"
    archives = list[bytes]()
    for number, written in enumerate((second, third)):
        folder = tmp_path / f"server{number}"
        folder.mkdir()
        async with server_process(folder) as server, connect(server.address) as client:
            if written is second:
                await run("import", first, target=server.address)
                for name, (archive, _, _) in FORMATS.items():
                    foreign.write_bytes(archive)
                    await run("import", foreign, "--format", name, target=server.address)
            else:
                await run("import", second, target=server.address)
            await run("export", "-o", written, target=server.address)
            archives.append(await export(client))
    assert archives[0] == archives[1] == second.read_bytes() == third.read_bytes()
    contents = {part["content"]["type"] for line in archives[0].splitlines() for part in _parts(json.loads(line))}
    assert contents == {"text", "reasoning", "refusal", "file", "tool_use", "tool_result", "provider"}


def _parts(record: Any) -> Any:
    return record["message"].get("parts", ()) if record["kind"] == "message" else ()
