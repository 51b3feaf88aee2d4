"""Store, writing: what each change leaves of sessions, messages, turns, requests and files."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.fakes.domain_values import (
    NOW,
    adding,
    creating,
    in_order,
    later,
    make_answer,
    make_message,
    make_session,
    make_turn,
    open_part,
    removing,
)
from tests.support.fakes.opened_store import OpenedStore, events_in, kinds_in, opened_store
from turnwire.domain.conversation.events import MessageFinished, SessionUpdated, SessionView
from turnwire.domain.conversation.messages import Failure, File, FinishReason, MessageStatus, Text
from turnwire.domain.conversation.turns import BusyPolicy, ToolDefinition, TurnStatus
from turnwire.domain.errors import MessageNotFound, RequestIdReused, SessionNotFound, StorageError
from turnwire.domain.principal import BUILT_IN, DEFAULT_TENANT, Principal, Role
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
from turnwire.ports.pages import Page
from turnwire.ports.store import StoredRequest

TOOLS = (ToolDefinition("look", "finds", '{"type":"object","default":null}'),)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """An empty store."""
    async with opened_store(tmp_path) as running:
        yield running


def _file(content: bytes) -> tuple[PutFile, File]:
    sha256 = hashlib.sha256(content).hexdigest()
    return PutFile(sha256, content), File(sha256=sha256, size_bytes=len(content), mime="text/plain", filename="a.txt")


async def _message_ids(opened: OpenedStore, session_id: str = "ses_1") -> list[str]:
    page = await opened.store.of(DEFAULT_TENANT).messages(session_id, Page())
    return [message.message_id for message in page.messages]


async def test_queued_messages_stand_last_until_they_start(opened: OpenedStore) -> None:
    """A queued message is behind all others; started, it takes the last place among those."""
    queued = [make_message(f"msg_q{i}", "q", status=MessageStatus.QUEUED) for i in (1, 2)]
    await opened.store.commit(creating())
    await opened.store.commit(adding(queued[0]))
    await opened.store.commit(adding(queued[1]))
    await opened.store.commit(adding(make_message("msg_1", "a")))
    assert await _message_ids(opened) == ["msg_1", "msg_q1", "msg_q2"]
    started = msgspec.structs.replace(queued[1], status=MessageStatus.COMPLETE)
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutMessage(started),)))
    await opened.store.commit(adding(make_message("msg_2", "b")))
    assert await _message_ids(opened) == ["msg_1", "msg_q2", "msg_2", "msg_q1"]
    history = await opened.store.of(DEFAULT_TENANT).history("ses_1")
    assert history == in_order(make_message("msg_1", "a"), started, make_message("msg_2", "b"))
    assert await opened.store.of(DEFAULT_TENANT).message("ses_1", "msg_q2") == history[1]


async def test_a_message_and_its_events_name_the_message_before(opened: OpenedStore) -> None:
    """Once and for all when it gets its place, whatever the caller says; a message that waits has none before it."""
    await opened.store.commit(creating())
    first, streaming = make_message("msg_1", "a"), make_answer("msg_2", status=MessageStatus.STREAMING)
    waiting = make_message("msg_q", "q", status=MessageStatus.QUEUED, previous_message_id="msg_wrong")
    for message in (first, streaming, waiting):
        await opened.store.commit(adding(message))
    await opened.store.commit(adding(make_message("msg_3", "c")))
    ended = make_answer("msg_2", "b")
    finished = NewEvent(MessageFinished(msgspec.structs.replace(ended, parts=())))
    ending = Commit(session_id="ses_1", at=NOW, changes=(PutMessage(ended),), events=(finished,))
    assert (await opened.store.commit(ending)).previous_message_ids == {"msg_2": "msg_1"}
    told = [stored.event.kind.message for stored in opened.published[1:]]
    assert [(message.message_id, message.previous_message_id) for message in told] == [
        *(("msg_1", ""), ("msg_2", "msg_1"), ("msg_q", ""), ("msg_3", "msg_2"), ("msg_2", "msg_1"))
    ]
    read = [event.message_finished.message for event in events_in([opened.published[-1].frame])]
    assert [message.previous_message_id for message in read] == ["msg_1"]
    started = PutMessage(msgspec.structs.replace(waiting, status=MessageStatus.COMPLETE))
    moving = await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(started,)))
    assert moving.previous_message_ids == {"msg_q": "msg_3"}
    assert (await opened.store.of(DEFAULT_TENANT).message("ses_1", "msg_q")).previous_message_id == "msg_3"


async def test_only_the_named_parts_are_written(opened: OpenedStore) -> None:
    """A growing message is written part by part; the others stay as they are stored."""
    await opened.store.commit(creating())
    first = make_answer("msg_1", "a", open_part(1, Text("b")), status=MessageStatus.STREAMING)
    await opened.store.commit(adding(first))
    grown = msgspec.structs.replace(first, parts=(first.parts[0], open_part(1, Text("bc"))), updated_at=later(1))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutMessage(grown),)))
    assert await opened.store.of(DEFAULT_TENANT).message("ses_1", "msg_1") == grown


async def test_a_message_id_belongs_to_one_session(opened: OpenedStore) -> None:
    """Another session cannot overwrite a message."""
    await opened.store.commit(creating("ses_1"))
    await opened.store.commit(creating("ses_2"))
    mine = make_message("msg_1", "mine")
    await opened.store.commit(adding(mine))
    with pytest.raises(StorageError):
        await opened.store.commit(adding(make_message("msg_1", "theirs", session_id="ses_2")))
    assert await opened.store.of(DEFAULT_TENANT).message("ses_1", "msg_1") == mine
    with pytest.raises(MessageNotFound):
        await opened.store.of(DEFAULT_TENANT).message("ses_2", "msg_1")


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
    assert await opened.store.of(DEFAULT_TENANT).message("ses_1", "msg_1") == again


async def test_sessions_are_replaced_and_keep_their_head(opened: OpenedStore) -> None:
    """A changed session is stored with its revision; its head is the store's, whatever is written."""
    await opened.store.commit(creating())
    changed = make_session(title="new", revision=2, head_sequence=77)
    event = NewEvent(SessionUpdated(SessionView(changed)))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutSession(changed),), events=(event,)))
    assert await opened.store.of(DEFAULT_TENANT).session("ses_1") == msgspec.structs.replace(changed, head_sequence=2)


async def test_a_removed_session_is_not_made_again_by_a_late_change(opened: OpenedStore) -> None:
    """A change of settings that meets the removal finds no session."""
    await opened.store.commit(creating())
    await opened.store.commit(removing())
    await opened.store.removals()
    late = Commit(session_id="ses_1", at=NOW, changes=(PutSession(make_session(revision=2)),))
    with pytest.raises(SessionNotFound):
        await opened.store.commit(late)


SETTINGS: tuple[dict[str, Any], ...] = ({"tools": TOOLS, "system": ""}, {"tools": TOOLS}, {"system": "be"}, {})


@pytest.mark.parametrize("settings", SETTINGS)
async def test_a_turn_can_be_written_without_its_settings(opened: OpenedStore, settings: dict[str, Any]) -> None:
    """Tools and system prompt stay as they were stored; all else is as the new one says, defaults too."""
    reads = opened.store.of(DEFAULT_TENANT)
    await opened.store.commit(creating("ses_1"))
    turn = make_turn("trn_a", status=TurnStatus.QUEUED, busy_policy=BusyPolicy.STEER, **settings)
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutTurn(turn),)))
    changed = msgspec.structs.replace(turn, busy_policy=BusyPolicy.QUEUE, status=TurnStatus.RUNNING, resumes=1)
    header = PutTurn(changed.header(), keeps_settings=True)
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(header,)))
    assert await reads.turn("ses_1", turn.turn_id) == changed
    kept = reads.account(NOW).stored_bytes
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutTurn(changed),)))
    assert reads.account(NOW).stored_bytes == kept


async def test_lists_of_turns_have_no_settings(opened: OpenedStore) -> None:
    """They may be a megabyte a turn, and a list does not show them."""
    await opened.store.commit(creating("ses_1"))
    turn = make_turn("trn_a", tools=TOOLS, system="be")
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutTurn(turn),)))
    listed = await opened.store.of(DEFAULT_TENANT).turns("ses_1", Page(size=1), frozenset(TurnStatus))
    assert listed.turns == await opened.store.unfinished_turns() == (turn.header(),)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("fields", "sizes"),
    [
        ({"failure": Failure("IMPORTED", "ö" * 64_000)}, [27, 3]),
        ({"tools": (ToolDefinition("look", "x" * 4_000_000, "{}"),)}, [15]),
    ],
    ids=["large", "with tools"],
)
async def test_a_page_of_turns_ends_by_its_bytes(
    opened: OpenedStore, fields: dict[str, object], sizes: list[int]
) -> None:
    """Those that are answered: what a turn has besides is not read."""
    await opened.store.commit(creating("ses_1"))
    over = {"status": TurnStatus.ENDED, "finish_reason": FinishReason.ERROR, **fields}
    for number in range(sum(sizes)):
        turn = make_turn(f"trn_{number:02}", **over)
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutTurn(turn),)))
    reads, token, found, pages = opened.store.of(DEFAULT_TENANT), "", list[str](), list[int]()
    while True:
        page = await reads.turns("ses_1", Page(size=100, token=token), frozenset(TurnStatus))
        found += [turn.turn_id for turn in page.turns]
        pages.append(len(page.turns))
        if not (token := page.next_token):
            break
    assert pages == sizes
    assert found == [f"trn_{number:02}" for number in range(sum(sizes))]


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
    assert await opened.store.request(BUILT_IN, "req") is None
    record = RecordRequest(BUILT_IN, "req", "f", '{"a":1}')
    await opened.store.commit(adding(make_message("msg_1", "a"), NOW, (), record))
    assert await opened.store.request(BUILT_IN, "req") == StoredRequest("f", '{"a":1}', before_sequence=1)
    await opened.store.commit(removing())
    await opened.store.removals()
    assert await opened.store.request(BUILT_IN, "req") is None


async def test_each_principal_has_names_of_its_own(opened: OpenedStore) -> None:
    """Told apart by tenant and subject; another role is the same caller. One name cannot be recorded twice."""
    callers = [
        Principal(tenant=tenant, subject=subject, role=Role.WRITER)
        for tenant, subject in (("a", "eve"), ("a", "bob"), ("b", "eve"), ("default", ""))
    ]
    await opened.store.commit(creating())
    for index, caller in enumerate(callers):
        record = RecordRequest(caller, "req", f"f{index}", "{}")
        await opened.store.commit(adding(make_message(f"msg_{index}", "a"), NOW, (), record))
    found = [await opened.store.request(caller, "req") for caller in callers]
    assert [request.fingerprint for request in found if request is not None] == ["f0", "f1", "f2", "f3"]
    promoted = msgspec.structs.replace(callers[0], role=Role.ADMIN)
    assert await opened.store.request(promoted, "req") == found[0]
    assert await opened.store.request(BUILT_IN, "req") == found[3]
    again = RecordRequest(promoted, "req", "f", "{}")
    with pytest.raises(RequestIdReused):
        await opened.store.commit(adding(make_message("msg_x", "a"), NOW, (), again))
    stranger = Principal(tenant="b", subject="bob", role=Role.ADMIN)
    assert await opened.store.request(stranger, "req") is None


async def test_files_are_stored_once_and_go_with_the_last_session(opened: OpenedStore) -> None:
    """Two sessions share the bytes; they stay until neither is left."""
    change, reference = _file(b"hello")
    for session_id in ("ses_1", "ses_2"):
        await opened.store.commit(creating(session_id))
        message = make_message(f"msg_{session_id}", reference, session_id=session_id)
        await opened.store.commit(adding(message, NOW, (change,)))
    assert await opened.store.of(DEFAULT_TENANT).files([reference.sha256, "0" * 64]) == {reference.sha256: b"hello"}
    await opened.store.commit(removing("ses_1"))
    await opened.store.removals()
    assert await opened.store.of(DEFAULT_TENANT).files([reference.sha256]) == {reference.sha256: b"hello"}
    await opened.store.commit(removing("ses_2"))
    await opened.store.removals()
    assert await opened.store.of(DEFAULT_TENANT).files([reference.sha256]) == {}


async def test_files_of_a_removed_message_go_too(opened: OpenedStore) -> None:
    """A queued message that is dropped leaves no bytes behind, at the latest when its session goes."""
    change, reference = _file(b"dropped")
    queued = make_message("msg_1", reference, status=MessageStatus.QUEUED)
    await opened.store.commit(creating())
    await opened.store.commit(adding(queued, NOW, (change,)))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(RemoveMessage("msg_1"),)))
    await opened.store.commit(removing())
    await opened.store.removals()
    assert await opened.store.of(DEFAULT_TENANT).files([reference.sha256]) == {}


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
        opened.store.of(DEFAULT_TENANT).session("ses_1"),
        opened.store.of(DEFAULT_TENANT).message("ses_1", "msg_1"),
        opened.store.of(DEFAULT_TENANT).messages("ses_1", Page()),
        opened.store.of(DEFAULT_TENANT).history("ses_1"),
        opened.store.of(DEFAULT_TENANT).display("ses_1", Page()),
        opened.store.of(DEFAULT_TENANT).session_bounds("ses_1"),
    ):
        with pytest.raises(SessionNotFound):
            await read
    assert await opened.store.turn_messages("trn_1") == ()
    assert await opened.store.unfinished_turns() == ()
    page = await opened.store.of(DEFAULT_TENANT).session_events("ses_1", 0, None)
    assert [(e.sequence, e.WhichOneof("kind")) for e in events_in(page.frames)] == [(3, "session_deleted")]
    log = await opened.store.of(DEFAULT_TENANT).log_events(0, None)
    assert kinds_in(log.frames) == ["session_created", "session_deleted"]
