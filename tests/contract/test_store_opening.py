"""Store, opening and failing: migrations, locks, damaged files, busy and full databases."""

import asyncio
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.fakes.domain_values import NOW, adding, creating, make_answer, make_message, make_turn, removing
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.conversation.events import QueueChanged
from turnwire.domain.conversation.messages import MessageStatus, ToolUse
from turnwire.domain.errors import StorageBusy, StorageCorrupt, StorageError, StorageFull, StorageSchemaTooNew
from turnwire.domain.principal import BUILT_IN, DEFAULT_TENANT
from turnwire.ports.commit import Commit, Committed, NewEvent, PutTurn, RecordRequest
from turnwire.ports.pages import Bounds, Page
from turnwire.storage.sqlite import schema
from turnwire.storage.units import PRUNE_SLACK


def _schema(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT name, coalesce(sql, '') FROM sqlite_schema ORDER BY name").fetchall()
        return [*rows, *db.execute("SELECT 'version', user_version FROM pragma_user_version").fetchall()]


async def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    """Migrations are applied once; the record of the first time stays."""
    async with opened_store(tmp_path) as opened:
        pass
    first = _schema(opened.path)
    async with opened_store(tmp_path):
        pass
    assert _schema(opened.path) == first


async def test_what_reads_cannot_write(tmp_path: Path) -> None:
    """All writing goes through the one connection that the writer has; a mistake in a read changes nothing."""
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
        writing, *reading = opened.store._connections
        assert len(reading) == 3
        for connection in reading:
            with pytest.raises(StorageError, match="readonly"):
                await connection.run(sqlite3.Connection.execute, "DELETE FROM sessions")
        assert await opened.store.of(DEFAULT_TENANT).session("ses_1") is not None
        await writing.run(sqlite3.Connection.execute, "DELETE FROM sessions WHERE session_id = 'ses_other'")


class _Large:
    """Something that takes much memory."""


async def test_a_thread_keeps_nothing_of_what_it_did(tmp_path: Path) -> None:
    """Neither what a read or a write was given, nor what came of it: the next one may be an hour away."""
    async with opened_store(tmp_path) as opened:
        for connection in opened.store._connections:
            given = _Large()
            result = await connection.run(lambda db, one: [one, _Large()], given)
            gone = [weakref.ref(given), weakref.ref(result[1])]
            del given, result
            while any(one() is not None for one in gone):  # the thread drops them once it has told
                await asyncio.sleep(0)


async def test_reopening_keeps_everything(tmp_path: Path) -> None:
    """Session, messages, turns, requests, log and bounds are those of before."""
    turn = make_turn()
    answer = make_answer("msg_a", "text", ToolUse(name="look", input_json="{}"))
    queued = make_message("msg_q", "wait", status=MessageStatus.QUEUED)

    async def read(opened: OpenedStore) -> list[object]:
        store = opened.store
        return [
            await store.of(DEFAULT_TENANT).session("ses_1"),
            await store.of(DEFAULT_TENANT).sessions(Page()),
            await store.of(DEFAULT_TENANT).messages("ses_1", Page()),
            await store.of(DEFAULT_TENANT).display("ses_1", Page()),
            await store.unfinished_turns(),
            await store.turn_messages("trn_1"),
            await store.request(BUILT_IN, "req"),
            await store.of(DEFAULT_TENANT).session_bounds("ses_1"),
            await store.of(DEFAULT_TENANT).log_bounds(),
            await store.of(DEFAULT_TENANT).session_events("ses_1", 0, None),
        ]

    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
        await opened.store.commit(adding(answer, NOW, (), PutTurn(turn), RecordRequest(BUILT_IN, "req", "f", "{}")))
        await opened.store.commit(adding(queued))
        before = await read(opened)
    async with opened_store(tmp_path) as opened:
        assert await read(opened) == before


async def test_sequences_and_positions_go_on_after_reopening(tmp_path: Path) -> None:
    """Neither is used twice."""
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
    async with opened_store(tmp_path) as opened:
        assert await opened.store.commit(adding(make_message("msg_1", "a"))) == Committed(1, 2)
        assert opened.sequences() == [("ses_1", 2, 2)]


async def test_positions_are_not_reused_after_pruning_and_removal(tmp_path: Path) -> None:
    """A log whose newest events are all gone still goes on after them."""
    async with opened_store(tmp_path, retained_events=1) as opened:
        await opened.store.commit(creating())
        events = tuple(NewEvent(QueueChanged(())) for _ in range(PRUNE_SLACK + 2))
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, events=events))
        await opened.store.commit(removing())
        last = opened.published[-1].event.position
    async with opened_store(tmp_path) as opened:
        assert (await opened.store.of(DEFAULT_TENANT).log_bounds()).head == last
        await opened.store.commit(creating("ses_2"))
        assert opened.sequences() == [("ses_2", 1, last + 1)]


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """The error names both versions, and the file is as it was."""
    async with opened_store(tmp_path) as opened:
        pass
    with closing(sqlite3.connect(opened.path)) as db, db:
        db.execute("PRAGMA user_version = 99")
    before = _schema(opened.path)
    with pytest.raises(StorageSchemaTooNew) as caught:
        async with opened_store(tmp_path):
            pass
    assert caught.value.metadata["version"] == "99"
    assert _schema(opened.path) == before


async def test_a_schema_from_before_the_first_release_is_refused(tmp_path: Path) -> None:
    """The error says how its sessions move, and the file is as it was."""
    path = tmp_path / "turnwire.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, applied_at TEXT)")
        db.execute("INSERT INTO schema_migrations (version) VALUES (7)")
    before = _schema(path)
    with pytest.raises(StorageError, match="export its sessions with that version, and import them"):
        async with opened_store(tmp_path):
            pass
    assert _schema(path) == before


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """It is told apart from other trouble, stays as it was, and does not keep the lock."""
    path = tmp_path / "turnwire.db"
    path.write_bytes(b"these are my notes, not a database\n" * 500)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(StorageCorrupt):
            async with opened_store(tmp_path):
                pass
    assert path.read_bytes() == before


async def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """A database whose pages were overwritten does not open."""
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
    content = bytearray(opened.path.read_bytes())
    content[100:] = b"\xa5" * (len(content) - 100)
    opened.path.write_bytes(content)
    with pytest.raises(StorageCorrupt):
        async with opened_store(tmp_path):
            pass


async def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    """The error names the path."""
    with pytest.raises(StorageError) as caught:
        async with opened_store(tmp_path / "missing"):
            pass
    assert str(tmp_path / "missing") in caught.value.metadata["path"]


async def test_a_second_opening_is_refused(tmp_path: Path) -> None:
    """It names the process that has the file, and disturbs nothing; once that one closes, it can."""
    async with opened_store(tmp_path) as opened:
        with pytest.raises(StorageBusy) as caught:
            async with opened_store(tmp_path):
                pass
        assert caught.value.metadata == {"path": f"{opened.path}.lock", "process": str(os.getpid())}
        assert str(os.getpid()) in caught.value.message
        await opened.store.commit(creating())
    async with opened_store(tmp_path) as opened:
        assert (await opened.store.of(DEFAULT_TENANT).session("ses_1")).session_id == "ses_1"


@contextmanager
def _held_by_another(path: Path) -> Iterator[None]:
    """Holds the database exclusively, as a foreign process would."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("BEGIN EXCLUSIVE")
            held.set()
            release.wait()
            db.execute("ROLLBACK")

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(200)
        yield
    finally:
        release.set()
        thread.join()


async def test_a_foreign_process_that_holds_the_database_makes_it_busy(tmp_path: Path) -> None:
    """Every unit of the batch fails as busy, nothing is stored or told, reading goes on, and later units work."""
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
        await opened.store._writing.run(lambda db: db.execute("PRAGMA busy_timeout=20").close())
        with _held_by_another(opened.path):
            answers = await asyncio.gather(
                *[opened.store.commit(adding(make_message(f"msg_{i}", "a"))) for i in range(3)], return_exceptions=True
            )
            assert [type(answer) for answer in answers] == [StorageBusy] * 3
            assert await opened.store.of(DEFAULT_TENANT).session_bounds("ses_1") == Bounds(0, 1)
        assert (await opened.store.of(DEFAULT_TENANT).messages("ses_1", Page())).messages == ()
        assert await opened.store.commit(adding(make_message("msg_1", "a"))) == Committed(1, 2)
        assert opened.sequences() == [("ses_1", 1, 1), ("ses_1", 2, 2)]


def _limit_pages(db: sqlite3.Connection, extra: int | None) -> None:
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count={pages + extra if extra is not None else 2**31 - 2}").close()


async def test_a_full_disk_fails_the_unit_and_leaves_the_store_working(tmp_path: Path) -> None:
    """The unit that does not fit fails as StorageFull, as a whole; positions are not lost; with room it goes on."""
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
        await opened.store._writing.run(_limit_pages, 3)
        big = adding(make_message("msg_big", "x" * 500_000))
        for _ in range(2):
            with pytest.raises(StorageFull):
                await opened.store.commit(big)
        assert (await opened.store.of(DEFAULT_TENANT).messages("ses_1", Page())).messages == ()
        assert await opened.store.of(DEFAULT_TENANT).session_bounds("ses_1") == Bounds(0, 1)
        await opened.store._writing.run(_limit_pages, None)
        assert await opened.store.commit(big) == Committed(1, 2)
        assert opened.sequences() == [("ses_1", 1, 1), ("ses_1", 2, 2)]


async def test_a_full_disk_gives_every_unit_of_the_batch_an_answer(tmp_path: Path) -> None:
    """Each waiting unit is either stored and told, or fails as StorageFull and left no trace."""
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
        await opened.store._writing.run(_limit_pages, 4)
        messages = [make_message(f"msg_{i}", "x" * (300_000 if i == 2 else 10)) for i in range(5)]
        answers = await asyncio.gather(
            *[opened.store.commit(adding(message)) for message in messages], return_exceptions=True
        )
        stored = [m for m, answer in zip(messages, answers, strict=True) if isinstance(answer, Committed)]
        assert {type(answer) for answer in answers} <= {Committed, StorageFull}
        assert isinstance(answers[2], StorageFull)
        assert (await opened.store.of(DEFAULT_TENANT).messages("ses_1", Page())).messages == tuple(stored)
        assert [s.event.sequence for s in opened.published] == list(range(1, len(stored) + 2))
        await opened.store._writing.run(_limit_pages, None)
        await opened.store.commit(adding(make_message("msg_after", "a")))
        assert opened.sequences()[-1] == ("ses_1", len(stored) + 2, len(stored) + 2)


async def test_a_migration_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one transaction with its own record: the next start finds the old schema and tries again."""
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
    before = _schema(opened.path)
    broken = "CREATE TABLE extra (id INTEGER PRIMARY KEY) STRICT;\nCREATE TABLE sessions (id INTEGER);\n"
    with monkeypatch.context() as patched, pytest.raises(StorageError):
        patched.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
        async with opened_store(tmp_path):
            pass
    assert _schema(opened.path) == before
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken.splitlines()[0]))
    async with opened_store(tmp_path) as opened:
        assert (await opened.store.of(DEFAULT_TENANT).session("ses_1")).session_id == "ses_1"
    assert "extra" in dict(row[:2] for row in _schema(opened.path))


async def test_a_full_disk_lets_the_log_begin_anew(tmp_path: Path) -> None:
    """The contents of the write-ahead log go to the file: a log that cannot grow is used again."""
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
        await opened.store._writing.run(lambda db: db.execute("PRAGMA wal_autocheckpoint=0").fetchall())
        await opened.store.commit(adding(make_message("msg_1", "text " * 200_000)))
        before = opened.path.stat().st_size
        await opened.store._writing.run(_limit_pages, 0)
        with pytest.raises(StorageFull):
            await opened.store.commit(adding(make_message("msg_2", "text " * 200_000)))
        assert opened.path.stat().st_size > before + 900_000
