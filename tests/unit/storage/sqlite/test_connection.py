"""What SQLite reports, in our words."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fakes.loop import settled
from turnwire.domain.errors import StorageBusy, StorageCorrupt, StorageError, StorageFull
from turnwire.event_loop.owner import NOBODY, OWNER, own
from turnwire.storage.sqlite.care.shrinking import INCREMENTAL
from turnwire.storage.sqlite.connection import (
    PAGE_BYTES,
    Connection,
    translate,
)
from turnwire.storage.sqlite.schema import MIGRATIONS, _statements


def _error(code: int, message: str = "told") -> sqlite3.Error:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_BUSY, StorageBusy),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StorageBusy),
        (sqlite3.SQLITE_LOCKED, StorageBusy),
        (sqlite3.SQLITE_FULL, StorageFull),
        (sqlite3.SQLITE_CORRUPT, StorageCorrupt),
        (sqlite3.SQLITE_CORRUPT_INDEX, StorageCorrupt),
        (sqlite3.SQLITE_NOTADB, StorageCorrupt),
        (sqlite3.SQLITE_IOERR, StorageError),
        (sqlite3.SQLITE_READONLY, StorageError),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, StorageError),
    ],
)
def test_codes_become_storage_errors(code: int, kind: type[StorageError]) -> None:
    """Extended codes by their primary one."""
    assert type(translate(_error(code))) is kind


def test_an_error_without_a_code_is_a_storage_error() -> None:
    """The module raises some itself."""
    assert type(translate(sqlite3.ProgrammingError("closed"))) is StorageError


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR])
def test_the_words_of_sqlite_stand_in_the_metadata_too(code: int) -> None:
    """A program need not read the sentence."""
    error = translate(_error(code, "disk I/O error"))
    assert "disk I/O error" in error.message
    assert "disk I/O error" in error.metadata.values()


def test_migrations_split_into_whole_statements() -> None:
    """Nothing of a script is left out, comments apart."""
    for script in MIGRATIONS:
        statements = _statements(script)
        assert "".join(statements).strip() == script.strip()
        assert all(sqlite3.complete_statement(statement) for statement in statements)


async def test_a_new_file_has_the_pages_that_the_store_relies_on(tmp_path: Path) -> None:
    """Of the size that large texts want, and such that the file shrinks; a file that is there keeps its own."""
    foreign = tmp_path / "foreign.sqlite"
    with contextlib.closing(sqlite3.connect(foreign)) as db:
        db.executescript("PRAGMA page_size = 4096; PRAGMA auto_vacuum = NONE; CREATE TABLE one (text TEXT)")
    for path, pages in ((tmp_path / "new.sqlite", (PAGE_BYTES, INCREMENTAL)), (foreign, (4096, 0))):
        connection = await Connection.open(path, read_only=False)
        await connection.run(lambda db: db.execute("CREATE TABLE two (text TEXT)").close())
        await connection.close()
        with contextlib.closing(sqlite3.connect(path)) as db:
            found = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "auto_vacuum")]
        assert tuple(found) == pages


class Held:
    """A connection whose thread does nothing until it is let go."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.goes_on = threading.Event()
        self.order: list[str] = []

    def read(self, name: str, owner: str = NOBODY) -> "asyncio.Task[None]":
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
    connection = await Connection.open(tmp_path / "one.db", read_only=True)
    held = Held(connection)
    holding = asyncio.create_task(connection.run(lambda _: held.goes_on.wait()))
    await settled()
    yield held
    held.goes_on.set()
    await holding
    await connection.close()


async def test_reads_run_in_order_of_arrival(held: Held) -> None:
    """Of one owner."""
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
    closing = asyncio.create_task(held.connection.close())
    await settled()
    held.goes_on.set()
    await asyncio.gather(closing, *reads)
    with pytest.raises(StorageError, match="the database is closed"):
        await held.read("late")
