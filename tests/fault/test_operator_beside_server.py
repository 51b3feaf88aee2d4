"""An operator's commands beside a running server lose nothing that it has acknowledged."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.clients.conversation import messages_of, new_session, talk, words_of
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

pytestmark = pytest.mark.slow

ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}


async def command(*arguments: str) -> dict[str, object]:
    """Runs a command in a process of its own, as an operator does; returns its JSON. It has to succeed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnwire", *arguments, "--json"),
        env=ENVIRON,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, error = await process.communicate()
    assert (process.returncode, error.decode()) == (0, ""), output.decode()
    found: dict[str, object] = json.loads(output)
    return found


async def _say(client: Client, session_id: str, said: list[str], until: asyncio.Event) -> None:
    """Sends messages until told to stop; `said` has those that were acknowledged and answered."""
    while not until.is_set():
        words = f"message {len(said)}"
        await talk(client, words, session_id)
        said.append(words)


async def test_doctor_and_backup_lose_nothing(tmp_path: Path) -> None:
    """Both run several times while messages come; then the server is killed, and every message is there."""
    path = tmp_path / "turnwire.db"
    said: list[str] = []
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client)
        await talk(client, "first", session_id)
        log, done = path.with_name("turnwire.db-wal"), asyncio.Event()
        before = log.stat().st_ino
        talking = asyncio.create_task(_say(client, session_id, said, done))
        for number in range(3):
            reports = await asyncio.gather(
                command("doctor", str(path)), command("backup", str(path), str(tmp_path / f"backup-{number}.db"))
            )
            assert reports[0]["clean"] is True
        done.set()
        await talking
        assert log.stat().st_ino == before, "the log that the server writes was deleted"
        await server.kill()
    assert len(said) > 5
    assert (await command("doctor", str(path)))["clean"] is True
    await command("backup", str(path), str(tmp_path / "backup-killed.db"))
    for copy in tmp_path.glob("backup-*.db"):
        assert (await command("doctor", str(copy)))["clean"] is True
    async with server_process(tmp_path) as again, connect(again.address) as client:
        assert {"first", *said} <= {words_of(message) for message in await messages_of(client, session_id)}
