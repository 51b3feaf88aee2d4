"""Store, writing: units of work are durable, ordered, published, and each has an outcome of its own."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.support.fakes.core import RecordingObserver
from tests.support.fakes.domain_values import (
    NOW,
    adding,
    creating,
    make_answer,
    make_end,
    make_file,
    make_message,
    make_part,
    make_turn,
    put,
)
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.events import QueueChanged, SessionUpdated
from turnwire.domain.conversation.messages import MessageStatus, Text, ToolUse
from turnwire.domain.conversation.turns import QueueEntry, ToolDefinition
from turnwire.domain.errors import (
    RequestIdReused,
    SessionNotFound,
    ShuttingDown,
    StaleVersion,
    StorageError,
    TurnNotFound,
)
from turnwire.domain.principal import BUILT_IN, DEFAULT_TENANT
from turnwire.ports.commit import (
    Change,
    Commit,
    Committed,
    HideMessages,
    MarkArchived,
    NewEvent,
    OrderQueue,
    PutFile,
    PutMessage,
    PutSession,
    PutTurn,
    RecordRequest,
    RemoveMessage,
    RequireHead,
)
from turnwire.ports.pages import Bounds, Page
from turnwire.ports.store import StoredEvent, StoredRequest
from turnwire.storage.sql.writer import PART_BYTES, Other
from turnwire.storage.sqlite.store import SqliteStore, StorageSettings


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """An empty store."""
    async with opened_store(tmp_path) as running:
        yield running


async def _message_ids(opened: OpenedStore, session_id: str = "ses_1") -> list[str]:
    page = await opened.store.of(DEFAULT_TENANT).messages(session_id, Page())
    return [message.message_id for message in page.messages]


async def test_sequences_count_from_one_without_gaps(opened: OpenedStore) -> None:
    """Each commit gets the next sequences of its session, and says where the session stood before."""
    answers = [
        await opened.store.commit(creating("ses_1")),
        await opened.store.commit(creating("ses_2")),
        await opened.store.commit(
            Commit(
                session_id="ses_1",
                at=NOW,
                events=(NewEvent(QueueChanged((QueueEntry("a", "t"),))), NewEvent(QueueChanged(()))),
            )
        ),
        await opened.store.commit(Commit(session_id="ses_1", at=NOW)),
        await opened.store.commit(Commit(session_id="ses_2", at=NOW, events=(NewEvent(QueueChanged(())),))),
    ]
    assert answers == [
        Committed(0, 1),
        Committed(0, 1),
        Committed(1, 3, queue_revision=2),
        Committed(3, 3),
        Committed(1, 2, queue_revision=1),
    ]
    assert opened.sequences() == [("ses_1", 1, 1), ("ses_2", 1, 2), ("ses_1", 2, 3), ("ses_1", 3, 4), ("ses_2", 2, 5)]


async def test_concurrent_commits_are_all_durable_in_call_order(opened: OpenedStore) -> None:
    """A thousand units that wait together take effect in the order of the calls."""
    await opened.store.commit(creating())
    futures = [opened.store.commit(adding(make_message(f"msg_{i}", str(i)))) for i in range(1000)]
    answers = await asyncio.gather(*futures)
    assert answers == [Committed(i + 1, i + 2, {f"msg_{i}": f"msg_{i - 1}"} if i else {}) for i in range(1000)]
    assert await _message_ids(opened) == [f"msg_{i}" for i in range(1000)]
    assert [s.event.sequence for s in opened.published] == list(range(1, 1002))


async def test_a_unit_for_an_unknown_session_fails_alone(opened: OpenedStore) -> None:
    """Its neighbours in the same transaction are stored, without a gap in their sequences."""
    await opened.store.commit(creating())
    answers = await asyncio.gather(
        opened.store.commit(adding(make_message("msg_1", "a"))),
        opened.store.commit(adding(make_message("msg_x", "x", session_id="ses_unknown"))),
        opened.store.commit(adding(make_message("msg_2", "b"))),
        return_exceptions=True,
    )
    after = Committed(2, 3, {"msg_2": "msg_1"})
    assert [answers[0], type(answers[1]), answers[2]] == [Committed(1, 2), SessionNotFound, after]
    assert opened.sequences()[1:] == [("ses_1", 2, 2), ("ses_1", 3, 3)]


async def test_a_request_name_is_recorded_once_even_in_one_transaction(opened: OpenedStore) -> None:
    """The second unit with the same request_id fails as a whole; its message is not there."""
    await opened.store.commit(creating())
    answers = await asyncio.gather(
        opened.store.commit(adding(make_message("msg_1", "a"), NOW, (), RecordRequest(BUILT_IN, "req", "f1", "{}"))),
        opened.store.commit(adding(make_message("msg_2", "b"), NOW, (), RecordRequest(BUILT_IN, "req", "f2", "{}"))),
        opened.store.commit(adding(make_message("msg_3", "c"))),
        return_exceptions=True,
    )
    after = Committed(2, 3, {"msg_3": "msg_1"})
    assert [answers[0], type(answers[1]), answers[2]] == [Committed(1, 2), RequestIdReused, after]
    assert await _message_ids(opened) == ["msg_1", "msg_3"]
    assert await opened.store.request(BUILT_IN, "req") == StoredRequest("f1", "{}", before_sequence=1)


async def test_a_unit_that_cannot_be_encoded_fails_alone(opened: OpenedStore) -> None:
    """A bug in one caller's values takes nothing with it, not even when it has done half of its work."""
    await opened.store.commit(creating())
    unencodable = make_message("msg_x", "\ud800")
    answers = await asyncio.gather(
        opened.store.commit(adding(make_message("msg_1", "a"))),
        opened.store.commit(
            Commit(session_id="ses_1", at=NOW, changes=(put(make_message("msg_half", "h")), put(unencodable)))
        ),
        opened.store.commit(adding(make_message("msg_2", "b"))),
        return_exceptions=True,
    )
    assert [answers[0], isinstance(answers[1], UnicodeEncodeError), answers[2]] == [
        Committed(1, 2),
        True,
        Committed(2, 3, {"msg_2": "msg_1"}),
    ]
    assert await _message_ids(opened) == ["msg_1", "msg_2"]


STATEMENTS: dict[str, tuple[Change, ...]] = {
    "rows alone": (),
    "statements": (HideMessages("msg_2"),),
    "statements before rows": (OrderQueue(("msg_q",)),),
}
"""What a commit does besides, by keys or not."""


@pytest.mark.parametrize("further", STATEMENTS.values(), ids=STATEMENTS)
async def test_a_refused_unit_leaves_nothing_to_those_behind_it(
    opened: OpenedStore, further: tuple[Change, ...]
) -> None:
    """All that it wrote before it was refused is as it was, for the commits of its transaction and for readers."""
    store, notes = opened.store, make_file(b"notes", "notes.txt")
    await store.commit(creating("ses_1"))
    await store.commit(adding(make_message("msg_1", "a")))
    await store.commit(adding(make_message("msg_2", "sail")))
    before = await store.of(DEFAULT_TENANT).session("ses_1"), store.of(DEFAULT_TENANT).account(NOW)
    renamed = msgspec.structs.replace(before[0], title="renamed", revision=2)
    record = RecordRequest(BUILT_IN, "named", "f", "{}")
    changes = (
        *further,
        PutSession(renamed),
        PutFile(notes.sha256, b"notes"),
        put(make_message("msg_2", "changed")),
        put(make_message("msg_3", "b", notes)),
        put(make_message("msg_q", "waits", status=MessageStatus.QUEUED)),
        PutTurn(make_turn("trn_1")),
        record,
        RequireHead(99),
    )
    told = (NewEvent(QueueChanged(())),)
    refused = store.commit(Commit(session_id="ses_1", at=NOW, changes=changes, events=told))
    behind = store.commit(Commit(session_id="ses_1", at=NOW, events=told))
    last = store.commit(adding(make_message("msg_4", "c")))
    with pytest.raises(StaleVersion):
        await refused
    assert await behind == Committed(3, 4, queue_revision=1)
    assert await last == Committed(4, 5, {"msg_4": "msg_2"})
    reads = store.of(DEFAULT_TENANT)
    assert [one.parts for one in await reads.history("ses_1")] == [
        make_message(f"msg_{n}", text).parts for n, text in ((1, "a"), (2, "sail"), (4, "c"))
    ]
    assert (await reads.session("ses_1")).title == before[0].title
    assert await reads.files([notes.sha256]) == {}
    assert (await reads.queue("ses_1", Page())).entries == ()
    assert await store.request(BUILT_IN, "named") is None
    with pytest.raises(TurnNotFound):
        await reads.turn("ses_1", "trn_1")
    again = Commit(session_id="ses_1", at=NOW, changes=changes[len(further) : -1], events=told)
    assert (await store.commit(again)).queue_revision == 2
    assert [entry.message_id for entry in (await reads.queue("ses_1", Page())).entries] == ["msg_q"]
    await store.aclose()
    opened.assert_sound()


async def test_units_of_one_transaction_build_on_each_other(opened: OpenedStore) -> None:
    """Rows that one of them stores can be changed, moved and removed by the next one."""
    store, notes = opened.store, make_file(b"notes", "notes.txt")
    tools = (ToolDefinition("look", "", "{}"),)
    call = make_part(0, ToolUse(name="look", call_id="c", input_json="{}"), part_id="prt_call")
    queued, joined = make_message("msg_q", "waits", status=MessageStatus.QUEUED), make_message("msg_q", "waits")
    file = PutFile(notes.sha256, b"notes")
    commits = (
        creating("ses_1"),
        Commit(session_id="ses_1", at=NOW, changes=(file, put(make_message("msg_1", "a", notes)))),
        Commit(session_id="ses_1", at=NOW, changes=(put(queued), PutTurn(make_turn("trn_1", tools=tools)))),
        Commit(session_id="ses_1", at=NOW, changes=(PutMessage(make_answer("msg_2", call)),)),
        Commit(session_id="ses_1", at=NOW, changes=(put(make_message("msg_1", "b")),)),
        Commit(session_id="ses_1", at=NOW, changes=(put(joined), PutTurn(make_end("trn_1").turn, keeps_settings=True))),
        Commit(session_id="ses_1", at=NOW, changes=(put(make_message("msg_3", "gone")), RemoveMessage("msg_3"))),
        Commit(session_id="ses_1", at=NOW, changes=(HideMessages("msg_q"),)),
        Commit(session_id="ses_1", at=NOW, changes=(put(make_message("msg_4", "c")),)),
    )
    answers = await asyncio.gather(*map(store.commit, commits))
    assert answers[-4].previous_message_ids == {"msg_q": "msg_2"}
    assert answers[-1].previous_message_ids == {"msg_4": "msg_2"}
    reads = store.of(DEFAULT_TENANT)
    assert [one.message_id for one in await reads.history("ses_1")] == ["msg_1", "msg_2", "msg_4"]
    assert (await reads.message("ses_1", "msg_1")).parts == make_message("msg_1", "b").parts
    assert await reads.files([notes.sha256]) == {}
    assert (await reads.turn("ses_1", "trn_1")).tools == tools
    assert (await reads.message_of_call("ses_1", "prt_call")).message_id == "msg_2"
    assert (await reads.queue("ses_1", Page())).entries == ()
    await store.aclose()
    opened.assert_sound()


async def test_events_are_published_in_commit_order_before_the_answer(opened: OpenedStore) -> None:
    """After a commit was awaited, its events and all before them are published."""
    seen: list[int] = []
    futures = []
    for _ in range(20):
        commit = creating(f"ses_{len(futures)}")
        future = opened.store.commit(commit)
        future.add_done_callback(lambda _: seen.append(len(opened.published)))
        futures.append(future)
    await asyncio.gather(*futures)
    assert [s.event.position for s in opened.published] == list(range(1, 21))
    assert all(count >= index + 1 for index, count in enumerate(seen))


async def test_published_frames_are_the_stored_ones(opened: OpenedStore) -> None:
    """The log gives the same bytes as the feed got."""
    await opened.store.commit(creating())
    await opened.store.commit(adding(make_message("msg_1", "a")))
    page = await opened.store.of(DEFAULT_TENANT).session_events("ses_1", 0, None)
    log = await opened.store.of(DEFAULT_TENANT).log_events(0, None)
    frames = tuple(s.frame for s in opened.published)
    assert (page.frames, page.last) == (frames, 2)
    assert (log.frames, log.last) == (frames, 2)
    assert frames == tuple(ProtoCodec().encode_event(s.event) for s in opened.published)


@pytest.mark.sqlite
async def test_sessions_that_nobody_watches_need_no_frames(tmp_path: Path) -> None:
    """The same is stored of their events."""
    published: list[StoredEvent] = []
    settings = StorageSettings(path=tmp_path / "turnwire.db")
    store = await SqliteStore.open(
        settings,
        ProtoCodec(),
        published.extend,
        is_watched=lambda tenant, session: (tenant, session) == (DEFAULT_TENANT, "ses_2"),
    )
    try:
        for session_id in ("ses_1", "ses_2"):
            await store.commit(creating(session_id))
        frames = [ProtoCodec().encode_event(one.event) for one in published]
        assert [one.frame for one in published] == [None, frames[1]]
        assert (await store.of(DEFAULT_TENANT).log_events(0, None)).frames == tuple(frames)
    finally:
        await store.aclose()


async def test_nothing_is_published_of_a_failed_unit(opened: OpenedStore) -> None:
    """Only what is stored is told."""
    with pytest.raises(SessionNotFound):
        await opened.store.commit(adding(make_message("msg_1", "a")))
    assert opened.published == []
    assert await opened.store.of(DEFAULT_TENANT).log_bounds() == Bounds(0, 0)


async def test_positions_are_not_used_up_by_failed_units(opened: OpenedStore) -> None:
    """A unit that is rolled back leaves no gap in the log."""
    await opened.store.commit(creating())
    failing = Commit(session_id="ses_1", at=NOW, changes=(RecordRequest(BUILT_IN, "r", "f", "no json"),), events=())
    with pytest.raises(StorageError):
        await opened.store.commit(msgspec.structs.replace(failing, events=(NewEvent(QueueChanged(())),)))
    await opened.store.commit(adding(make_message("msg_1", "a")))
    assert opened.sequences() == [("ses_1", 1, 1), ("ses_1", 2, 2)]


async def test_a_cancelled_caller_leaves_a_whole_unit_or_nothing(opened: OpenedStore) -> None:
    """Whenever the caller goes, message, request and event are there together or not at all; the next unit goes on."""
    await opened.store.commit(creating())

    async def send(index: int) -> None:
        commit = adding(make_message(f"msg_{index}", "a"), NOW, (), RecordRequest(BUILT_IN, f"req_{index}", "f", "{}"))
        await opened.store.commit(commit)

    for index in range(30):
        task = asyncio.create_task(send(index))
        for _ in range(index % 6):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
    await opened.store.commit(adding(make_message("msg_last", "z")))
    stored = set(await _message_ids(opened))
    requests = {f"msg_{i}" for i in range(30) if await opened.store.request(BUILT_IN, f"req_{i}") is not None}
    told = [s.event.kind.message.message_id for s in opened.published[1:]]
    assert stored == requests | {"msg_last"} == set(told)
    assert [s.event.sequence for s in opened.published] == list(range(1, len(told) + 2))


async def test_waiting_commits_have_an_outcome_when_the_store_closes(opened: OpenedStore) -> None:
    """Closing answers every commit: what was accepted before is stored, what comes after is refused."""
    await opened.store.commit(creating())
    waiting = [opened.store.commit(adding(make_message(f"msg_{i}", "a"))) for i in range(5)]
    await opened.store.aclose()
    answers = [future.result() for future in waiting]
    assert answers == [Committed(i + 1, i + 2, {f"msg_{i}": f"msg_{i - 1}"} if i else {}) for i in range(5)]
    with pytest.raises(ShuttingDown):
        await opened.store.commit(adding(make_message("msg_late", "a")))


async def test_a_stop_stores_no_longer_than_it_has_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that is being stored then is stored; all that wait are refused, in its transaction or not."""
    monkeypatch.setattr("turnwire.storage.sql.writer.BATCH_SECONDS", 0.0)  # a transaction has one unit
    monkeypatch.setattr("turnwire.storage.sql.writer.STOP_SECONDS", 0.0)
    is_begun, may_end = threading.Event(), threading.Event()

    def hold(_db: object, _ledger: object) -> None:
        is_begun.set()
        may_end.wait()

    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
        held = opened.store._writer.carry_out(Other(hold))
        beside = opened.store._writer.carry_out(Other(lambda _db, _ledger: None))
        try:
            await asyncio.to_thread(is_begun.wait)
            behind = opened.store.commit(adding(make_message("msg_behind", "a")))
            opened.store.end_soon()
            with pytest.raises(ShuttingDown):
                await behind
            assert not held.done()
        finally:
            may_end.set()
        await held
        late = opened.store.commit(adding(make_message("msg_late", "a")))
        outcomes = await asyncio.gather(beside, late, return_exceptions=True)
        assert [type(one) for one in outcomes] == [ShuttingDown, ShuttingDown]
    async with opened_store(tmp_path) as opened:
        assert await _message_ids(opened) == []


async def test_reading_a_closed_store_is_a_storage_error(opened: OpenedStore) -> None:
    """A call that comes too late gets an error of ours; closing again does nothing."""
    await opened.store.aclose()
    await opened.store.aclose()
    with pytest.raises(StorageError):
        await opened.store.of(DEFAULT_TENANT).sessions(Page())


async def test_each_transaction_is_reported(tmp_path: Path) -> None:
    """With the units that waited together, and how many of them failed."""
    observer = RecordingObserver()
    async with opened_store(tmp_path, observer=observer) as opened:
        await opened.store.commit(creating())
        units = [adding(make_message("msg_1", "a")), adding(make_message("msg_2", "b", session_id="ses_none"))]
        await asyncio.gather(*map(opened.store.commit, units), return_exceptions=True)
    assert [(batch.commits, batch.failed) for batch in observer.batches] == [(1, 0), (2, 1)]
    assert all(batch.longest_seconds >= batch.seconds > 0 for batch in observer.batches)


@pytest.mark.parametrize("is_refused", [False, True])
async def test_large_commits_do_not_share_one_transaction(
    opened: OpenedStore, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    """A transaction holds a bounded number of bytes; what waits behind it keeps its order and its outcome."""
    monkeypatch.setattr("turnwire.storage.sql.writer.MAX_BATCH_BYTES", 100_000)
    await opened.store.commit(creating("ses_1"))
    ended = list[int]()
    opened.store._writer._observer = type("Ends", (), {"batch_ended": lambda _, end: ended.append(end.commits)})()
    texts = [f"{n}" * 60_000 for n in range(1, 6)]
    large = [opened.store.commit(adding(make_message(f"msg_{n}", text))) for n, text in enumerate(texts)]
    refused = [opened.store.commit(adding(make_message(session_id="ses_none")))] if is_refused else []
    outcomes = await asyncio.gather(*large)
    assert [one.sequence for one in outcomes] == [2, 3, 4, 5, 6]
    assert await _message_ids(opened) == [f"msg_{n}" for n in range(5)]
    assert [type(one).__name__ for one in await asyncio.gather(*refused, return_exceptions=True)] == [
        "SessionNotFound" for _ in refused
    ]
    assert len(ended) >= 3
    assert max(ended) <= 2 + is_refused
    assert sum(ended) == 5 + is_refused


async def test_commits_are_stored_in_their_order(opened: OpenedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large and small ones, also when each transaction has one alone."""
    monkeypatch.setattr("turnwire.storage.sql.writer.BATCH_SECONDS", 0.0)
    for number in range(9):
        await opened.store.commit(creating(f"ses_{number}"))
    told = list[str]()

    def begin(session_id: str, name: str, parts: int) -> asyncio.Future[Committed]:
        message = make_message(f"msg_{session_id}_{name}", *("a" * parts), session_id=session_id)
        future = opened.store.commit(adding(message))
        future.add_done_callback(lambda _: told.append(f"{session_id} {name}"))
        return future

    wanted = [(f"ses_{number}", name) for number in range(8) for name in "ab"]
    large = [begin(*one, parts=100) for one in wanted]
    small = [begin("ses_8", "a", parts=1), begin("ses_0", "c", parts=1)]
    await asyncio.gather(*large, *small)
    assert told == [f"{session_id} {name}" for session_id, name in (*wanted, ("ses_8", "a"), ("ses_0", "c"))]


async def test_commits_of_many_parts_do_not_share_one_transaction(
    opened: OpenedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part costs a statement, however short its text is."""
    monkeypatch.setattr("turnwire.storage.sql.writer.MAX_BATCH_BYTES", 50 * PART_BYTES)
    await opened.store.commit(creating("ses_1"))
    ended = list[int]()
    opened.store._writer._observer = type("Ends", (), {"batch_ended": lambda _, end: ended.append(end.commits)})()
    parts = [[make_part(index, Text("a"), part_id=f"prt_{n}_{index}") for index in range(40)] for n in range(5)]
    changes = [PutMessage(make_answer(f"msg_{n}", *some)) for n, some in enumerate(parts)]
    await asyncio.gather(*(opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(one,))) for one in changes))
    assert max(ended) <= 2
    assert sum(ended) == 5


async def test_an_id_that_cannot_be_written_fails_alone(opened: OpenedStore) -> None:
    """Those beside it in a transaction are stored."""
    await opened.store.commit(creating())
    adds = [adding(make_message(name, "text")) for name in ("msg_1", "msg_\ud800", "msg_3")]
    done = await asyncio.gather(*map(opened.store.commit, adds), return_exceptions=True)
    assert [isinstance(one, Exception) for one in done] == [False, True, False]


async def test_the_later_of_two_marks_tells_which_turn_runs(opened: OpenedStore) -> None:
    """As of a message that is appended and one that is sent, which share a commit, to a session that was archived."""
    await opened.store.commit(creating())
    for marks in ((MarkArchived(True),), (MarkArchived(False), MarkArchived(False, "trn_1"))):
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=marks))
    kind = opened.published[-1].event.kind
    assert isinstance(kind, SessionUpdated)
    assert kind.view.active_turn_id == "trn_1"
