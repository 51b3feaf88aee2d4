"""Files that somebody has damaged, emptied, moved or linked: what is noticed, and what can still be saved."""

import asyncio
import os
import random
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from tests.support.clients.conversation import ask, messages_of, refused_unless_gone, talk, words_of
from tests.support.oracles.sound import problems
from tests.support.servers.process import ServerProcess, server_process
from tests.support.servers.running import Client, connect
from turnwire.domain.errors import StorageError

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("TURNWIRE_FAULT_ROUNDS", "12"))
"""How many files are damaged at random places."""


async def killed_server(folder: Path) -> str:
    """Runs a server, lets it store something, kills it, and returns the session. What was stored is in the log."""
    async with server_process(folder) as server, connect(server.address) as client:
        session_id = (await talk(client, "hello")).session_id
        await talk(client, "world", session_id)
        await server.kill()
    return session_id


async def said(client: Client, session_id: str) -> list[str]:
    """Returns the texts of a session."""
    return [words_of(message) for message in await messages_of(client, session_id)]


async def refused_start(folder: Path, name: str = "turnwire") -> str:
    """Returns the one line with which a start fails."""
    with pytest.raises(RuntimeError) as caught:
        await ServerProcess.start(folder, name=name)
    assert "Traceback" not in str(caught.value)
    [line] = str(caught.value).splitlines()
    assert line.startswith("turnwire: cannot start: ")
    return line


def remove(path: Path) -> None:
    """Somebody moves the database away."""
    path.rename(path.with_name("moved"))


def empty(path: Path) -> None:
    """Somebody copies an empty file over the database."""
    shutil.copy(path, path.with_name("moved"))
    path.write_bytes(b"")


@pytest.mark.parametrize("do", [remove, empty])
async def test_log_without_its_database_is_not_thrown_away(tmp_path: Path, do: Callable[[Path], None]) -> None:
    """A new database would cost what the log holds: the start is refused, and works with the database in its place."""
    session_id = await killed_server(tmp_path)
    path = tmp_path / "turnwire.db"
    do(path)
    before = (tmp_path / "turnwire.db-wal").read_bytes()
    for _ in range(2):
        assert "its log" in await refused_start(tmp_path)
    assert (tmp_path / "turnwire.db-wal").read_bytes() == before
    (tmp_path / "moved").replace(path)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        assert await said(client, session_id) == ["hello", "hello", "world", "world"]


async def test_moved_database_is_not_made_anew_by_the_next_start(tmp_path: Path) -> None:
    """The server stops when it sees that; what it had acknowledged is there once the file is back."""
    path = tmp_path / "turnwire.db"
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = (await talk(client, "hello")).session_id
        path.rename(tmp_path / "moved")
        assert await server.ended() == 1
    assert "its log" in await refused_start(tmp_path)
    (tmp_path / "moved").rename(path)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        assert await said(client, session_id) == ["hello", "hello"]


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
async def test_lost_file_stops_a_server_that_only_reads(tmp_path: Path, suffix: str) -> None:
    """Nobody sends anything: it looks by itself, says so once, and ends."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        await talk(client, "hello")
        (tmp_path / f"turnwire.db{suffix}").unlink()
        with pytest.raises(grpc.aio.AioRpcError):
            while True:
                await client.sessions.ListSessions()
                await asyncio.sleep(0.01)
        assert await server.ended() == 1
        assert len([line for line in server.stderr if "database_lost" in line]) == 1


@pytest.mark.parametrize("suffix", ["", "-wal"])
async def test_file_that_was_cut_short_stops_the_server(tmp_path: Path, suffix: str) -> None:
    """Writes behind its end would be acknowledged and lost: DATA_LOSS, and the exit code is 1."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = (await talk(client, "hello")).session_id
        os.truncate(tmp_path / f"turnwire.db{suffix}", 0)
        if refusal := await refused_unless_gone(client.messages.SendMessage(ask("too late", session_id))):
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.DATA_LOSS, "STORAGE_CORRUPT")
            assert "cut short" in refusal.message
        assert await server.ended() == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a lock on the database that SQLite's do not meet")
@pytest.mark.parametrize("is_lock_deleted", [False, True])
async def test_second_server_is_refused_by_any_name(tmp_path: Path, is_lock_deleted: bool) -> None:
    """By a hard link, and by the same name after the lock file was deleted; the first server goes on."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id = (await talk(client, "hello")).session_id
        if is_lock_deleted:
            (tmp_path / "turnwire.db.lock").unlink()
        else:
            (tmp_path / "other.db").hardlink_to(tmp_path / "turnwire.db")
        assert "in use by another server" in await refused_start(tmp_path, "turnwire" if is_lock_deleted else "other")
        await talk(client, "still there?", session_id)
        assert await server.terminate() == 0


async def test_other_name_of_the_database_is_told(tmp_path: Path) -> None:
    """SQLite keeps the log under the name that it was opened by, so a start by the other one is refused at first."""
    session_id = await killed_server(tmp_path)
    (tmp_path / "other.db").hardlink_to(tmp_path / "turnwire.db")
    assert "is the same file as" in await refused_start(tmp_path, "other")
    async with server_process(tmp_path) as server, connect(server.address) as client:
        assert await said(client, session_id) == ["hello", "hello", "world", "world"]
        assert await server.terminate() == 0
        assert [line for line in server.stderr if "database_has_other_names" in line]
    server = await ServerProcess.start(tmp_path, name="other")
    async with connect(server.address) as client:
        assert await said(client, session_id) == ["hello", "hello", "world", "world"]
    await server.kill()


@pytest.mark.parametrize("suffix", ["", ".lock"])
async def test_folder_in_place_of_a_file_is_refused(tmp_path: Path, suffix: str) -> None:
    """One line says so."""
    (tmp_path / f"turnwire.db{suffix}").mkdir()
    assert str(tmp_path / "turnwire.db") in await refused_start(tmp_path)


async def test_log_that_is_damaged_in_its_middle_is_not_cut_there(tmp_path: Path) -> None:
    """SQLite would go on without what was acknowledged behind: the start is refused until somebody decides."""
    session_id = await killed_server(tmp_path)
    log = tmp_path / "turnwire.db-wal"
    original = log.read_bytes()
    for place in (20, len(original) // 2):  # the header, and a page
        log.write_bytes(original[:place] + bytes([original[place] ^ 1]) + original[place + 1 :])
        assert "is damaged behind" in await refused_start(tmp_path)
        (tmp_path / "turnwire.db-shm").unlink(missing_ok=True)
    log.write_bytes(original)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        assert await said(client, session_id) == ["hello", "hello", "world", "world"]


def flip(path: Path, chance: random.Random, count: int) -> None:
    """Changes bytes of a file at random places."""
    content = bytearray(path.read_bytes())
    for _ in range(count):
        content[chance.randrange(len(content))] ^= chance.randrange(1, 256)
    path.write_bytes(content)


async def outcome(folder: Path, said_before: list[str], *, has_checksums: bool) -> str:
    """Starts a server on files that were damaged, uses it, and returns how that ended.

    A server that starts has every message that was acknowledged, or the doctor tells of the damage. Pages of the
    database have no checksums, so letters within a text may differ. The end of a log alone looks torn by a power cut.
    """
    try:
        server = await ServerProcess.start(folder)
    except RuntimeError as error:
        assert "Traceback" not in str(error), error
        assert "cannot start: " in str(error)
        return "refused"
    ended = "served"
    async with connect(server.address) as client:
        try:
            await client.sessions.ListSessions()
            for session_id, *words in [said_before]:
                found = await said(client, session_id)
                is_same = words[:-2] == found[: len(words) - 2] if has_checksums else len(found) >= len(words) - 2
                assert is_same or problems(folder / "turnwire.db")
            await talk(client, "hello")
        except grpc.aio.AioRpcError as error:
            assert error.code() in (grpc.StatusCode.DATA_LOSS, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)
            ended = error.code().name
    await server.terminate()
    return ended


@pytest.mark.timeout(300 + 20 * ROUNDS)
@pytest.mark.parametrize("suffix", ["", "-wal"])
async def test_flipped_bytes_are_told_or_harmless(tmp_path: Path, chance: random.Random, suffix: str) -> None:
    """No start hangs or shows a traceback; a log with a wrong checksum in its middle refuses the start."""
    original = tmp_path / "original"
    original.mkdir()
    async with server_process(original) as server, connect(server.address) as client:
        session_id = (await talk(client, "/words 3000")).session_id
        for number in range(20):
            await talk(client, f"message {number}", session_id)
        before = [session_id, *await said(client, session_id)]
        if suffix:
            await server.kill()
        else:
            assert await server.terminate() == 0
    found = []
    for number in range(ROUNDS):
        folder = tmp_path / f"damaged-{number}"
        folder.mkdir()
        for path in original.glob("turnwire.db*"):
            if not path.name.endswith((".lock", "-shm")):
                shutil.copy(path, folder)
        flip(folder / f"turnwire.db{suffix}", chance, chance.choice((1, 10, 1000)))
        found.append(await outcome(folder, before, has_checksums=bool(suffix)))
        try:
            found[-1] += f", {problems(folder / 'turnwire.db')[:1]}"
        except StorageError as error:
            found[-1] += f", {error.reason}"
    print("\n".join(found))


@pytest.mark.timeout(300 + 20 * ROUNDS)
async def test_bytes_flipped_while_the_server_runs(tmp_path: Path, chance: random.Random) -> None:
    """Calls that meet them are refused as damaged; the server answers until it is stopped, and the doctor tells."""
    for number in range(ROUNDS // 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with server_process(folder) as server, connect(server.address) as client:
            session_id = (await talk(client, "/words 3000")).session_id
            with closing(sqlite3.connect(folder / "turnwire.db")) as db:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            with (folder / "turnwire.db").open("r+b") as file:
                for _ in range(200):
                    file.seek(chance.randrange(8192, os.fstat(file.fileno()).st_size))
                    file.write(chance.randbytes(50))
            for call in (
                lambda c=client, s=session_id: messages_of(c, s),
                lambda c=client, s=session_id: c.messages.SendMessage(ask("more", s)),
                lambda c=client: c.sessions.ListSessions(),
            ):
                try:
                    await call()
                except grpc.aio.AioRpcError as error:
                    assert error.code() in (grpc.StatusCode.DATA_LOSS, grpc.StatusCode.INTERNAL)
            await server.terminate()
            assert not [line for line in server.stderr if "Traceback" in line]
