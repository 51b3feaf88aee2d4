"""SIGKILL in place of a call that writes, syncs, cuts or removes a file: any step of any commit, drawn by chance."""

import asyncio
import contextlib
import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from tests.support.clients.conversation import messages_of, refusal_of, session_of, words_of
from tests.support.disk.failing import KILL, Call, Disk
from tests.support.fakes.domain_values import adding, creating, make_message, removing
from tests.support.fakes.opened_store import opened_store
from tests.support.oracles.ledger import Ledger
from tests.support.oracles.sound import problems
from tests.support.servers.commands import start_command
from tests.support.servers.process import server_process
from tests.support.servers.running import connect

ROUNDS = int(os.environ.get("TURNWIRE_FAULT_ROUNDS", "3"))
"""How often a process is killed."""

MESSAGES = 400

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 40 * ROUNDS)]


def heal(disk: Disk) -> None:
    """Lets nothing be killed any more."""
    print("killed" if disk.hits(0) else "not killed, because there were not so many calls")
    disk.heal()


def kill_at_any_call(disk: Disk, chance: random.Random, writes: int, syncs: int) -> None:
    """Kills the process in place of one of its calls, among so many."""
    disk.heal()
    call = chance.choices((Call.WRITE, Call.SYNC, Call.TRUNCATE, Call.UNLINK), (10, 10, 1, 1))[0]
    after = chance.randrange({Call.WRITE: writes, Call.SYNC: syncs}.get(call, 1))
    print(f"to be killed at {call.name} {after}")
    disk.fail(call, KILL, after=after, count=1)


async def run_until_killed(disk: Disk, seconds: float = 20) -> None:
    """Runs a server until it is killed by its disk, or has done all its work for so long."""
    with contextlib.suppress(RuntimeError):  # it was killed before it served
        async with disk.server() as server:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.ended(), seconds)


@pytest.mark.parametrize("number", range(3 * ROUNDS))
async def test_a_kill_at_any_call_loses_nothing(disk: Disk, chance: random.Random, number: int) -> None:
    """Messages, an upload and a deletion stay, from the first start of the server on."""
    ledger = Ledger()
    kill_at_any_call(disk, chance, 2500, 80)
    with contextlib.suppress(RuntimeError, ProcessLookupError, grpc.aio.AioRpcError):
        async with disk.server() as server, connect(server.address) as client:
            sessions = [await ledger.begin(client) for _ in range(3)]
            watches = [asyncio.create_task(ledger.follow(client, session_id)) for session_id in sessions]
            talks = (
                ledger.say(client, session_id, f"/words 300\n{session_id} {turn}")
                for session_id in sessions
                for turn in range(4)
            )
            await asyncio.gather(*talks, ledger.upload(client, 9_000_000, 700_000, chance))
            await ledger.delete(client, sessions[2])
            await server.terminate()
            await asyncio.gather(*watches)
    heal(disk)
    async with server_process(disk.folder) as server, connect(server.address) as client:
        await ledger.check(client)
        assert await server.terminate() == 0
    assert problems(disk.database) == []


async def fill(folder: Path, session_id: str, size: int) -> None:
    """Stores a session with many messages of a size."""
    async with opened_store(folder) as opened:
        await opened.store.commit(creating(session_id))
        for number in range(MESSAGES):
            message = make_message(f"msg_{session_id}_{number}", f"{number} " + "w " * size, session_id=session_id)
            opened.store.commit(adding(message)).add_done_callback(lambda future: future.result())


def make_events_old(database: Path) -> None:
    """Makes all events older than they are kept."""
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("UPDATE events SET at_us = 0")


def count(database: Path, query: str) -> int:
    """Returns a number of the database."""
    with closing(sqlite3.connect(database)) as db:
        return int(db.execute(query).fetchone()[0])


async def check_kept(disk: Disk, done: Callable[[], bool]) -> None:
    """Lets a server finish its work, and finds every message and nothing wrong."""
    disk.heal()
    assert problems(disk.database) == []
    async with server_process(disk.folder) as server, connect(server.address) as client:
        said = [words_of(message).split()[0] for message in await messages_of(client, "ses_kept")]
        assert said == [str(number) for number in range(MESSAGES)]
        while not done():
            await asyncio.sleep(0.05)
        assert await server.terminate() == 0
    assert problems(disk.database) == []


async def test_kills_while_old_events_go(disk: Disk, chance: random.Random) -> None:
    """Each step has happened or not; the messages stay, and all old events go in the end."""
    await fill(disk.folder, "ses_kept", 10)
    make_events_old(disk.database)
    before = count(disk.database, "SELECT count(*) FROM events")
    assert before > MESSAGES
    for _ in range(ROUNDS):
        kill_at_any_call(disk, chance, 60, 10)
        await run_until_killed(disk, 2)
        heal(disk)
        assert problems(disk.database) == []
    await check_kept(disk, lambda: count(disk.database, "SELECT count(*) FROM events") < 10)


async def test_kills_while_free_pages_go(disk: Disk, chance: random.Random) -> None:
    """The file gets shorter in the end, and what is stored stays as it is."""
    await fill(disk.folder, "ses_kept", 10)
    await fill(disk.folder, "ses_gone", 16_000)
    before = disk.database.stat().st_size
    async with opened_store(disk.folder) as opened:
        await opened.store.commit(removing("ses_gone"))
    for _ in range(ROUNDS):
        kill_at_any_call(disk, chance, 400, 20)
        await run_until_killed(disk, 2)
        heal(disk)
        assert problems(disk.database) == []
    await check_kept(disk, lambda: count(disk.database, "PRAGMA page_count") * 8192 < before / 2)
    assert disk.database.stat().st_size < before / 2


async def test_kills_while_a_large_session_is_deleted(disk: Disk, chance: random.Random) -> None:
    """It is there with all its messages, or gone; gone when that was answered. What it leaves goes later."""
    await fill(disk.folder, "ses_kept", 10)
    await fill(disk.folder, "ses_gone", 2000)
    is_there = True
    for _ in range(ROUNDS):
        kill_at_any_call(disk, chance, 100, 8)
        is_answered = False
        with contextlib.suppress(RuntimeError, grpc.aio.AioRpcError):
            async with disk.server() as server, connect(server.address) as client:
                await client.sessions.DeleteSession(session_id="ses_gone")
                is_answered = True
        heal(disk)
        assert problems(disk.database) == []
        async with server_process(disk.folder) as server, connect(server.address) as client:
            try:
                await session_of(client, "ses_gone")
                assert len(await messages_of(client, "ses_gone")) == MESSAGES
                assert not is_answered and is_there
            except grpc.aio.AioRpcError as error:
                assert refusal_of(error).reason == "SESSION_NOT_FOUND"
                is_there = False
    if is_there:
        async with opened_store(disk.folder) as opened:
            await opened.store.commit(removing("ses_gone"))
    await check_kept(disk, lambda: count(disk.database, "SELECT count(*) FROM messages") == MESSAGES)


async def test_kills_while_a_file_is_compacted(disk: Disk, chance: random.Random) -> None:
    """The file is as it was, or compacted; nothing else is left beside it."""
    await fill(disk.folder, "ses_kept", 10)
    await fill(disk.folder, "ses_gone", 2000)
    async with opened_store(disk.folder) as opened:
        await opened.store.commit(removing("ses_gone"))
    for _ in range(ROUNDS):
        kill_at_any_call(disk, chance, 600, 6)
        command = ("compact", str(disk.database))
        environ = {**os.environ, **disk.environ}
        process = await start_command(*command, cwd=disk.folder, environ=environ, forked=False)
        assert process.stderr is not None
        await process.stderr.read()
        assert await process.wait() in (0, -9)
        heal(disk)
        assert problems(disk.database) == []
    await check_kept(disk, lambda: True)
    left = {path.name for path in disk.folder.iterdir()} - {"turnwire.db-wal", "turnwire.db-shm"}
    assert left == {"turnwire.db", "turnwire.db.lock", "turnwire.toml"}
