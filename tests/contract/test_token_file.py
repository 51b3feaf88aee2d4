"""The file of own tokens: what only a file can suffer. `test_store_tokens.py` has what holds in either engine."""

import asyncio
import contextlib
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.fakes.identity import START, token_record
from turnwire.domain.errors import StorageCorrupt, StorageError, StorageSchemaTooNew
from turnwire.storage.sqlite.tokens import TokenFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is; its folder is not there yet."""
    return tmp_path / "data" / "tokens.db"


Opening = Callable[[Path], Awaitable[TokenFile]]


@pytest.fixture
async def opened() -> AsyncIterator[Opening]:
    """Opens a file, which is closed after the test."""
    async with contextlib.AsyncExitStack() as closing:

        async def open_file(path: Path) -> TokenFile:
            return await closing.enter_async_context(contextlib.aclosing(await TokenFile.open(path)))

        yield open_file


@pytest.mark.parametrize("umask", [0o000, 0o077])
async def test_only_its_owner_reads_it(path: Path, umask: int) -> None:
    """Neither the umask nor a mode that was wider before changes that."""
    before = os.umask(umask)
    try:
        await (await TokenFile.open(path)).aclose()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o644)
        await (await TokenFile.open(path)).aclose()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_busy_event_loop_keeps_no_command_out(path: Path, opened: Opening) -> None:
    """The server holds the file while SQLite works, never from one step of its loop to the next."""
    await (await opened(path)).add(token_record(1))
    server = await opened(path)
    note = asyncio.create_task(server.note_uses({"tok_1": START}))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=0.5)) as command:
        while not note.done():
            command.execute("BEGIN IMMEDIATE")  # the loop does nothing until it begins
            command.execute("ROLLBACK")
            await asyncio.sleep(0)
    await note


async def test_a_deleted_file_has_no_tokens(path: Path, opened: Opening) -> None:
    """They are not valid until it is back; nothing is written meanwhile."""
    server = await opened(path)
    await server.add(token_record(1))
    await server.all()
    moved = path.with_suffix(".moved")
    path.rename(moved)
    assert await server.changed() and await server.all() == ()
    await server.note_uses({"tok_1": START})
    assert not path.exists()
    moved.rename(path)
    assert await server.changed() and await server.all() == (token_record(1),)


async def test_a_replaced_file_is_opened(path: Path, tmp_path: Path, opened: Opening) -> None:
    """The tokens are those of the new one."""
    other = await opened(tmp_path / "other.db")
    await other.add(token_record(2))
    await other.aclose()
    server = await opened(path)
    await server.add(token_record(1))
    await server.all()
    (tmp_path / "other.db").replace(path)
    assert await server.changed() and await server.all() == (token_record(2),)


async def test_a_newer_file_is_left_alone(path: Path) -> None:
    """An older version does not guess what it means."""
    await (await TokenFile.open(path)).aclose()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(StorageSchemaTooNew):
        await TokenFile.open(path)


async def test_a_file_that_is_no_database_is_refused(path: Path, tmp_path: Path) -> None:
    """A folder is refused too, and a path below a file."""
    path.parent.mkdir()
    path.write_text("no database " * 100)
    with pytest.raises(StorageCorrupt):
        await TokenFile.open(path)
    for wrong in (tmp_path, path / "tokens.db"):
        with pytest.raises(StorageError):
            await TokenFile.open(wrong)


@pytest.mark.parametrize("do", ["emptied", "overwritten"])
async def test_a_file_that_was_damaged_while_it_is_open_is_an_error(path: Path, do: str, opened: Opening) -> None:
    """A follower keeps the tokens that it knows, and tells it."""
    file = await opened(path)
    await file.add(token_record(1))
    before = path.read_bytes()
    assert await file.all() == (token_record(1),)
    path.write_bytes(b"" if do == "emptied" else b"x" * len(before))
    with pytest.raises(StorageError):
        assert not await file.changed() or await file.all()
    await file.aclose()
    path.write_bytes(before)
    assert await (await opened(path)).all() == (token_record(1),)
