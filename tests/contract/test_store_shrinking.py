"""A file gives back what it does not need: new ones while they are used, others when they are rewritten."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.fakes.domain_values import adding, creating, make_message, removing
from tests.support.fakes.opened_store import opened_store
from turnwire.domain.errors import StorageBusy, StorageCorrupt, StorageError
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.pages import Page
from turnwire.storage.sqlite.care import shrinking
from turnwire.storage.sqlite.care.shrinking import can_shrink, compact, shrink_some
from turnwire.storage.sqlite.connection import run


async def filled(folder: Path) -> Path:
    """Returns a file that has lost most of what it held."""
    async with opened_store(folder) as opened:
        for session_id in ("ses_1", "ses_2"):
            await opened.store.commit(creating(session_id))
        for number in range(40):
            text = f"{number} " + "word " * 20_000
            await opened.store.commit(adding(make_message(f"msg_{number}", text, session_id="ses_1")))
        await opened.store.commit(adding(make_message("msg_kept", "kept", session_id="ses_2")))
        await opened.store.commit(removing("ses_1"))
    return opened.path


async def test_free_pages_go_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some stay for what comes next. What is stored stays as it is."""
    monkeypatch.setattr(shrinking, "SPARE_PAGES", 4)
    path = await filled(tmp_path)
    before = path.stat().st_size
    steps = 0
    async with opened_store(tmp_path) as opened:
        while await run(opened.store._writing, shrink_some):
            steps += 1
        kept = await opened.store.of(DEFAULT_TENANT).messages("ses_2", Page())
        assert [message.message_id for message in kept.messages] == ["msg_kept"]
    assert steps > 4
    assert path.stat().st_size < before / 4
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_small_file_of_before_is_rewritten_when_it_is_opened(tmp_path: Path) -> None:
    """A large one is used as it is, until an operator compacts it."""
    path = await filled(tmp_path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA auto_vacuum = NONE")
        db.execute("VACUUM")
        assert not can_shrink(db)
    async with opened_store(tmp_path) as opened:
        assert await run(opened.store._writing, can_shrink)


async def test_a_file_that_cannot_be_rewritten_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk without room for a second one the server starts all the same, and does so at the next start."""
    path = await filled(tmp_path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA auto_vacuum = NONE")
        db.execute("VACUUM")

    def full(db: sqlite3.Connection) -> None:
        db.execute(f"PRAGMA auto_vacuum = {shrinking.INCREMENTAL}")
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(shrinking, "rewrite", full)
        async with opened_store(tmp_path) as opened:
            await opened.store.commit(adding(make_message("msg_new", "new", session_id="ses_2")))
            assert not await run(opened.store._writing, can_shrink)
            assert not await run(opened.store._writing, shrink_some)
    async with opened_store(tmp_path) as opened:
        assert await run(opened.store._writing, can_shrink)


async def test_compacting_needs_the_file_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers how large the file was and is, and a file that can shrink comes out of it."""
    path = await filled(tmp_path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA auto_vacuum = NONE")
        db.execute("VACUUM")
    monkeypatch.setattr(shrinking, "SMALL_BYTES", path.stat().st_size - 1)
    async with opened_store(tmp_path) as opened:
        assert not await run(opened.store._writing, can_shrink)
        assert not await run(opened.store._writing, shrink_some)
        with pytest.raises(StorageBusy):
            compact(path)
    compacted = compact(path)
    assert compacted.bytes_after <= compacted.bytes_before
    assert path.stat().st_size == compacted.bytes_after
    with closing(sqlite3.connect(path)) as db:
        assert can_shrink(db)
    async with opened_store(tmp_path) as opened:
        assert len((await opened.store.of(DEFAULT_TENANT).messages("ses_2", Page())).messages) == 1


def test_what_is_no_database_is_not_compacted(tmp_path: Path) -> None:
    """Nor made where there is none."""
    with pytest.raises(StorageError, match="no file"):
        compact(tmp_path / "none.db")
    assert not list(tmp_path.iterdir())
    (tmp_path / "empty.db").touch()
    with pytest.raises(StorageCorrupt):
        compact(tmp_path / "empty.db")
