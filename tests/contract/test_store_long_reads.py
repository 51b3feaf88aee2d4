"""Store, reading: what takes long is read beside everything else, in order of arrival."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from tests.support.fakes.domain_values import (
    NOW,
    adding,
    creating,
    make_answer,
    make_message,
    make_part,
    make_permission,
    make_question,
    make_turn,
)
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.conversation.messages import ToolUse
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import PutPermission, PutQuestion, PutTurn
from turnwire.ports.conversations import AlternativesOf
from turnwire.ports.pages import Page
from turnwire.storage.sql import pages, tenant_reads
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.writer import Other
from turnwire.storage.sqlite.database import SqliteDatabase


@pytest.fixture
async def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenedStore]:
    """A store with a short conversation, and one that counts as long."""
    monkeypatch.setattr(tenant_reads, "LONG_MESSAGES", 3)
    async with opened_store(tmp_path) as one:
        for name, messages in (("short", 3), ("long", 4)):
            await one.store.commit(creating(name))
            for number in range(messages):
                await one.store.commit(adding(make_message(f"{name}_{number}", "text", session_id=name)))
        yield one


class Stuck:
    """A long read that goes on until it is released."""

    def __init__(self, reads: Connection[SqliteDatabase], tenant: str = DEFAULT_TENANT) -> None:
        """Begins to read."""
        self.has_begun = asyncio.Event()
        self._may_end = threading.Event()
        self._loop = asyncio.get_running_loop()
        self.task = asyncio.create_task(reads.run(self._run, tenant))

    def _run(self, db: sqlite3.Connection, tenant: str) -> str:
        self._loop.call_soon_threadsafe(self.has_begun.set)
        assert self._may_end.wait(20)
        return tenant

    def release(self) -> None:
        """Lets the read end."""
        self._may_end.set()


async def test_small_reads_do_not_wait_for_long_ones(opened: OpenedStore) -> None:
    """While somebody reads all of something large, sessions, pages and short conversations are read."""
    reads = opened.store.of(DEFAULT_TENANT)
    stuck = Stuck(opened.store._reads.long)
    await reads.session("long")
    assert len(await reads.history("short")) == 3
    assert (await reads.display("short", Page(max_bytes=10_000))).frames
    assert len((await reads.messages("long", Page(size=2))).messages) == 2
    assert (await reads.display("long", Page(size=2))).frames
    longer = [
        asyncio.create_task(read)
        for read in (
            reads.conversation("long"),
            reads.display("long", Page()),
            reads.sessions(Page()),
            reads.session_ids(),
        )
    ]
    await asyncio.wait(longer, timeout=0.05)
    assert not any(task.done() for task in longer)
    stuck.release()
    conversation, display, sessions, ids = await asyncio.gather(*longer)
    assert len(conversation.messages) == 4  # type: ignore[attr-defined]
    assert b"long_0" in display.frames  # type: ignore[attr-defined]
    assert len(sessions.sessions) == len(ids) == 2  # type: ignore[arg-type, attr-defined]


async def test_a_caller_that_is_gone_keeps_nobody_waiting(opened: OpenedStore) -> None:
    """A read that waits is given up; one that runs goes on alone, and the next one follows it."""
    reads = opened.store._reads.long
    running = Stuck(reads)
    await running.has_begun.wait()
    waiting, last = Stuck(reads), asyncio.create_task(reads.run(lambda _, tenant: tenant, "t"))
    await asyncio.sleep(0)
    for gone in (running.task, waiting.task):
        gone.cancel()
    await asyncio.wait((running.task, waiting.task))
    assert (running.task.cancelled(), waiting.task.cancelled(), last.done()) == (True, True, False)
    running.release()
    assert await last == "t"


async def test_an_error_of_a_long_read_is_its_callers(opened: OpenedStore) -> None:
    """The reads behind it are not affected."""
    reads = opened.store._reads.long

    def fail(_: sqlite3.Connection, tenant: str) -> None:
        raise LookupError(tenant)

    failing, next_one = (asyncio.create_task(reads.run(one, "t")) for one in (fail, lambda _, tenant: tenant))
    with pytest.raises(LookupError):
        await failing
    assert await next_one == "t"


async def test_readers_wait_for_the_events_of_their_session_only(opened: OpenedStore) -> None:
    """A transaction that takes long and tells nobody of a session keeps no reader of that session waiting."""
    store, is_begun, may_end = opened.store, threading.Event(), threading.Event()

    def write(_: sqlite3.Connection, __: object) -> None:
        is_begun.set()
        assert may_end.wait(20)

    stuck = store._writer.carry_out(Other(write))
    told = store.commit(adding(make_message("told", "text", session_id="long")))
    assert await asyncio.to_thread(is_begun.wait, 20)
    waiting = asyncio.create_task(store.moment_after_reads(DEFAULT_TENANT, "long"))
    of_all = asyncio.create_task(store.of(DEFAULT_TENANT).log_bounds())
    before = await store.moment_after_reads(DEFAULT_TENANT, "short")
    assert (await store.of(DEFAULT_TENANT).session_bounds("short")).head == 4
    assert (await store.of(DEFAULT_TENANT).session_events("short", 0, None)).last == 4
    assert not waiting.done()
    assert not of_all.done()
    may_end.set()
    await asyncio.gather(stuck, told)
    assert (await waiting).position == before.position + 1
    assert (await of_all).head == before.position


async def test_large_reads_are_carried_out_beside_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what is stored of them, however few they are; small ones of the same session do not wait for them."""
    monkeypatch.setattr(pages, "HEAVY_BYTES", 1000)
    monkeypatch.setattr(tenant_reads, "LONG_BYTES", 2000)
    async with opened_store(tmp_path) as one:
        await one.store.commit(creating("ses"))
        call = make_part(0, ToolUse(name="look", input_json=f'"{"x" * 5000}"'), part_id="prt_call")
        for message in (make_message("small", "text"), make_answer("calling", call), make_message("large", "x" * 5000)):
            await one.store.commit(adding(msgspec.structs.replace(message, session_id="ses")))
        reads, stuck = one.store.of(DEFAULT_TENANT), Stuck(one.store._reads.long)
        newest = Page(size=1, newest_first=True)
        large = [
            asyncio.create_task(read)
            for read in (
                reads.message("ses", "large"),
                reads.question("ses", "large"),
                reads.message_of_call("ses", "prt_call"),
                reads.messages("ses", newest),
                reads.display("ses", newest),
                reads.display("ses", Page(max_bytes=10_000)),
            )
        ]
        assert (await reads.message("ses", "small")).message_id == "small"
        assert len((await reads.messages("ses", Page(size=1))).messages) == 1
        await reads.alternatives("ses", AlternativesOf("small"), Page(size=1))
        assert not any(task.done() for task in large)
        stuck.release()
        message, question, calling, page, shown, whole = await asyncio.gather(*large)
        assert question.message == message
        assert calling.message_id == "calling"
        assert message.message_id == page.messages[0].message_id == "large"
        assert min(len(shown.frames), len(whole.frames)) > 5000
        await stuck.task


async def test_large_pages_of_what_is_open_are_read_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small lists of calls, permission requests and questions of another session do not wait for them."""
    monkeypatch.setattr(pages, "HEAVY_BYTES", 2000)
    async with opened_store(tmp_path) as one:
        for name, text in (("small", ""), ("large", "x" * 5000)):
            await one.store.commit(creating(name))
            call = ToolUse(name="look", input_json=f'"{text}"', started_at=NOW)
            changes = (
                PutTurn(make_turn(f"trn_{name}", name)),
                PutPermission(make_permission(f"per_{name}", name, metadata_json=f'"{text}"')),
                PutQuestion(make_question(f"que_{name}", name, prompt=text)),
            )
            message = make_answer(f"msg_{name}", call, session_id=name, turn_id=f"trn_{name}")
            await one.store.commit(adding(message, NOW, (), *changes))
        reads, stuck, page = one.store.of(DEFAULT_TENANT), Stuck(one.store._reads.long), Page(size=9)

        def of(session_id: str) -> tuple[Awaitable[object], ...]:
            calls = reads.open_calls(session_id, frozenset(), page)
            return calls, reads.open_permissions(session_id, page), reads.open_questions(session_id, page)

        large = [asyncio.ensure_future(read) for read in of("large")]
        for read in of("small"):
            await read
        assert not any(task.done() for task in large)
        stuck.release()
        calls, permissions, questions = await asyncio.gather(*large)
        assert [len(found) for found in (calls.calls, permissions.permissions, questions.questions)] == [1, 1, 1]
        await stuck.task


async def test_large_events_are_read_beside_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page ends before one; nothing is left out, and the events of others do not wait for it."""
    monkeypatch.setattr(pages, "HEAVY_BYTES", 1000)
    async with opened_store(tmp_path) as one:
        for session in ("ses", "other"):
            await one.store.commit(creating(session))
        for name, text in (("first", "a"), ("large", "x" * 5000), ("last", "b")):
            await one.store.commit(adding(make_message(name, text, session_id="ses")))
        reads, stuck = one.store.of(DEFAULT_TENANT), Stuck(one.store._reads.long)
        for read in (partial(reads.session_events, "ses", kinds=None), partial(reads.log_events, kinds=None)):
            before = await read(after=0)
            assert 0 < sum(map(len, before.frames)) < 5000
            waiting = asyncio.create_task(read(after=before.last))
            assert (await reads.session_events("other", 0, None)).frames
            assert not waiting.done()
            stuck.release()
            large = await waiting
            behind = await read(after=large.last)
            assert max(map(len, large.frames)) > 5000
            assert len(before.frames + large.frames + behind.frames) == (await read(after=0, kinds=frozenset())).last
            await stuck.task
            stuck = Stuck(one.store._reads.long)
        stuck.release()
        await stuck.task
