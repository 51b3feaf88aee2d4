"""Store, after a change of the codec: display forms are made anew while it runs, older events are dropped."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.support.fakes.domain_values import added, adding, creating, later, make_answer, make_message, removing
from tests.support.fakes.opened_store import OpenedStore, displays_in, opened_store
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType, ToolResult, ToolUse
from turnwire.domain.errors import StorageError
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.codec import DisplayForm
from turnwire.ports.commit import Commit, PutMessage
from turnwire.ports.pages import Bounds, DisplayPage, Page
from turnwire.storage.sqlite import renewal, steps
from turnwire.storage.sqlite.connection import run
from turnwire.storage.sqlite.log.counted_steps import CountedSteps

NEVER = 1e6
"""Seconds."""


class NextCodec(ProtoCodec):
    """The codec after a change: display forms name their version."""

    version = ProtoCodec.version + 1

    def encode_display(self, message: Message) -> bytes:
        """Returns the display form with the version as the sender's name."""
        return super().encode_display(msgspec.structs.replace(message, sender_name=f"version {self.version}"))

    def display_form(self, message: Message, before: Mapping[int, int] = {}) -> DisplayForm:
        """Returns the same in pieces."""
        return super().display_form(msgspec.structs.replace(message, sender_name=f"version {self.version}"), before)


OLD, NEW = ProtoCodec(), NextCodec()


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Nothing is made anew until a test sets the pause."""

    def pause(seconds: float) -> None:
        monkeypatch.setattr(renewal, "PAUSE_SECONDS", seconds)

    monkeypatch.setattr(renewal, "STEP_MESSAGES", 2)
    pause(NEVER)
    return pause


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """The folder of a database of the older codec: two sessions, of which the first has seven messages, one waiting."""
    call = ToolUse(name="look", call_id="c1", input_json="{}")
    async with opened_store(tmp_path, codec=OLD) as opened:
        await opened.store.commit(creating())
        for number in range(4):
            await opened.store.commit(adding(make_message(f"msg_{number}", f"text {number}")))
        await opened.store.commit(adding(make_answer("msg_4", "text", call)))
        result = ToolResult(call_id="c1", output="found")
        await opened.store.commit(
            adding(make_message("msg_5", result, type=MessageType.TOOL_RESULT, answers_message_id="msg_4"))
        )
        await opened.store.commit(adding(make_message("msg_6", "waits", status=MessageStatus.QUEUED)))
        await opened.store.commit(creating("ses_2"))
        await opened.store.commit(adding(make_message("msg_7", "other", session_id="ses_2")))
    return tmp_path


def _versions(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT message_id, display_version FROM messages"))


async def _finished(opened: OpenedStore) -> None:
    while not opened.store._reads.renewal.is_done:
        await asyncio.sleep(0.001)


async def _made(opened: OpenedStore, codec: ProtoCodec) -> bytes:
    """Returns what the codec makes of the first session."""
    return b"".join(
        map(codec.encode_display, (await opened.store.of(DEFAULT_TENANT).messages("ses_1", Page())).messages)
    )


async def test_reading_shows_the_new_forms_at_once(folder: Path) -> None:
    """Whole, by pages and newest first; reading itself writes nothing."""
    async with opened_store(folder, codec=NEW) as opened:
        made = await _made(opened, NEW)
        assert made != await _made(opened, OLD)
        assert (await opened.store.of(DEFAULT_TENANT).display("ses_1", Page())).frames == made
        frames, token = b"", ""
        while token or not frames:
            page = await opened.store.of(DEFAULT_TENANT).display("ses_1", Page(size=2, token=token))
            frames, token = frames + page.frames, page.next_token
        assert frames == made
        newest = await opened.store.of(DEFAULT_TENANT).display("ses_1", Page(size=1, newest_first=True))
        assert [(d.message_id, d.sender_name) for d in displays_in(newest.frames)] == [
            ("msg_6", f"version {NEW.version}")
        ]
        assert set(_versions(opened.path).values()) == {OLD.version}


async def test_limits_count_the_new_forms(folder: Path) -> None:
    """An answer that the older forms would fit into leaves out what the new ones have no room for."""
    async with opened_store(folder, codec=NEW) as opened:
        made = await _made(opened, NEW)
        whole = await opened.store.of(DEFAULT_TENANT).display("ses_1", Page(max_bytes=len(made)))
        assert whole == DisplayPage(made, "")
        cut = await opened.store.of(DEFAULT_TENANT).display("ses_1", Page(max_bytes=len(made) - 1))
        assert cut.truncated
        assert [d.message_id for d in displays_in(cut.frames)] == ["msg_1", "msg_2", "msg_3", "msg_4", "msg_6"]


async def test_all_forms_are_made_anew_without_a_commit(folder: Path, unhurried: Callable[[float], None]) -> None:
    """What is stored becomes what the codec makes; no event, no new time, no new sequence."""
    unhurried(0)
    async with opened_store(folder, codec=NEW) as opened:
        before = await opened.store.of(DEFAULT_TENANT).sessions(Page())
        await _finished(opened)
        assert set(_versions(opened.path).values()) == {NEW.version}
        assert (await opened.store.of(DEFAULT_TENANT).display("ses_1", Page())).frames == await _made(opened, NEW)
        assert await opened.store.of(DEFAULT_TENANT).sessions(Page()) == before
        assert opened.published == []
    async with opened_store(folder, codec=NEW) as opened:
        assert opened.store._reads.renewal.is_done


async def test_a_crash_between_steps_loses_nothing(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, unhurried: Callable[[float], None]
) -> None:
    """Some forms are new then and some old; the next start shows all of them new, and goes on."""
    unhurried(0)
    crashed = tmp_path_factory.mktemp("crashed")
    async with opened_store(folder, codec=NEW) as opened:
        while len(set(_versions(opened.path).values())) == 1:
            await asyncio.sleep(0)
        await opened.store._reads.renewal.aclose()
        await opened.store.commit(adding(make_message("msg_8", "later")))  # a step before it is over
        unhurried(NEVER)
        for file in (opened.path, opened.path.with_name("turnwire.db-wal")):
            shutil.copy(file, crashed)
    assert set(_versions(crashed / "turnwire.db").values()) == {OLD.version, NEW.version}
    async with opened_store(crashed, codec=NEW) as opened:
        assert (await opened.store.of(DEFAULT_TENANT).display("ses_1", Page())).frames == await _made(opened, NEW)
    unhurried(0)
    async with opened_store(crashed, codec=NEW) as opened:
        await _finished(opened)
        assert set(_versions(opened.path).values()) == {NEW.version}
        assert (await opened.store.of(DEFAULT_TENANT).display("ses_1", Page())).frames == await _made(opened, NEW)


async def test_changes_meanwhile_win(folder: Path, unhurried: Callable[[float], None]) -> None:
    """Messages that are written, start or go while others are made anew are as their commits left them."""
    unhurried(0)
    async with opened_store(folder, codec=NEW) as opened:
        old = {
            message.message_id: message
            for message in (await opened.store.of(DEFAULT_TENANT).messages("ses_1", Page())).messages
        }
        for second in range(1, 20):
            at = later(second)
            for message_id in ("msg_0", "msg_3"):
                message = msgspec.structs.replace(old[message_id], sender=f"sender {second}", updated_at=at)
                await opened.store.commit(
                    Commit(session_id="ses_1", at=at, changes=(PutMessage(message, ()),), events=(added(message),))
                )
            if second == 2:
                started = msgspec.structs.replace(old["msg_6"], status=MessageStatus.COMPLETE)
                await opened.store.commit(Commit(session_id="ses_1", at=at, changes=(PutMessage(started, ()),)))
                await opened.store.commit(removing("ses_2"))
            shown = displays_in((await opened.store.of(DEFAULT_TENANT).display("ses_1", Page())).frames)
            assert {d.sender_name for d in shown} == {f"version {NEW.version}"}
            assert {d.sender for d in shown if d.message_id in ("msg_0", "msg_3")} == {f"sender {second}"}
        await _finished(opened)
        assert (await opened.store.of(DEFAULT_TENANT).display("ses_1", Page())).frames == await _made(opened, NEW)
        assert set(_versions(opened.path)) == {f"msg_{number}" for number in range(7)}


async def test_a_step_that_fails_is_repeated(
    folder: Path, monkeypatch: pytest.MonkeyPatch, unhurried: Callable[[float], None]
) -> None:
    """While nothing can be written, reading shows the new forms; then they are stored."""
    failed = asyncio.Event()
    carry_out = CountedSteps._carry_out

    async def watched(work: CountedSteps) -> bool:
        try:
            return await carry_out(work)
        except StorageError:
            failed.set()
            raise

    monkeypatch.setattr(CountedSteps, "_carry_out", watched)
    monkeypatch.setattr(steps, "RETRY_SECONDS", 0)
    async with opened_store(folder, codec=NEW) as opened:
        unhurried(0)
        await opened.store._reads.renewal.aclose()
        await run(opened.store._writing, lambda db: db.execute("PRAGMA query_only=ON").close())
        opened.store._reads.renewal._pause_seconds = 0
        opened.store._reads.renewal.start()
        await failed.wait()
        with pytest.raises(StorageError):
            await opened.store.commit(creating("ses_3"))
        assert (await opened.store.of(DEFAULT_TENANT).display("ses_1", Page())).frames == await _made(opened, NEW)
        assert set(_versions(opened.path).values()) == {OLD.version}
        await run(opened.store._writing, lambda db: db.execute("PRAGMA query_only=OFF").close())
        await _finished(opened)
        assert set(_versions(opened.path).values()) == {NEW.version}


async def test_events_of_an_older_codec_are_dropped_once(folder: Path) -> None:
    """Sequences and positions go on, what is told from then on is kept."""
    async with opened_store(folder, codec=NEW) as opened:
        head = (await opened.store.of(DEFAULT_TENANT).session_bounds("ses_1")).head
        last = (await opened.store.of(DEFAULT_TENANT).log_bounds()).head
        assert head >= 8
        assert await opened.store.of(DEFAULT_TENANT).session_bounds("ses_1") == Bounds(head, head)
        assert await opened.store.of(DEFAULT_TENANT).log_bounds() == Bounds(last, last)
        assert (await opened.store.of(DEFAULT_TENANT).session_events("ses_1", 0, None)).frames == ()
        committed = await opened.store.commit(adding(make_message("msg_8", "a")))
        assert (committed.before_sequence, committed.sequence) == (head, head + 1)
        assert opened.sequences() == [("ses_1", head + 1, last + 1)]
    async with opened_store(folder, codec=NEW) as opened:
        assert await opened.store.of(DEFAULT_TENANT).session_bounds("ses_1") == Bounds(head, head + 1)
        assert len((await opened.store.of(DEFAULT_TENANT).log_events(last, None)).frames) == 1


async def test_an_older_server_keeps_what_a_newer_one_made(folder: Path) -> None:
    """Frames and events stay, as readers skip what they do not know; a newer server then drops the older one's."""
    async with opened_store(folder, codec=NEW) as opened:
        await opened.store.commit(adding(make_message("msg_8", "a")))
    async with opened_store(folder, codec=OLD) as opened:
        kept = (await opened.store.of(DEFAULT_TENANT).session_events("ses_1", 8, None)).frames
        assert len(kept) == 1
        await opened.store.commit(adding(make_message("msg_9", "b")))
        assert len((await opened.store.of(DEFAULT_TENANT).session_events("ses_1", 8, None)).frames) == 2
    async with opened_store(folder, codec=NEW) as opened:
        assert (await opened.store.of(DEFAULT_TENANT).session_events("ses_1", 0, None)).frames == ()
        assert (await opened.store.of(DEFAULT_TENANT).display("ses_1", Page())).frames == await _made(opened, NEW)


async def test_a_start_reads_no_messages_and_a_step_a_few(folder: Path) -> None:
    """A large database starts as quickly as a small one: what is left to renew is known by one number."""
    async with opened_store(folder, codec=OLD) as opened:
        statements: list[str] = []
        with closing(sqlite3.connect(opened.path, isolation_level=None)) as db:
            db.set_trace_callback(statements.append)
            renewal.adopt_codec(db, NEW.version)
            db.set_trace_callback(None)
            plans = [
                " ".join(row[-1] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}"))
                for statement in statements
                if "FROM messages" in statement or "FROM events" in statement
            ]
            assert plans
            assert not any(f"SCAN {table}" in plan for plan in plans for table in ("messages", "events", "parts"))
            for below in (7, 5, 3, 1):
                assert db.execute("SELECT below FROM renewal_backlog").fetchone() == (below + 2,)
                renewal.renew_some(db, NEW, [])


async def test_the_same_version_changes_nothing(folder: Path) -> None:
    """Events stay, and nothing is made anew."""
    async with opened_store(folder, codec=OLD) as opened:
        assert opened.store._reads.renewal.is_done
        assert (await opened.store.of(DEFAULT_TENANT).session_bounds("ses_1")).earliest == 0
        assert len((await opened.store.of(DEFAULT_TENANT).session_events("ses_1", 0, None)).frames) == 8
