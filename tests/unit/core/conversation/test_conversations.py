"""Conversations in memory: which commits are applied to them, what is kept with them, and which are dropped."""

import asyncio
from types import SimpleNamespace
from typing import Any, get_args

import msgspec
import pytest

from tests.support.fakes.core import FakeStore
from tests.support.fakes.domain_values import NOW, make_message, make_turn
from turnwire.core.conversation import conversations as module
from turnwire.core.conversation.conversations import NO_MESSAGE, LiveConversation, LiveConversations
from turnwire.domain.conversation.events import DurableKind, MessageAdded
from turnwire.domain.conversation.messages import Branch, Message, MessageStatus
from turnwire.domain.conversation.sizes import message_bytes
from turnwire.domain.errors import ConversationTooLarge
from turnwire.ports import commit as commits
from turnwire.ports.commit import (
    Change,
    Commit,
    Committed,
    HideMessages,
    JoinSession,
    NewEvent,
    PublishSession,
    PutMessage,
    PutTurn,
    RemoveMessage,
    RemoveSession,
    SelectPath,
    ShowMessages,
)

ONE, TWO, THREE = (make_message(f"msg_{n}", f"text {n}") for n in (1, 2, 3))
BEHIND_TWO = Committed(0, 1, {"msg_1": "", "msg_2": "msg_1", "msg_3": "msg_2", "msg_later": "msg_2"})


def begun() -> LiveConversation:
    """Returns a conversation of two messages."""
    conversation = LiveConversation()
    conversation.begin((ONE, msgspec.structs.replace(TWO, previous_message_id="msg_1")))
    return conversation


def commit(*changes: Change, events: tuple[DurableKind, ...] = ()) -> Commit:
    """Returns a commit."""
    return Commit(session_id="ses_1", at=NOW, changes=changes, events=tuple(map(NewEvent, events)))


def test_a_text_counts_as_it_did_when_it_came() -> None:
    """Python counts the encoded form of a text too, once somebody has encoded it."""
    conversation, wide = begun(), make_message("msg_2", "ä" * 1000)
    assert conversation.apply(commit(PutMessage(wide)), BEHIND_TWO)
    msgspec.json.encode(wide)
    assert message_bytes(wide) > message_bytes(make_message("msg_2", "ä" * 1000))
    assert conversation.apply(commit(PutMessage(TWO)), BEHIND_TWO)
    assert conversation.message_bytes == message_bytes(ONE) + message_bytes(TWO)


@pytest.mark.parametrize(
    ("changes", "events"),
    [
        ((PutMessage(THREE),), ()),
        ((PutMessage(make_message("msg_4", "beside")),), (MessageAdded(make_message("msg_4", "beside")),)),
        ((PutMessage(THREE, at_end=True),), (MessageAdded(THREE),)),
        ((PutMessage(ONE, at_end=True),), ()),
        ((PutMessage(THREE, is_hidden=True),), (MessageAdded(THREE),)),
        ((PutMessage(THREE, branch=Branch(previous_message_id="msg_2")),), (MessageAdded(THREE),)),
        ((PutMessage(make_message("msg_1", "x", status=MessageStatus.QUEUED)),), ()),
        ((RemoveMessage("msg_1"),), ()),
        ((HideMessages(""),), ()),
        ((PutTurn(make_turn()), ShowMessages()), ()),
    ],
)
def test_what_may_change_more_has_all_read_again(changes: tuple[Change, ...], events: tuple[DurableKind, ...]) -> None:
    """Also a message that nobody said to join, and one behind another one than the last: it may be off the path."""
    assert not begun().apply(commit(*changes, events=events), BEHIND_TWO)


def test_each_kind_of_change_was_thought_of() -> None:
    """A new one has all messages read again for each commit that has it, until it is known to leave them alone."""
    states = {PublishSession, JoinSession, RemoveSession}
    may_change = {PutMessage, RemoveMessage, HideMessages, ShowMessages, SelectPath, *states}
    assert set(get_args(commits.Change)) == {*get_args(NO_MESSAGE), *may_change}


def test_an_assembly_is_told_from_where_the_conversation_has_changed() -> None:
    """Since it was taken; one that is not put back, because its user was cancelled, is forgotten."""
    conversation = begun()
    assembly, _ = conversation.take_assembly()
    conversation.put_assembly(assembly)
    assert conversation.take_assembly() == (assembly, 2)
    assert conversation.apply(commit(PutMessage(TWO)), BEHIND_TWO)
    assert conversation.apply(commit(PutMessage(THREE), events=(MessageAdded(THREE),)), BEHIND_TWO)
    conversation.put_assembly(assembly)
    assert conversation.take_assembly() == (assembly, 1)
    other, _ = conversation.take_assembly()
    assert other is not assembly


def provider(provider_id: str) -> Any:
    """Returns a provider whose writers are told apart."""
    return SimpleNamespace(provider_id=provider_id, writer=lambda: SimpleNamespace(size_bytes=1))


def test_a_provider_keeps_its_writer() -> None:
    """The writer's memory of a conversation saves time; a provider that was replaced gets another one."""
    conversation, first, replaced = LiveConversation(), provider("a"), provider("a")
    writer = conversation.take_writer(first)
    conversation.put_writer(first, writer)
    assert conversation.take_writer(first) is writer
    assert conversation.take_writer(first) is not writer
    conversation.put_writer(first, writer)
    assert conversation.take_writer(replaced) is not writer


def test_two_writers_are_kept() -> None:
    """Those that were used last."""
    conversation, providers = LiveConversation(), [provider(name) for name in "aba"]
    providers[2] = provider("c")
    writers = [one.writer() for one in providers]
    for one, writer in zip(providers, writers, strict=True):
        conversation.put_writer(one, writer)
    assert conversation.size_bytes == 2
    assert [conversation.take_writer(one) is writer for one, writer in zip(providers, writers, strict=True)] == [
        False,
        True,
        True,
    ]


class World:
    """Conversations of a store in which each session has a message of so many bytes."""

    def __init__(self, max_messages: int = 2) -> None:
        self.store = FakeStore(conversation=(ONE,))
        self.conversations = LiveConversations(self.store, max_messages * message_bytes(ONE))  # type: ignore[arg-type]

    async def read(self, session_id: str) -> tuple[Message, ...]:
        """Reads a conversation."""
        async with self.conversations.use("default", session_id) as conversation:
            return await self.conversations.read(conversation, "default", session_id)

    def kept(self) -> str:
        """Returns the names of the sessions that are in memory."""
        return "".join(session_id for _, session_id in self.conversations._live)


async def test_the_session_that_was_used_longest_ago_is_dropped() -> None:
    """When all together are too large."""
    world = World()
    for session_id in "abac":
        await world.read(session_id)
    assert (world.kept(), world.conversations.size_bytes) == ("ac", 2 * message_bytes(ONE))
    assert world.conversations.bytes_of("default", "a") == message_bytes(ONE)
    assert world.conversations.bytes_of("default", "b") is None


async def test_a_session_that_is_too_large_alone_is_not_kept() -> None:
    """Its next request is made afresh."""
    world = World(max_messages=0)
    assert await world.read("a") == (ONE,)
    assert (world.kept(), world.conversations.size_bytes) == ("", 0)


async def test_an_idle_session_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """When another one is used."""
    world = World()
    await world.read("a")
    monkeypatch.setattr(module, "IDLE_SECONDS", -1.0)
    await world.read("b")
    assert world.kept() == ""


async def test_what_nobody_uses_is_dropped_at_once() -> None:
    """When memory is short; who uses something goes on."""
    world = World()
    await world.read("a")
    async with world.conversations.use("default", "b") as conversation:
        await world.conversations.read(conversation, "default", "b")
        world.conversations.clear()
        assert world.kept() == "b"
        assert conversation.messages == [ONE]


async def test_one_use_at_a_time() -> None:
    """The others wait, and what they wait for stays."""
    world = World(max_messages=0)
    async with world.conversations.use("default", "a") as conversation:
        await world.conversations.read(conversation, "default", "a")
        waiting = asyncio.create_task(world.read("a"))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        await world.read("b")
        assert world.kept() == "a"
    assert await waiting == (ONE,)
    assert world.conversations.size_bytes == 0


async def test_a_conversation_that_changes_all_the_time_is_used_and_not_kept() -> None:
    """Each read is followed by a commit that has it read again."""
    world = World()
    reads = 0

    class Changing(FakeStore):
        async def history(self, session_id: str) -> tuple[Message, ...]:
            nonlocal reads
            reads += 1
            await self.commit(commit(HideMessages("")))
            return self.conversation

    world.store = Changing(conversation=(ONE,))
    world.conversations = LiveConversations(world.store)  # type: ignore[arg-type]
    assert await world.read("ses_1") == (ONE,)
    assert (reads, world.kept()) == (module.MAX_ROUNDS, "")


async def test_a_conversation_that_has_grown_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is read."""
    world = World()
    await world.read("a")
    monkeypatch.setattr("turnwire.domain.conversation.sizes.MAX_CONVERSATION_BYTES", message_bytes(ONE) - 1)
    with pytest.raises(ConversationTooLarge):
        await world.read("a")
