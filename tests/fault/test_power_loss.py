"""The power fails: what was not synced is gone, as a whole, in parts or in sectors. What was acknowledged is there."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.support.disk.failing import ERRORS, Call, Disk
from tests.support.oracles.ledger import Ledger
from tests.support.oracles.sound import problems
from tests.support.servers.commands import start_command
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

ROUNDS = int(os.environ.get("TURNWIRE_FAULT_ROUNDS", "16"))
"""At how many moments the power fails."""

WORDS = "/words 400\n{}"
"""A message whose answer is some kilobytes long."""


async def talk_a_lot(client: Client, ledger: Ledger, chance: random.Random) -> None:
    """Four sessions talk, are watched, and one is deleted; an upload lets SQLite move its log into the file."""
    sessions = [await ledger.begin(client) for _ in range(4)]
    watches = [asyncio.create_task(ledger.follow(client, session_id)) for session_id in sessions]

    async def talk(session_id: str, first: int = 0) -> None:
        for number in range(first, first + 5):
            await ledger.say(client, session_id, WORDS.format(f"{session_id} {number}"))

    await asyncio.gather(*map(talk, sessions), ledger.upload(client, 12_000_000, 700_000, chance))
    await ledger.delete(client, sessions[3])
    await talk(sessions[0], 5)
    for watch in watches:
        watch.cancel()
    await asyncio.gather(*watches, return_exceptions=True)


async def check_cut(disk: Disk, ledger: Ledger, at: int, chance: random.Random, target: Path) -> None:
    """Cuts the power at a moment, starts a server on what is left, and asks it for all that was promised until then."""
    disk.recording().write(at, chance, target)
    async with server_process(target) as server, connect(server.address) as client:
        await ledger.check(client, at)
        assert await server.terminate() == 0, server.stderr
    assert problems(target / "turnwire.db") == []


@pytest.mark.slow
@pytest.mark.timeout(300 + 15 * ROUNDS)
async def test_a_power_cut_loses_nothing_that_was_acknowledged(
    recorded_disk: Disk, tmp_path: Path, chance: random.Random
) -> None:
    """At any moment from the first start on; the next start finds a database that is whole, and goes on."""
    ledger = Ledger(recorded_disk.recorded_bytes)
    async with recorded_disk.server() as server, connect(server.address) as client:
        await talk_a_lot(client, ledger, chance)
        await server.kill()
    assert not ledger.refusals
    moments = recorded_disk.recording().moments()
    for number in range(ROUNDS):
        at = moments[-1] if number == 0 else chance.choice(moments)
        print(f"cut {number} at {at}")
        await check_cut(recorded_disk, ledger, at, chance, tmp_path / f"cut-{number}")


@pytest.mark.slow
async def test_a_sync_that_failed_is_not_trusted_after_a_restart(
    recorded_disk: Disk, tmp_path: Path, chance: random.Random
) -> None:
    """The kernel shows the next process what the disk never got; what that one acknowledges is kept all the same."""
    ledger = Ledger(recorded_disk.recorded_bytes)
    async with recorded_disk.server() as server, connect(server.address) as client:
        session_id = await ledger.begin(client)
        await ledger.say(client, session_id, "before")
        recorded_disk.fail(Call.SYNC, ERRORS["EIO"])
        assert not await ledger.say(client, session_id, "not kept")
        assert await server.ended() == 1
    recorded_disk.heal()
    async with recorded_disk.server() as server, connect(server.address) as client:
        for number in range(3):
            assert await ledger.say(client, session_id, f"after {number}")
        await server.kill()
    end = recorded_disk.recorded_bytes()
    for number in range(6):
        await check_cut(recorded_disk, ledger, end, chance, tmp_path / f"cut-{number}")


@pytest.mark.slow
async def test_a_backup_that_was_reported_survives_a_power_cut(
    recorded_disk: Disk, tmp_path: Path, chance: random.Random
) -> None:
    """The copy has its name and is whole; cut before, there is none, or a whole one."""
    async with recorded_disk.server() as server, connect(server.address) as client:
        ledger = Ledger()
        await ledger.say(client, await ledger.begin(client), "/words 3000")
        assert await server.terminate() == 0
    began = recorded_disk.recorded_bytes()
    command = ("backup", str(recorded_disk.database), str(recorded_disk.folder / "backup.db"))
    environ = {**os.environ, **recorded_disk.environ}
    process = await start_command(*command, cwd=recorded_disk.folder, environ=environ, forked=False)
    assert await process.wait() == 0
    recording = recorded_disk.recording()
    moments = recording.moments(began)
    for number in range(ROUNDS):
        at = moments[-1] if number < 4 else chance.choice(moments)
        target = tmp_path / f"cut-{number}"
        recording.write(at, chance, target)
        copy = target / "backup.db"
        assert copy.exists() or number >= 4
        assert not copy.exists() or problems(copy) == []
