"""Store, writing: units of work are durable, ordered, published, and each has an outcome of its own."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fakes.domain_values import (
    NOW,
    added,
    adding,
    creating,
    later,
    make_answer,
    make_message,
    make_session,
    make_turn,
    open_part,
    put,
    removing,
)
from tests.support.fakes.opened_store import OpenedStore, displays_in, events_in, kinds_in, opened_store
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.events import QueueChanged, SessionUpdated, SessionView
from turnwire.domain.conversation.messages import (
    Failure,
    File,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRun,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.errors import MessageNotFound, SessionNotFound, ShuttingDown, StorageError
from turnwire.domain.money import Usage
from turnwire.ports.commit import (
    Commit,
    Committed,
    NewEvent,
    PutFile,
    PutMessage,
    PutSession,
    PutTurn,
    RecordRequest,
    RemoveMessage,
)
from turnwire.ports.store import Bounds, Page, StoredRequest


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """An empty store."""
    async with opened_store(tmp_path) as running:
        yield running


def _file(content: bytes) -> tuple[PutFile, File]:
    sha256 = hashlib.sha256(content).hexdigest()
    return PutFile(sha256, content), File(sha256=sha256, size_bytes=len(content), mime="text/plain", filename="a.txt")


async def _message_ids(opened: OpenedStore, session_id: str = "ses_1") -> list[str]:
    page = await opened.store.messages(session_id, Page())
    return [message.message_id for message in page.messages]


async def test_sequences_count_from_one_without_gaps(opened: OpenedStore) -> None:
    """Each commit gets the next sequences of its session, and says where the session stood before."""
    answers = [
        await opened.store.commit(creating("ses_1")),
        await opened.store.commit(creating("ses_2")),
        await opened.store.commit(
            Commit(session_id="ses_1", at=NOW, events=(NewEvent(QueueChanged(("a",))), NewEvent(QueueChanged(()))))
        ),
        await opened.store.commit(Commit(session_id="ses_1", at=NOW)),
        await opened.store.commit(Commit(session_id="ses_2", at=NOW, events=(NewEvent(QueueChanged(())),))),
    ]
    assert answers == [Committed(0, 1), Committed(0, 1), Committed(1, 3), Committed(3, 3), Committed(1, 2)]
    assert opened.sequences() == [("ses_1", 1, 1), ("ses_2", 1, 2), ("ses_1", 2, 3), ("ses_1", 3, 4), ("ses_2", 2, 5)]


async def test_concurrent_commits_are_all_durable_in_call_order(opened: OpenedStore) -> None:
    """A thousand units that wait together take effect in the order of the calls."""
    await opened.store.commit(creating())
    futures = [opened.store.commit(adding(make_message(f"msg_{i}", str(i)))) for i in range(1000)]
    answers = await asyncio.gather(*futures)
    assert answers == [Committed(i + 1, i + 2) for i in range(1000)]
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
    assert [answers[0], type(answers[1]), answers[2]] == [Committed(1, 2), SessionNotFound, Committed(2, 3)]
    assert opened.sequences()[1:] == [("ses_1", 2, 2), ("ses_1", 3, 3)]


async def test_a_request_name_is_recorded_once_even_in_one_transaction(opened: OpenedStore) -> None:
    """The second unit with the same request_id fails as a whole; its message is not there."""
    await opened.store.commit(creating())
    answers = await asyncio.gather(
        opened.store.commit(adding(make_message("msg_1", "a"), NOW, (), RecordRequest("req", "f1", "{}"))),
        opened.store.commit(adding(make_message("msg_2", "b"), NOW, (), RecordRequest("req", "f2", "{}"))),
        opened.store.commit(adding(make_message("msg_3", "c"))),
        return_exceptions=True,
    )
    assert [answers[0], type(answers[1]), answers[2]] == [Committed(1, 2), StorageError, Committed(2, 3)]
    assert await _message_ids(opened) == ["msg_1", "msg_3"]
    assert await opened.store.request("req") == StoredRequest("f1", "{}", before_sequence=1)


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
        Committed(2, 3),
    ]
    assert await _message_ids(opened) == ["msg_1", "msg_2"]


async def test_events_are_published_in_commit_order_before_the_answer(opened: OpenedStore) -> None:
    """Whoever awaited a commit finds its events, and all before them, published."""
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
    page = await opened.store.session_events("ses_1", 0, None)
    log = await opened.store.log_events(0, None)
    frames = tuple(s.frame for s in opened.published)
    assert (page.frames, page.last) == (frames, 2)
    assert (log.frames, log.last) == (frames, 2)
    assert frames == tuple(ProtoCodec().encode_event(s.event) for s in opened.published)


async def test_nothing_is_published_of_a_failed_unit(opened: OpenedStore) -> None:
    """Only what is stored is told."""
    with pytest.raises(SessionNotFound):
        await opened.store.commit(adding(make_message("msg_1", "a")))
    assert opened.published == []
    assert await opened.store.log_bounds() == Bounds(0, 0)


async def test_positions_are_not_used_up_by_failed_units(opened: OpenedStore) -> None:
    """A unit that is rolled back leaves no gap in the log."""
    await opened.store.commit(creating())
    failing = Commit(session_id="ses_1", at=NOW, changes=(RecordRequest("r", "f", "no json"),), events=())
    with pytest.raises(StorageError):
        await opened.store.commit(msgspec.structs.replace(failing, events=(NewEvent(QueueChanged(())),)))
    await opened.store.commit(adding(make_message("msg_1", "a")))
    assert opened.sequences() == [("ses_1", 1, 1), ("ses_1", 2, 2)]


async def test_queued_messages_stand_last_until_they_start(opened: OpenedStore) -> None:
    """A queued message is behind all others; started, it takes the last place among those."""
    queued = [make_message(f"msg_q{i}", "q", status=MessageStatus.QUEUED) for i in (1, 2)]
    await opened.store.commit(creating())
    await opened.store.commit(adding(queued[0]))
    await opened.store.commit(adding(queued[1]))
    await opened.store.commit(adding(make_message("msg_1", "a")))
    assert await _message_ids(opened) == ["msg_1", "msg_q1", "msg_q2"]
    started = msgspec.structs.replace(queued[1], status=MessageStatus.COMPLETE)
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutMessage(started, ()),)))
    await opened.store.commit(adding(make_message("msg_2", "b")))
    assert await _message_ids(opened) == ["msg_1", "msg_q2", "msg_2", "msg_q1"]
    assert await opened.store.message("ses_1", "msg_q2") == started
    history = await opened.store.history("ses_1")
    assert [message.message_id for message in history] == ["msg_1", "msg_q2", "msg_2"]


async def test_only_the_named_parts_are_written(opened: OpenedStore) -> None:
    """A growing message is written part by part; the others stay as they are stored."""
    await opened.store.commit(creating())
    first = make_answer("msg_1", "a", open_part(1, Text("b")), status=MessageStatus.STREAMING)
    await opened.store.commit(adding(first))
    grown = msgspec.structs.replace(first, parts=(first.parts[0], open_part(1, Text("bc"))), updated_at=later(1))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutMessage(grown, (1,)),)))
    assert await opened.store.message("ses_1", "msg_1") == grown


async def test_a_message_id_belongs_to_one_session(opened: OpenedStore) -> None:
    """Another session cannot overwrite a message."""
    await opened.store.commit(creating("ses_1"))
    await opened.store.commit(creating("ses_2"))
    mine = make_message("msg_1", "mine")
    await opened.store.commit(adding(mine))
    with pytest.raises(StorageError):
        await opened.store.commit(adding(make_message("msg_1", "theirs", session_id="ses_2")))
    assert await opened.store.message("ses_1", "msg_1") == mine
    with pytest.raises(MessageNotFound):
        await opened.store.message("ses_2", "msg_1")


async def test_removed_messages_are_gone_with_their_parts(opened: OpenedStore) -> None:
    """Removing is idempotent and does not touch another session's message of that id."""
    await opened.store.commit(creating("ses_1"))
    await opened.store.commit(creating("ses_2"))
    await opened.store.commit(adding(make_message("msg_1", "a")))
    await opened.store.commit(Commit(session_id="ses_2", at=NOW, changes=(RemoveMessage("msg_1"),)))
    assert await _message_ids(opened) == ["msg_1"]
    for _ in range(2):
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(RemoveMessage("msg_1"),)))
    assert await _message_ids(opened) == []
    await opened.store.commit(adding(again := make_message("msg_1", "again")))
    assert await opened.store.message("ses_1", "msg_1") == again


async def test_sessions_are_replaced_and_keep_their_head(opened: OpenedStore) -> None:
    """A changed session is stored with its revision; its head is the store's, whatever is written."""
    await opened.store.commit(creating())
    changed = make_session(title="new", revision=2, head_sequence=77)
    event = NewEvent(SessionUpdated(SessionView(changed)))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutSession(changed),), events=(event,)))
    assert await opened.store.session("ses_1") == msgspec.structs.replace(changed, head_sequence=2)


async def test_a_removed_session_is_not_made_again_by_a_late_change(opened: OpenedStore) -> None:
    """A change of settings that meets the removal finds no session."""
    await opened.store.commit(creating())
    await opened.store.commit(removing())
    late = Commit(session_id="ses_1", at=NOW, changes=(PutSession(make_session(revision=2)),))
    with pytest.raises(SessionNotFound):
        await opened.store.commit(late)


async def test_unfinished_turns_come_in_the_order_of_acceptance(opened: OpenedStore) -> None:
    """Ended turns are not among them."""
    await opened.store.commit(creating("ses_1"))
    await opened.store.commit(creating("ses_2"))
    turns = [make_turn("trn_b"), make_turn("trn_a", "ses_2"), make_turn("trn_c", status=TurnStatus.QUEUED)]
    for turn in turns:
        await opened.store.commit(Commit(session_id=turn.session_id, at=NOW, changes=(PutTurn(turn),)))
    over = msgspec.structs.replace(turns[0], status=TurnStatus.ENDED, finish_reason=FinishReason.STOP)
    assert await opened.store.unfinished_turns() == tuple(turns)
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutTurn(over),)))
    assert await opened.store.unfinished_turns() == tuple(turns[1:])


async def test_named_requests_live_as_long_as_their_session(opened: OpenedStore) -> None:
    """The answer is kept with the head before it, and goes with the session."""
    await opened.store.commit(creating())
    assert await opened.store.request("req") is None
    await opened.store.commit(adding(make_message("msg_1", "a"), NOW, (), RecordRequest("req", "f", '{"a":1}')))
    assert await opened.store.request("req") == StoredRequest("f", '{"a":1}', before_sequence=1)
    await opened.store.commit(removing())
    assert await opened.store.request("req") is None


async def test_files_are_stored_once_and_go_with_the_last_session(opened: OpenedStore) -> None:
    """Two sessions share the bytes; they stay until neither is left."""
    change, reference = _file(b"hello")
    for session_id in ("ses_1", "ses_2"):
        await opened.store.commit(creating(session_id))
        message = make_message(f"msg_{session_id}", reference, session_id=session_id)
        await opened.store.commit(adding(message, NOW, (change,)))
    assert await opened.store.files([reference.sha256, "0" * 64]) == {reference.sha256: b"hello"}
    await opened.store.commit(removing("ses_1"))
    assert await opened.store.files([reference.sha256]) == {reference.sha256: b"hello"}
    await opened.store.commit(removing("ses_2"))
    assert await opened.store.files([reference.sha256]) == {}


async def test_files_of_a_removed_message_go_too(opened: OpenedStore) -> None:
    """A queued message that is dropped leaves no bytes behind, at the latest when its session goes."""
    change, reference = _file(b"dropped")
    queued = make_message("msg_1", reference, status=MessageStatus.QUEUED)
    await opened.store.commit(creating())
    await opened.store.commit(adding(queued, NOW, (change,)))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(RemoveMessage("msg_1"),)))
    await opened.store.commit(removing())
    assert await opened.store.files([reference.sha256]) == {}


async def test_a_message_needs_its_files(opened: OpenedStore) -> None:
    """A reference to bytes that are not stored is refused as a whole."""
    await opened.store.commit(creating())
    _, reference = _file(b"missing")
    with pytest.raises(StorageError):
        await opened.store.commit(adding(make_message("msg_1", reference)))
    assert await _message_ids(opened) == []


async def test_a_removed_session_keeps_only_its_last_event(opened: OpenedStore) -> None:
    """All of it goes: messages, turns, requests, events; who watches everything still hears of the end."""
    await opened.store.commit(creating("ses_2"))
    await opened.store.commit(creating("ses_1"))
    await opened.store.commit(adding(make_message("msg_1", "a"), NOW, (), PutTurn(make_turn())))
    assert await opened.store.commit(removing()) == Committed(2, 3)
    for read in (
        opened.store.session("ses_1"),
        opened.store.message("ses_1", "msg_1"),
        opened.store.messages("ses_1", Page()),
        opened.store.history("ses_1"),
        opened.store.display("ses_1", Page()),
        opened.store.session_bounds("ses_1"),
    ):
        with pytest.raises(SessionNotFound):
            await read
    assert await opened.store.turn_messages("trn_1") == ()
    assert await opened.store.unfinished_turns() == ()
    page = await opened.store.session_events("ses_1", 0, None)
    assert [(e.sequence, e.WhichOneof("kind")) for e in events_in(page.frames)] == [(3, "session_deleted")]
    log = await opened.store.log_events(0, None)
    assert kinds_in(log.frames) == ["session_created", "session_deleted"]


async def test_a_cancelled_caller_leaves_a_whole_unit_or_nothing(opened: OpenedStore) -> None:
    """Whenever the caller goes, message, request and event are there together or not at all; the next unit goes on."""
    await opened.store.commit(creating())

    async def send(index: int) -> None:
        commit = adding(make_message(f"msg_{index}", "a"), NOW, (), RecordRequest(f"req_{index}", "f", "{}"))
        await opened.store.commit(commit)

    for index in range(30):
        task = asyncio.create_task(send(index))
        for _ in range(index % 6):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
    await opened.store.commit(adding(make_message("msg_last", "z")))
    stored = set(await _message_ids(opened))
    requests = {f"msg_{i}" for i in range(30) if await opened.store.request(f"req_{i}") is not None}
    told = [s.event.kind.message.message_id for s in opened.published[1:]]
    assert stored == requests | {"msg_last"} == set(told)
    assert [s.event.sequence for s in opened.published] == list(range(1, len(told) + 2))


async def test_waiting_commits_have_an_outcome_when_the_store_closes(opened: OpenedStore) -> None:
    """Closing answers every commit: what was accepted before is stored, what comes after is refused."""
    await opened.store.commit(creating())
    waiting = [opened.store.commit(adding(make_message(f"msg_{i}", "a"))) for i in range(5)]
    await opened.store.aclose()
    assert [future.result() for future in waiting] == [Committed(i + 1, i + 2) for i in range(5)]
    with pytest.raises(ShuttingDown):
        await opened.store.commit(adding(make_message("msg_late", "a")))


async def test_reading_a_closed_store_is_a_storage_error(opened: OpenedStore) -> None:
    """A call that comes too late gets an error of ours; closing again does nothing."""
    await opened.store.aclose()
    await opened.store.aclose()
    with pytest.raises(StorageError):
        await opened.store.sessions(Page())


_texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
_counts = st.none() | st.integers(0, 2**40)
_contents = st.one_of(
    st.builds(Text, _texts),
    st.builds(Reasoning, _texts),
    st.builds(Refusal, _texts),
    st.builds(ToolResult, call_id=_texts, output=_texts, is_error=st.booleans()),
    st.builds(ProviderContent, _texts),
    st.builds(
        ToolUse,
        name=_texts,
        call_id=_texts,
        input_json=_texts,
        status=st.sampled_from(ToolStatus),
        output=st.none() | _texts,
        error=st.none() | _texts,
        logs=st.lists(_texts, max_size=2).map(tuple),
        started_at=st.sampled_from([None, NOW, later(1.5)]),
        finished_at=st.sampled_from([None, NOW]),
    ),
)
_messages = st.builds(
    lambda contents, fields: make_message("msg_1", *contents, **fields),
    st.lists(_contents, max_size=4),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(MessageType),
            "status": st.sampled_from(MessageStatus),
            "finish_reason": st.none() | st.sampled_from(FinishReason),
            "provider_finish_reason": _texts,
            "answers_message_id": st.sampled_from(["", "msg_0"]),
            "turn_id": st.sampled_from(["", "trn_1"]),
            "usage": st.none()
            | st.builds(
                Usage,
                input_tokens=_counts,
                cache_read_tokens=_counts,
                cache_write_tokens=_counts,
                output_tokens=_counts,
                reasoning_tokens=_counts,
            ),
            "cost_pico_usd": st.none() | st.integers(0, 2**50),
            "failure": st.none() | st.builds(Failure, _texts, _texts),
            "model_run": st.none()
            | st.builds(ModelRun, provider_id=_texts, model_requested=_texts, model_served=_texts, response_id=_texts),
            "sender": _texts,
            "sender_name": _texts,
        }
    ),
)


async def test_stored_display_forms_are_the_recomputed_ones(tmp_path: Path) -> None:
    """For every message, projection and codec give what is stored; the message itself comes back as it was."""
    codec = ProtoCodec()
    examples: list[Message] = []

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(_messages)
    def collect(message: Message) -> None:
        examples.append(msgspec.structs.replace(message, message_id=f"msg_{len(examples)}"))

    collect()
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
        await asyncio.gather(*[opened.store.commit(adding(message)) for message in examples])
        page = await opened.store.messages("ses_1", Page())
        assert {m.message_id: m for m in page.messages} == {m.message_id: m for m in examples}
        display = await opened.store.display("ses_1", Page())
        assert display.frames == b"".join(map(codec.encode_display, page.messages))
        shown = [m for m in page.messages if codec.encode_display(m)]
        assert [d.message_id for d in displays_in(display.frames)] == [m.message_id for m in shown]


async def test_the_display_form_follows_every_change(opened: OpenedStore) -> None:
    """A tool result changes the stored display form in the same unit."""
    await opened.store.commit(creating())
    call = ToolUse(name="look", call_id="c1", input_json="{}")
    await opened.store.commit(adding(make_answer("msg_1", "text", call)))
    settled = msgspec.structs.replace(call, status=ToolStatus.SUCCESS, output="42", finished_at=NOW)
    changed = make_answer("msg_1", "text", settled)
    commit = Commit(session_id="ses_1", at=NOW, changes=(PutMessage(changed, (1,)),), events=(added(changed),))
    await opened.store.commit(commit)
    display = await opened.store.display("ses_1", Page())
    assert display.frames == ProtoCodec().encode_display(changed)
