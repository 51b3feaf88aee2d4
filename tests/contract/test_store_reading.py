"""Store, reading: pages in both directions, tokens, the log and its bounds."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.support.fakes.domain_values import (
    NOW,
    adding,
    creating,
    later,
    make_answer,
    make_message,
    make_part,
    make_session,
    make_turn,
)
from tests.support.fakes.opened_store import OpenedStore, displays_in, events_in, kinds_in, opened_store
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged, QueueChanged
from turnwire.domain.conversation.messages import Message, MessageStatus, Part, Reasoning, ToolStatus, ToolUse
from turnwire.domain.conversation.turns import QueueEntry, ToolDefinition, TurnStatus
from turnwire.domain.errors import AnswerTooLarge, SessionNotFound, ToolCallNotFound
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import Commit, HideMessages, NewEvent, PutMessage, PutSession, PutTurn
from turnwire.ports.conversations import AlternativesOf
from turnwire.ports.pages import Bounds, EventPage, Page, PrunedSession
from turnwire.storage.sql import messages as messages_of
from turnwire.storage.sql import pages as pages_of
from turnwire.storage.units import PRUNE_SLACK

IDS = [f"msg_{i}" for i in range(5)] + ["msg_q0", "msg_q1"]
"""The messages of the conversation below, in its order: the last two wait."""


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with one conversation of five messages and two queued ones."""
    async with opened_store(tmp_path) as running:
        store = running.store
        await store.commit(creating())
        for i in range(2):
            await store.commit(adding(make_message(f"msg_q{i}", "q", status=MessageStatus.QUEUED)))
        await asyncio.gather(*[store.commit(adding(make_message(f"msg_{i}", str(i)))) for i in range(5)])
        yield running


async def test_the_messages_that_call_are_found_without_the_others(
    opened: OpenedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the id of a part or by the provider's id; not those that are hidden, wait, or are of another session."""
    monkeypatch.setattr(messages_of, "MAX_CALLERS", 2)
    reads = opened.store.of(DEFAULT_TENANT)
    await opened.store.commit(creating("ses_2"))
    messages = {
        name: make_answer(f"msg_{name}", ToolUse(name="read", call_id=call_id, input_json="{}"), session_id=session_id)
        for name, call_id, session_id in (
            ("a", "c1", "ses_1"), ("b", "same", "ses_1"), ("c", "same", "ses_1"), ("d", "same", "ses_1"),
            ("e", "c1", "ses_2"),
        )
    }  # fmt: skip
    for name, message in messages.items():
        part = msgspec.structs.replace(message.parts[0], part_id=f"prt_{name}")
        messages[name] = msgspec.structs.replace(message, parts=(part,))
        await opened.store.commit(adding(messages[name]))

    async def names(part_ids: str = "", call_ids: str = "", session_id: str = "ses_1") -> str:
        parts = frozenset(f"prt_{name}" for name in part_ids)
        sizes = await reads.caller_sizes(session_id, parts, frozenset(call_ids.split()))
        found = await reads.callers(session_id, sizes)
        assert {message.message_id for message in found} == set(sizes)
        return " ".join(message.message_id.removeprefix("msg_") for message in found)

    read = [
        await names("a"), await names("e"), await names("", "c1"), await names("b", "c1"), await names("", "same"),
        await names("", "none"), await names("", "c1", "ses_2"), await names(),
    ]  # fmt: skip
    assert read == ["a", "", "a", "a b", "c d", "", "e", ""]
    await opened.store.commit(
        Commit(
            session_id="ses_1",
            at=NOW,
            changes=(HideMessages("msg_d"),),
            events=(NewEvent(ConversationChanged(ConversationChange.REVERTED, None)),),
        )
    )
    assert [await names("", "same"), await names("d")] == ["b c", ""]


async def test_the_messages_that_call_have_a_bound_of_bytes(
    opened: OpenedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may name all its calls alike, and seal 32 MiB of reasoning in each answer. The newest ones are found."""
    monkeypatch.setattr(messages_of, "MAX_CALLERS_BYTES", 2_500)
    for number in range(4):
        call = ToolUse(name="read", call_id="same", input_json="{}")
        part = Part(part_id=f"prt_call_{number}", index=0, content=call, provider_state="x" * 1_000)
        await opened.store.commit(adding(make_answer(f"msg_call_{number}", part)))
    reads = opened.store.of(DEFAULT_TENANT)
    sizes = await reads.caller_sizes("ses_1", frozenset(), frozenset({"same"}))
    assert all(1_000 < size < 1_250 for size in sizes.values())
    found = await reads.callers("ses_1", sizes)
    assert [message.message_id for message in found] == ["msg_call_2", "msg_call_3"]
    assert {part.provider_state for message in found for part in message.parts} == {"x" * 1_000}


async def test_without_a_size_all_come_at_once(opened: OpenedStore) -> None:
    """The whole conversation, without a token, and the head of that moment."""
    page = await opened.store.of(DEFAULT_TENANT).messages("ses_1", Page())
    assert ([m.message_id for m in page.messages], page.next_token, page.sequence) == (IDS, "", 8)


async def test_new_messages_do_not_disturb_paging(opened: OpenedStore) -> None:
    """A page token names a place, so what is added meanwhile shifts nothing."""
    first = await opened.store.of(DEFAULT_TENANT).messages("ses_1", Page(size=3, newest_first=True))
    await opened.store.commit(adding(make_message("msg_5", "new")))
    second = await opened.store.of(DEFAULT_TENANT).messages(
        "ses_1", Page(size=9, token=first.next_token, newest_first=True)
    )
    assert [m.message_id for m in second.messages] == ["msg_3", "msg_2", "msg_1", "msg_0"]


async def test_a_list_without_pages_has_the_newest_that_fit(opened: OpenedStore) -> None:
    """In the order of the conversation, and says that it is not all; one that does not fit alone is refused."""
    whole = await opened.store.of(DEFAULT_TENANT).display("ses_1", Page())
    frames = [len(displays.SerializeToString()) + 2 for displays in displays_in(whole.frames)]
    assert sum(frames) == len(whole.frames)
    for count in range(1, len(IDS) + 1):
        size = sum(frames[-count:])
        for room in (0, 1) if count < len(IDS) else (0,):
            page = await opened.store.of(DEFAULT_TENANT).display("ses_1", Page(max_bytes=size + room))
            assert [m.message_id for m in displays_in(page.frames)] == IDS[-count:]
            assert page.truncated == (count < len(IDS))
            newest = await opened.store.of(DEFAULT_TENANT).display(
                "ses_1", Page(max_bytes=size + room, newest_first=True)
            )
            assert [m.message_id for m in displays_in(newest.frames)] == IDS[-count:][::-1]
    with pytest.raises(AnswerTooLarge) as caught:
        await opened.store.of(DEFAULT_TENANT).display("ses_1", Page(max_bytes=frames[-1] - 1))
    assert caught.value.metadata == {
        "maxBytes": str(frames[-1] - 1),
        "actualBytes": str(frames[-1]),
        "limit": "server.max_list_bytes",
        "limitValue": str(frames[-1] - 1),
    }


async def test_pages_leave_out_what_is_for_the_provider(opened: OpenedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer may bring 32 MiB of it, and no page shows it, or ends earlier for it."""
    monkeypatch.setattr(pages_of, "MAX_PAGE_BYTES", 35_000)
    await opened.store.commit(creating("ses_sealed"))
    for number in range(15):
        sealed = Part(part_id=f"prt_{number}", index=0, content=Reasoning("so"), provider_state="x" * 40_000)
        await opened.store.commit(adding(make_message(f"sealed_{number}", sealed, session_id="ses_sealed")))
    reads = opened.store.of(DEFAULT_TENANT)
    first = await reads.messages("ses_sealed", Page(size=100))
    assert ([len(page.messages) for page in (first,)], first.next_token) == ([15], "")
    assert {part.provider_state for message in first.messages for part in message.parts} == {None}
    [after] = (await reads.alternatives("ses_sealed", AlternativesOf(message_id="sealed_0"), Page(size=1))).messages
    assert after.parts[0].provider_state is None


async def test_sessions_without_pages_are_those_that_fit(opened: OpenedStore) -> None:
    """The most recently updated first, by what is stored of them."""
    for number in range(2, 5):
        await opened.store.commit(creating(f"ses_{number}", later(number)))
    listed = [session.session_id for session in (await opened.store.of(DEFAULT_TENANT).sessions(Page())).sessions]
    one = len(msgspec.json.encode(make_session("ses_4")))
    for max_bytes, count in ((one, 1), (2 * one - 1, 1), (2 * one, 2), (10 * one, 4)):
        page = await opened.store.of(DEFAULT_TENANT).sessions(Page(max_bytes=max_bytes))
        assert [session.session_id for session in page.sessions] == listed[:count]
        assert page.truncated == (count < 4)
    with pytest.raises(AnswerTooLarge):
        await opened.store.of(DEFAULT_TENANT).sessions(Page(max_bytes=one - 1))


@pytest.mark.parametrize("page", [Page(max_bytes=100_000), Page(size=10)])
async def test_lists_of_sessions_have_no_tools(opened: OpenedStore, page: Page) -> None:
    """Nor do tools count in them, however large they are. Text counts by its bytes."""
    tool = ToolDefinition("look", "é" * 1_500_000, "{}")
    for number in range(2, 5):
        session = make_session(f"ses_{number}", tools=(tool,))
        await opened.store.commit(Commit(session_id=session.session_id, at=NOW, changes=(PutSession(session),)))
    found = await opened.store.of(DEFAULT_TENANT).sessions(page)
    assert [session.session_id for session in found.sessions] == ["ses_4", "ses_3", "ses_2", "ses_1"]
    assert not any(session.tools for session in found.sessions)
    assert not found.truncated
    assert found.next_token == ""
    titled = make_session("ses_5", title="é" * 60_000)
    await opened.store.commit(Commit(session_id="ses_5", at=NOW, changes=(PutSession(titled),)))
    with pytest.raises(AnswerTooLarge):
        await opened.store.of(DEFAULT_TENANT).sessions(Page(max_bytes=100_000))


async def test_sessions_come_most_recently_updated_first(opened: OpenedStore) -> None:
    """Any commit in a session is a change of it; pages cover all once."""
    for index in range(2, 6):
        await opened.store.commit(creating(f"ses_{index}", later(index)))
    await opened.store.commit(Commit(session_id="ses_3", at=later(100), events=(NewEvent(QueueChanged(())),)))
    found, token = [], ""
    while True:
        page = await opened.store.of(DEFAULT_TENANT).sessions(Page(size=2, token=token))
        found.append([session.session_id for session in page.sessions])
        token = page.next_token
        if not token:
            break
    assert found == [["ses_3", "ses_5"], ["ses_4", "ses_2"], ["ses_1"]]


async def test_a_session_tells_its_last_change(opened: OpenedStore) -> None:
    """The time of update is that of the newest commit, as the contract says of SessionTime.updated."""
    await opened.store.commit(adding(make_message("msg_new", "n"), later(60)))
    session = await opened.store.of(DEFAULT_TENANT).session("ses_1")
    listed = (await opened.store.of(DEFAULT_TENANT).sessions(Page())).sessions
    assert session == make_session(updated_at=later(60), head_sequence=9)
    assert listed == (session,)


async def test_reads_of_an_unknown_session_say_so(opened: OpenedStore) -> None:
    """Every read of one session raises SessionNotFound."""
    for read in (
        opened.store.of(DEFAULT_TENANT).session("ses_x"),
        opened.store.of(DEFAULT_TENANT).message("ses_x", "msg_0"),
        opened.store.of(DEFAULT_TENANT).message_of_call("ses_x", "prt_0"),
        opened.store.of(DEFAULT_TENANT).messages("ses_x", Page()),
        opened.store.of(DEFAULT_TENANT).history("ses_x"),
        opened.store.of(DEFAULT_TENANT).display("ses_x", Page()),
        opened.store.of(DEFAULT_TENANT).session_bounds("ses_x"),
    ):
        with pytest.raises(SessionNotFound) as caught:
            await read
        assert caught.value.resource_id == "ses_x"


async def test_turn_messages_are_those_of_the_turn(opened: OpenedStore) -> None:
    """In order, over the queue too; messages outside of turns belong to none."""
    answer = make_answer("msg_a", "a")
    waiting = make_message("msg_w", "w", turn_id="trn_2", status=MessageStatus.QUEUED)
    await opened.store.commit(adding(answer))
    await opened.store.commit(adding(waiting))
    before = (await opened.store.of(DEFAULT_TENANT).history("ses_1"))[-2].message_id
    assert await opened.store.turn_messages("trn_1") == (msgspec.structs.replace(answer, previous_message_id=before),)
    assert await opened.store.turn_messages("trn_2") == (msgspec.structs.replace(waiting, parts=()),)
    assert await opened.store.turn_messages("") == ()
    assert await opened.store.turn_messages("trn_x") == ()


async def test_of_a_turn_the_newest_answer_alone_is_read(opened: OpenedStore) -> None:
    """A restart goes on from that one; the others may be large, and so may what is sealed in them."""
    question, first = make_message("msg_q", "why", turn_id="trn_1"), make_answer("msg_a", "first")
    second = make_answer("msg_b", "second", make_part(1, Reasoning("why"), provider_state='{"seal":1}'))
    silent = make_answer("msg_c", status=MessageStatus.STREAMING)
    for message in (question, first, second):
        await opened.store.commit(adding(message))
    stored = await opened.store.turn_messages("trn_1")
    assert [message.parts for message in stored] == [(), (), second.parts]
    await opened.store.commit(adding(silent))
    stored = await opened.store.turn_messages("trn_1")
    assert [message.parts for message in stored] == [(), (), second.parts, ()]


async def test_events_are_read_after_a_sequence(opened: OpenedStore) -> None:
    """Exclusive, in order; `last` says up to where the log was read."""
    page = await opened.store.of(DEFAULT_TENANT).session_events("ses_1", 6, None)
    assert [event.sequence for event in events_in(page.frames)] == [7, 8]
    assert page.last == 8
    assert await opened.store.of(DEFAULT_TENANT).session_events("ses_1", 8, None) == EventPage((), (), 8)


async def test_events_are_filtered_by_kind(opened: OpenedStore) -> None:
    """`last` moves over what the filter left out, so that nobody reads it again."""
    page = await opened.store.of(DEFAULT_TENANT).session_events("ses_1", 0, frozenset({"SessionCreated"}))
    assert (kinds_in(page.frames), page.last) == (["session_created"], 8)
    log = await opened.store.of(DEFAULT_TENANT).log_events(0, frozenset({"TurnEnded"}))
    assert (log.frames, log.last) == ((), 8)


async def test_event_pages_are_bounded_by_bytes(opened: OpenedStore) -> None:
    """A page ends at about 64 KiB and has at least one event, so a huge one gets through."""
    sizes = [200_000, 40_000, 40_000, 10]
    for index, size in enumerate(sizes):
        await opened.store.commit(adding(make_message(f"msg_big{index}", "x" * size)))
    pages, after = [], 8
    while (page := await opened.store.of(DEFAULT_TENANT).session_events("ses_1", after, None)).last != after:
        pages.append([event.sequence for event in events_in(page.frames)])
        after = page.last
    assert pages == [[9], [10, 11], [12]]


async def test_the_log_of_all_sessions_is_in_commit_order(opened: OpenedStore) -> None:
    """Positions count over all sessions."""
    await opened.store.commit(creating("ses_2"))
    await opened.store.commit(adding(make_message("msg_5", "x")))
    page = await opened.store.of(DEFAULT_TENANT).log_events(7, None)
    assert [(e.session_id, e.sequence) for e in events_in(page.frames)] == [("ses_1", 8), ("ses_2", 1), ("ses_1", 9)]
    assert page.last == 10
    assert await opened.store.of(DEFAULT_TENANT).log_bounds() == Bounds(0, 10)
    assert await opened.store.of(DEFAULT_TENANT).session_bounds("ses_2") == Bounds(0, 1)


async def test_old_events_are_pruned_and_the_bounds_say_so(tmp_path: Path) -> None:
    """A session keeps its newest events; only it loses old ones; sequences and heads stay."""
    async with opened_store(tmp_path, retained_events=10) as opened:
        await opened.store.commit(creating("ses_2"))
        await opened.store.commit(creating())
        events = tuple(NewEvent(QueueChanged((QueueEntry(str(i), "t"),))) for i in range(10 + PRUNE_SLACK))
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, events=events))
        head = 1 + len(events)
        assert await opened.store.of(DEFAULT_TENANT).session_bounds("ses_1") == Bounds(head - 10, head)
        assert await opened.store.of(DEFAULT_TENANT).session_bounds("ses_2") == Bounds(0, 1)
        assert await opened.store.of(DEFAULT_TENANT).log_bounds() == Bounds(0, 1 + head)
        lost = PrunedSession("ses_1", head - 10, 1 + head - 10)
        assert [
            (await opened.store.of(DEFAULT_TENANT).log_events(after, None)).pruned for after in (0, lost.position - 1)
        ] == [(lost,)] * 2
        assert (await opened.store.of(DEFAULT_TENANT).log_events(lost.position, None)).pruned == ()
        page = await opened.store.of(DEFAULT_TENANT).session_events("ses_1", 0, None)
        assert [event.sequence for event in events_in(page.frames)] == list(range(head - 9, head + 1))


async def test_a_session_is_pruned_only_past_the_slack(tmp_path: Path) -> None:
    """Up to the slack nothing is removed: pruning one event at a time would cost more than it frees."""
    async with opened_store(tmp_path, retained_events=10) as opened:
        await opened.store.commit(creating())
        events = tuple(NewEvent(QueueChanged((QueueEntry(str(i), "t"),))) for i in range(9 + PRUNE_SLACK))
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, events=events))
        assert await opened.store.of(DEFAULT_TENANT).session_bounds("ses_1") == Bounds(0, 10 + PRUNE_SLACK)


async def test_reading_the_log_never_runs_ahead_of_publishing(opened: OpenedStore) -> None:
    """All events that a read of the log shows are published when it returns."""

    async def reader() -> list[tuple[int, int]]:
        found = []
        for _ in range(40):
            page = await opened.store.of(DEFAULT_TENANT).log_events(0, None)
            bounds = await opened.store.of(DEFAULT_TENANT).log_bounds()
            found.append((max(page.last, bounds.head), opened.published[-1].event.position))
        return found

    async def write() -> None:
        for i in range(60):
            await opened.store.commit(adding(make_message(f"msg_r{i}", "x")))

    reading = asyncio.create_task(reader())
    await write()
    assert all(seen <= published for seen, published in await reading)


async def test_settings_survive_in_the_session(opened: OpenedStore) -> None:
    """All settings of a session come back as they were written."""
    session = make_session(title="t", directory="/d", agent="review", revision=2)
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutSession(session),)))
    assert await opened.store.of(DEFAULT_TENANT).session("ses_1") == msgspec.structs.replace(session, head_sequence=8)


async def _store_call(opened: OpenedStore, session_id: str, message_id: str, part_id: str) -> Message:
    call = make_part(1, ToolUse(name="look", call_id="c1", input_json="{}"), part_id=part_id)
    message = make_answer(message_id, f"I look for {part_id}.", call, session_id=session_id)
    await opened.store.commit(adding(message))
    return message


async def test_a_tool_call_is_found_by_the_id_of_its_part(opened: OpenedStore) -> None:
    """With the whole message, and with what became of the call since it was added."""
    await _store_call(opened, "ses_1", "msg_a", "prt_a")
    asking = msgspec.structs.replace(await _store_call(opened, "ses_1", "msg_b", "prt_b"), previous_message_id="msg_a")
    assert await opened.store.of(DEFAULT_TENANT).message_of_call("ses_1", "prt_b") == asking
    ran = ToolUse(name="look", call_id="c1", input_json="{}", status=ToolStatus.SUCCESS, output="found")
    settled = msgspec.structs.replace(asking, parts=(asking.parts[0], make_part(1, ran, part_id="prt_b")))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutMessage(settled),)))
    assert await opened.store.of(DEFAULT_TENANT).message_of_call("ses_1", "prt_b") == settled


@pytest.mark.parametrize("part_id", ["prt_none", "prt_0", "prt_elsewhere", ""])
async def test_only_tool_calls_of_the_session_are_found(opened: OpenedStore, part_id: str) -> None:
    """Not the parts of another type, and not the calls of other sessions."""
    await opened.store.commit(creating("ses_2"))
    await _store_call(opened, "ses_1", "msg_a", "prt_a")
    await _store_call(opened, "ses_2", "msg_b", "prt_elsewhere")
    with pytest.raises(ToolCallNotFound):
        await opened.store.of(DEFAULT_TENANT).message_of_call("ses_1", part_id)


async def test_calls_of_other_sessions_hide_none(opened: OpenedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many have the same id: they are left out before the bound is counted."""
    monkeypatch.setattr(messages_of, "MAX_CALLERS", 2)
    for number in range(2, 5):
        await opened.store.commit(creating(f"ses_{number}"))
        await _store_call(opened, f"ses_{number}", f"msg_other_{number}", "prt_same")
    await _store_call(opened, "ses_1", "msg_own", "prt_same")
    sizes = await opened.store.of(DEFAULT_TENANT).caller_sizes("ses_1", frozenset({"prt_same"}), frozenset())
    assert set(sizes) == {"msg_own"}


async def test_turns_of_other_sessions_answer_no_question(opened: OpenedStore) -> None:
    """An archive may name one as that which a message has joined: nothing is told of it."""
    await opened.store.commit(creating("ses_2", NOW, PutTurn(make_turn("trn_other", "ses_2"))))
    turn = make_turn("trn_own", status=TurnStatus.ENDED, merged_into_turn_id="trn_other")
    asked = make_message("msg_asked", "a", turn_id="trn_own")
    await opened.store.commit(adding(asked, NOW, (), PutTurn(turn)))
    assert not (await opened.store.of(DEFAULT_TENANT).question("ses_1", "msg_asked")).has_turn


@pytest.mark.sqlite
async def test_a_tool_call_is_found_without_reading_the_conversation(opened: OpenedStore) -> None:
    """By its index: no statement goes through the messages of the session."""
    await _store_call(opened, "ses_1", "msg_a", "prt_a")
    with opened.database() as db:
        statements: list[str] = []
        db.set_trace_callback(statements.append)
        messages_of.message_of_call(db, DEFAULT_TENANT, "ses_1", "prt_a")
        plan = " ".join(row[3] for row in db.rows(f"EXPLAIN QUERY PLAN {statements[-1]}"))
    assert "SEARCH calls USING PRIMARY KEY (tool_call_id=?)" in plan
    assert "SCAN" not in plan
    assert "messages_in_order" not in plan
