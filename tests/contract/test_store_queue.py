"""Store, queue: the order of waiting messages, what events tell of it, and pages of it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fakes.domain_values import NOW, adding, creating, make_answer, make_message, make_turn
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged, QueueChanged
from turnwire.domain.conversation.messages import Message, MessageStatus
from turnwire.domain.conversation.turns import BusyPolicy, QueueEntry, TurnStatus
from turnwire.domain.errors import StaleVersion
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import (
    Change,
    Commit,
    Committed,
    NewEvent,
    OrderQueue,
    PathEnd,
    PutMessage,
    PutTurn,
    RemoveMessage,
    RequireQueueRevision,
    SelectPath,
)
from turnwire.ports.pages import Page, QueuePage

POLICIES = {"b": BusyPolicy.REJECT}
"""Of those that are not QUEUE."""


def waiting(name: str) -> Message:
    """Returns a message that waits."""
    return make_message(f"msg_{name}", name, turn_id=f"trn_{name}", status=MessageStatus.QUEUED)


def entry(name: str) -> QueueEntry:
    """Returns what is told of it."""
    return QueueEntry(f"msg_{name}", f"trn_{name}", POLICIES.get(name, BusyPolicy.QUEUE))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with a session in which four messages wait."""
    async with opened_store(tmp_path) as running:
        await running.store.commit(creating())
        for name in "abcd":
            policy = POLICIES.get(name, BusyPolicy.QUEUE)
            turn = make_turn(f"trn_{name}", status=TurnStatus.QUEUED, busy_policy=policy)
            await running.store.commit(adding(waiting(name), NOW, (), PutTurn(turn)))
        yield running


async def change(opened: OpenedStore, *changes: Change, known: tuple[QueueEntry, ...] = ()) -> Committed:
    """Commits changes and tells the queue."""
    told = (NewEvent(QueueChanged(known)),)
    return await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=changes, events=told))


def told(opened: OpenedStore) -> QueueChanged:
    """Returns what the last event tells of the queue."""
    kind = opened.published[-1].event.kind
    assert isinstance(kind, QueueChanged)
    return kind


async def names(opened: OpenedStore) -> str:
    """Returns the waiting messages, next first."""
    page = await opened.store.of(DEFAULT_TENANT).queue("ses_1", Page())
    listed = (await opened.store.of(DEFAULT_TENANT).messages("ses_1", Page())).messages
    queued = [message for message in listed if message.status is MessageStatus.QUEUED]
    assert list(page.messages) == queued
    assert [one.message_id for one in page.entries] == [message.message_id for message in queued]
    return "".join(message.message_id.removeprefix("msg_") for message in queued)


async def test_an_event_tells_the_messages_that_are_stored(opened: OpenedStore) -> None:
    """A message of the committer that was not stored is not told, one that it forgot is told with its policy."""
    committed = await change(opened, known=(entry("a"), QueueEntry("msg_x", "trn_x")))
    assert committed.queue_revision == 1
    assert told(opened) == QueueChanged(tuple(map(entry, "abcd")), 1)
    await change(opened, RemoveMessage("msg_c"))
    assert told(opened) == QueueChanged(tuple(map(entry, "abd")), 2)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("abcd", "abcd"), ("dcba", "dcba"), ("ca", "bdca"), ("xdy", "abcd"), ("dabc", "dabc"), ("", "abcd")],
)
async def test_the_queue_gets_an_order(opened: OpenedStore, asked: str, expected: str) -> None:
    """Those that are not named come first: they are about to leave it. Those that do not wait are ignored."""
    await change(opened, OrderQueue(tuple(f"msg_{name}" for name in asked)))
    assert await names(opened) == expected
    assert told(opened) == QueueChanged(tuple(map(entry, expected)), 1)


async def test_an_order_concerns_waiting_messages_only(opened: OpenedStore) -> None:
    """A message of the conversation that is named stays where it is, and one that comes later goes to the end."""
    await opened.store.commit(adding(make_message("msg_0", "0")))
    await change(opened, OrderQueue(("msg_0", "msg_d", "msg_a", "msg_b", "msg_c")))
    await opened.store.commit(adding(waiting("e")))
    listed = (await opened.store.of(DEFAULT_TENANT).messages("ses_1", Page())).messages
    assert "".join(message.message_id.removeprefix("msg_") for message in listed) == "0dabce"


async def test_a_message_that_is_written_anew_can_keep_its_place(opened: OpenedStore) -> None:
    """All of it is replaced, so that parts that it has no longer are gone, and the bytes are those of a new one."""
    before = await _stored_bytes(opened)
    longer = make_message("msg_b", "one", "two", "three", turn_id="trn_b", status=MessageStatus.QUEUED)
    order = OrderQueue(("msg_a", "msg_b", "msg_c", "msg_d"))
    for message in (longer, waiting("b")):
        changes = (RemoveMessage("msg_b"), PutMessage(message), order)
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=changes))
        assert await names(opened) == "abcd"
        assert await opened.store.of(DEFAULT_TENANT).message("ses_1", "msg_b") == message
    assert await _stored_bytes(opened) == before


async def _stored_bytes(opened: OpenedStore) -> int:
    return opened.store.of(DEFAULT_TENANT).account(NOW).stored_bytes


async def test_a_change_can_name_the_revision_that_it_is_made_for(opened: OpenedStore) -> None:
    """Another one fails and changes nothing; the error has the current revision."""
    await change(opened, RequireQueueRevision(0))
    with pytest.raises(StaleVersion) as stale:
        await change(opened, RequireQueueRevision(0), RemoveMessage("msg_a"))
    assert stale.value.metadata == {"currentRevision": "1"}
    assert (await change(opened, RequireQueueRevision(1))).queue_revision == 2
    assert await names(opened) == "abcd"


async def test_the_queue_is_read_with_its_revision(opened: OpenedStore) -> None:
    """Next first, with and without its messages."""
    await change(opened)
    await opened.store.commit(creating("ses_2"))
    reads, entries = opened.store.of(DEFAULT_TENANT), tuple(map(entry, "abcd"))
    found = await reads.queue("ses_1", Page())
    assert (found.entries, found.revision) == (entries, 1)
    assert [message.message_id for message in found.messages] == [f"msg_{n}" for n in "abcd"]
    assert await reads.queue_entries("ses_1") == QueuePage(entries, (), 1, "")
    assert await reads.queue_entries("ses_2") == QueuePage((), (), 0, "")


async def test_the_last_message_of_the_path_may_begin_to_wait(tmp_path: Path) -> None:
    """As one that was appended and whose turn is started later. What is stored meanwhile follows the one before it."""
    async with opened_store(tmp_path) as opened:
        for step in (
            creating(),
            adding(make_message("msg_q", "question")),
            adding(make_answer("msg_a", "calls a tool", turn_id="trn_1")),
            adding(make_message("msg_u", "appended")),
            Commit(session_id="ses_1", at=NOW, changes=(PutMessage(LATE, at_end=True),)),
        ):
            await opened.store.commit(step)
        done = await opened.store.commit(adding(make_answer("msg_b", "the next step", turn_id="trn_1")))
        begun = make_message("msg_u", "appended")
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutMessage(begun),)))
        found = await opened.store.of(DEFAULT_TENANT).history("ses_1")
    assert done.previous_message_ids == {"msg_b": "msg_a"}
    line = [(one.message_id, one.previous_message_id) for one in found]
    assert line == [("msg_q", ""), ("msg_a", "msg_q"), ("msg_b", "msg_a"), ("msg_u", "msg_b")]


async def test_what_waited_follows_what_it_followed_and_is_edited_alone(tmp_path: Path) -> None:
    """When nothing was stored meanwhile. An edited form of it takes nothing before it off the path."""
    async with opened_store(tmp_path) as opened:
        for step in (
            creating(),
            adding(make_message("msg_q", "question")),
            adding(make_answer("msg_a", "an answer", turn_id="trn_1")),
            adding(make_message("msg_u", "appended")),
            Commit(session_id="ses_1", at=NOW, changes=(PutMessage(LATE, at_end=True),)),
            Commit(session_id="ses_1", at=NOW, changes=(PutMessage(make_message("msg_u", "appended")),)),
        ):
            await opened.store.commit(step)
        reads = opened.store.of(DEFAULT_TENANT)
        assert [one.previous_message_id for one in await reads.history("ses_1")] == ["", "msg_q", "msg_a"]
        await opened.store.commit(adding(make_answer("msg_b", "its answer", turn_id="trn_2")))
        selected = NewEvent(ConversationChanged(ConversationChange.ALTERNATIVE_SELECTED, None))
        edit = (SelectPath("msg_u", PathEnd.BEFORE), PutMessage(make_message("msg_v", "edited")))
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=edit, events=(selected,)))
        assert [one.message_id for one in await reads.history("ses_1")] == ["msg_q", "msg_a", "msg_v"]


LATE = make_message("msg_u", "appended", status=MessageStatus.QUEUED)


async def test_what_one_transaction_tells_is_what_its_commits_have_stored(opened: OpenedStore) -> None:
    """A turn that an earlier commit of it has stored is told, one whose commit was refused is not."""
    changed = PutTurn(make_turn("trn_a", status=TurnStatus.QUEUED, busy_policy=BusyPolicy.STEER))
    stored = PutTurn(make_turn("trn_c", status=TurnStatus.QUEUED, busy_policy=BusyPolicy.REJECT))
    commits = (
        Commit(session_id="ses_1", at=NOW, changes=(stored,), events=(NewEvent(QueueChanged(())),)),
        Commit(session_id="ses_1", at=NOW, changes=(changed, RequireQueueRevision(99))),
        Commit(session_id="ses_1", at=NOW, events=(NewEvent(QueueChanged(())),)),
    )
    outcomes = await asyncio.gather(*map(opened.store.commit, commits), return_exceptions=True)
    assert [type(one) for one in outcomes] == [Committed, StaleVersion, Committed]
    rejected = QueueEntry("msg_c", "trn_c", BusyPolicy.REJECT)
    assert told(opened) == QueueChanged((entry("a"), entry("b"), rejected, entry("d")), 2)
