"""The conversations in memory are those that are stored, whatever is committed and whenever they are read."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, adding, creating, make_answer, make_message, make_turn, removing
from tests.support.fakes.opened_store import OpenedStore, opened_store
from tests.support.oracles.live_conversations import check_conversations
from tests.support.oracles.whole_requests import assemble, prefix_of
from turnwire.api.wire.codec import ProtoCodec
from turnwire.core.conversation.conversations import LiveConversations
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged, MessageAdded, TurnStarted
from turnwire.domain.conversation.messages import Branch, Draft, DraftPart, Message, MessageStatus
from turnwire.domain.errors import SessionNotFound
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import (
    Change,
    Commit,
    HideMessages,
    NewEvent,
    OrderQueue,
    PathEnd,
    PutDraft,
    PutMessage,
    PutTurn,
    RemoveMessage,
    RequireHead,
    SelectPath,
    ShowMessages,
)
from turnwire.ports.store import StoredEvent
from turnwire.storage.sqlite.store import SqliteStore, StorageSettings

SESSION = DEFAULT_TENANT, "ses_1"
TOLD = NewEvent(ConversationChanged(ConversationChange.REVERTED, "anything"))
MESSAGES = 30


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with a session of some messages."""
    async with opened_store(tmp_path) as running:
        await running.store.commit(creating())
        changes = tuple(PutMessage(make_message(f"msg_{n}", f"text {n}")) for n in range(MESSAGES))
        await running.store.commit(Commit(session_id="ses_1", at=NOW, changes=changes))
        yield running


async def read(conversations: LiveConversations, tenant: str = DEFAULT_TENANT) -> tuple[Message, ...]:
    """Returns the conversation."""
    async with conversations.use(tenant, "ses_1") as conversation:
        return await conversations.read(conversation, tenant, "ses_1")


async def check_request(conversations: LiveConversations) -> None:
    """Asserts that the next request, which goes on from the one before, is what a fresh one is."""
    turn = make_turn()
    async with conversations.use(*SESSION) as conversation:
        history = await conversations.read(conversation, *SESSION)
        assembly, same = conversation.take_assembly()
        known, fresh = assembly.assemble(history, same, turn, "", ()), assemble(history, turn, "", ())
        assert known == fresh
        assert assembly.prefix() == prefix_of(fresh.request)
        conversation.put_assembly(assembly)


class Author:
    """Draws commits, as turns and clients make them and as they do not."""

    def __init__(self, seed: int) -> None:
        """Takes what decides."""
        self.chance = random.Random(seed)
        self.ids = [f"msg_{n}" for n in range(0, MESSAGES, 5)]
        self.queued = list[str]()
        self.number = MESSAGES

    def commit(self) -> Commit:
        """Returns the next one."""
        self.number += 1
        kinds = (self._new, self._new, self._answer, self._again, self._queue, self._start, self._other)
        changes, events = self.chance.choice(kinds)()
        return Commit(session_id="ses_1", at=NOW, changes=changes, events=events)

    def _id(self) -> str:
        self.ids.append(f"msg_{self.number}")
        return self.ids[-1]

    def _new(self) -> tuple[tuple[Change, ...], tuple[NewEvent, ...]]:
        commit = adding(make_message(self._id(), f"text {self.number}"))
        return commit.changes, commit.events

    def _answer(self) -> tuple[tuple[Change, ...], tuple[NewEvent, ...]]:
        """Returns the beginning of an answer, or its end with another message."""
        message = make_answer(self._id(), f"text {self.number}")
        streaming = msgspec.structs.replace(message, parts=(), status=MessageStatus.STREAMING)
        if self.chance.random() < 0.5:
            draft = PutDraft(Draft(streaming, (DraftPart(message.parts[0]),)))
            return (PutMessage(streaming), draft), (NewEvent(MessageAdded(streaming)),)
        other = adding(make_message(f"{message.message_id}_b", "and"))
        return (PutMessage(message), *other.changes), (NewEvent(MessageAdded(message)), *other.events)

    def _again(self) -> tuple[tuple[Change, ...], tuple[NewEvent, ...]]:
        """Returns a message with other content, on the path or off it; without an event, as a tool's log lines are."""
        one = self.chance.choice(self.ids)
        again = PutMessage(make_message(one, f"again {self.number} " * self.chance.randrange(1, 9)))
        refused = (RequireHead(10**6), again)
        return self.chance.choice([(again,), (again, OrderQueue((one,))), refused]), ()

    def _queue(self) -> tuple[tuple[Change, ...], tuple[NewEvent, ...]]:
        message = make_message(self._id(), "later", status=MessageStatus.QUEUED)
        self.queued.append(message.message_id)
        return (PutMessage(message),), (NewEvent(MessageAdded(message)),)

    def _start(self) -> tuple[tuple[Change, ...], tuple[NewEvent, ...]]:
        """Returns the beginning of the turn of a message that waits."""
        if not self.queued:
            return self._queue()
        message_id = self.queued.pop(0)
        turn = make_turn(f"trn_{message_id}", user_message_id=message_id)
        return (PutTurn(turn), PutMessage(make_message(message_id, "now"))), (NewEvent(TurnStarted(turn)),)

    def _other(self) -> tuple[tuple[Change, ...], tuple[NewEvent, ...]]:
        """Returns what may change more than single messages."""
        one, branch = self.chance.choice(self.ids), Branch(previous_message_id=self.chance.choice(self.ids))
        again, new = make_message(one, "moved"), make_message(f"msg_{self.number}", "beside")
        changes: list[tuple[Change, ...]] = [
            (PutMessage(msgspec.structs.replace(again, status=MessageStatus.QUEUED)),),
            (PutMessage(again, at_end=True),),
            (PutMessage(new, is_hidden=True),),
            (PutMessage(new, branch=branch),),
            (RemoveMessage(one),),
        ]
        rewinds: list[tuple[Change, ...]] = [
            (HideMessages(one),),
            (ShowMessages(),),
            (SelectPath(one, self.chance.choice(list(PathEnd))),),
        ]
        changed = self.chance.choice(changes + rewinds)
        if new in [change.message for change in changed if isinstance(change, PutMessage)]:
            self.ids.append(new.message_id)
        return changed, (TOLD,) if changed in rewinds else ()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_a_conversation_in_memory_is_what_is_stored(opened: OpenedStore, seed: int) -> None:
    """After any commits, whether they succeed or not, with readers before, between and behind them."""
    author, kept = Author(seed), 0
    conversations = LiveConversations(opened.store)
    for _ in range(150):
        readers = [asyncio.create_task(read(conversations)) for _ in range(author.chance.randrange(3))]
        for _ in range(author.chance.randrange(6)):
            await asyncio.sleep(0)
        commits = [opened.store.commit(author.commit()) for _ in range(author.chance.randrange(1, 4))]
        for reader in readers:
            if author.chance.random() < 0.2:
                reader.cancel()
        await asyncio.wait([*commits, *readers])
        for commit in commits:
            commit.exception()
        kept += await check_conversations(conversations, opened.store)
        await check_request(conversations)
        kept += await check_conversations(conversations, opened.store)
    assert kept > 150


async def test_what_is_committed_is_not_read_again(opened: OpenedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn adds its message, and answers it, while the conversation is in memory: the very objects are there."""
    conversations = LiveConversations(opened.store)
    first = await read(conversations)

    def refuse(tenant: str) -> None:
        raise AssertionError("it is read")

    of = opened.store.of
    monkeypatch.setattr(opened.store, "of", refuse)
    answer = make_answer("msg_answer", "so")
    streaming = msgspec.structs.replace(answer, parts=(), status=MessageStatus.STREAMING)
    await opened.store.commit(adding(make_message("msg_new", "new")))
    begun = Commit(
        session_id="ses_1", at=NOW, changes=(PutMessage(streaming),), events=(NewEvent(MessageAdded(streaming)),)
    )
    await opened.store.commit(begun)
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutMessage(answer),)))
    second = await read(conversations)
    assert [message.message_id for message in second[MESSAGES:]] == ["msg_new", "msg_answer"]
    assert second[-1].parts is answer.parts
    assert all(one is other for one, other in zip(first, second, strict=False))
    monkeypatch.setattr(opened.store, "of", of)
    assert await check_conversations(conversations, opened.store) == 1


async def test_what_is_committed_during_a_read_is_applied(opened: OpenedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The read has not seen it."""
    conversations, reads = LiveConversations(opened.store), opened.store.of(DEFAULT_TENANT)

    class Slow:
        async def history(self, session_id: str) -> tuple[Message, ...]:
            found = await reads.history(session_id)
            await opened.store.commit(adding(make_message("msg_new", "new")))
            return found

    monkeypatch.setattr(opened.store, "of", lambda _: Slow())
    assert (await read(conversations))[-1].message_id == "msg_new"


async def test_a_commit_is_applied_before_it_is_published(tmp_path: Path) -> None:
    """A reader that hears of a message may ask for a request with it."""
    known = list[int]()

    def publish(_: Sequence[StoredEvent]) -> None:
        known.extend(len(conversation.messages) for conversation in conversations._live.values())

    store = await SqliteStore.open(StorageSettings(path=tmp_path / "turnwire.db"), ProtoCodec(), publish)
    conversations = LiveConversations(store)
    await store.commit(creating())
    await read(conversations)
    for number in range(3):
        await store.commit(adding(make_message(f"msg_{number}", "new")))
    await store.aclose()
    assert known == [1, 2, 3]


async def test_sessions_that_are_gone_or_of_others_are_not_found(opened: OpenedStore) -> None:
    """Also when the conversation is in memory; nothing is kept of them."""
    conversations = LiveConversations(opened.store)
    await read(conversations)
    with pytest.raises(SessionNotFound):
        await read(conversations, "other")
    assert len(await read(conversations)) == MESSAGES
    await opened.store.commit(removing())
    with pytest.raises(SessionNotFound):
        await read(conversations)
    assert (len(conversations._live), conversations.size_bytes) == (0, 0)
