"""A connection's thread, and whose turn it is."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.fakes.loop import begun, settled
from turnwire.domain.errors import StorageBusy
from turnwire.event_loop.owner import NO_OWNER, OWNER, own
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sqlite.connection import opened
from turnwire.storage.sqlite.database import SqliteDatabase


class Held:
    """A connection whose thread does nothing until it is let go."""

    def __init__(self, connection: Connection[SqliteDatabase]) -> None:
        self.connection = connection
        self.goes_on = threading.Event()
        self.order: list[str] = []

    def read(self, name: str, owner: str = NO_OWNER) -> "asyncio.Task[None]":
        """Begins a read of an owner, which notes when it runs."""

        async def reading() -> None:
            own(owner)
            await self.connection.run(lambda _: self.order.append(name))
            assert OWNER.get() == owner

        return asyncio.create_task(reading())


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[Held]:
    """Yields a connection that is held."""
    sqlite3.connect(tmp_path / "one.db").close()
    connection = await Connection.open(partial(opened, tmp_path / "one.db", read_only=True), is_reader=True)
    held = Held(connection)
    holding = await begun(connection.run(lambda _: held.goes_on.wait()))
    yield held
    held.goes_on.set()
    await holding
    await connection.close()


async def test_reads_run_in_order_of_arrival(held: Held) -> None:
    """Reads of one owner run in their order."""
    names = [str(number) for number in range(30)]
    reads = [held.read(name) for name in names]
    await settled()
    held.goes_on.set()
    await asyncio.gather(*reads)
    assert held.order == names


async def test_owners_take_turns_with_their_reads(held: Held) -> None:
    """One of whom hundreds read does not hold up the only read of another one."""
    crowd = [held.read("crowd", "a") for _ in range(50)]
    await settled()
    other = held.read("other", "b")
    await settled()
    held.goes_on.set()
    await asyncio.gather(other, *crowd)
    assert held.order.index("other") <= 1


async def test_a_read_whose_caller_has_left_does_not_run(held: Held) -> None:
    """The others do."""
    reads = [held.read("one") for _ in range(30)]
    await settled()
    for one in reads:
        one.cancel()
    await asyncio.wait(reads)
    last = held.read("last")
    held.goes_on.set()
    await last
    assert held.order == ["last"]


async def test_a_closed_connection_carries_out_what_waited(held: Held) -> None:
    """It refuses what comes later."""
    reads = [held.read("one", owner) for _ in range(10) for owner in ("a", "b")]
    await settled()
    closing = await begun(held.connection.close())
    held.goes_on.set()
    await asyncio.gather(closing, *reads)
    with pytest.raises(StorageBusy, match="the database is closed"):
        await held.read("late")
