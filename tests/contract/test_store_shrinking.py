"""A file gives back what it does not need: while it is used, or all at once."""

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
from turnwire.storage.sqlite.care.shrinking import compact, shrink_some


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
        await opened.store.removals()
    return opened.path


@pytest.mark.slow
async def test_free_pages_go_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some stay for what comes next. What is stored stays as it is."""
    monkeypatch.setattr(shrinking, "SPARE_PAGES", 4)
    path = await filled(tmp_path)
    before = path.stat().st_size
    steps = 0
    async with opened_store(tmp_path) as opened:
        while await opened.store._writing.run(shrink_some):
            steps += 1
        kept = await opened.store.of(DEFAULT_TENANT).messages("ses_2", Page())
        assert [message.message_id for message in kept.messages] == ["msg_kept"]
    assert steps > 4
    assert path.stat().st_size < before / 4
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.slow
async def test_compacting_needs_the_file_for_itself(tmp_path: Path) -> None:
    """It answers how large the file was and is, and what is stored stays as it is."""
    path = await filled(tmp_path)
    async with opened_store(tmp_path):
        with pytest.raises(StorageBusy):
            compact(path)
    compacted = compact(path)
    assert compacted.bytes_after < compacted.bytes_before / 2
    assert path.stat().st_size == compacted.bytes_after
    async with opened_store(tmp_path) as opened:
        assert len((await opened.store.of(DEFAULT_TENANT).messages("ses_2", Page())).messages) == 1


def test_what_is_no_database_is_not_compacted(tmp_path: Path) -> None:
    """Nor made where there is none."""
    with pytest.raises(StorageError, match="does not exist"):
        compact(tmp_path / "none.db")
    assert not list(tmp_path.iterdir())
    (tmp_path / "empty.db").touch()
    with pytest.raises(StorageCorrupt):
        compact(tmp_path / "empty.db")
