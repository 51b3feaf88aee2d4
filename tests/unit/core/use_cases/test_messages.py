"""Messages that are stored without a turn, and tool results that come at the wrong moment."""

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.fakes.core import FakeStore, make_environment
from tests.support.fakes.domain_values import (
    make_answer,
    make_session,
)
from tests.support.fakes.loop import settled
from turnwire.core.actor import LARGE_BYTES
from turnwire.core.environment import Environment
from turnwire.core.intake.requests import NamedRequests, NewMessage, NewPart, NewText, Receipt
from turnwire.core.turns.registry import Turns
from turnwire.core.use_cases.messages import Conversations
from turnwire.core.use_cases.tool_results import ToolResults
from turnwire.domain.conversation.events import MessageAdded
from turnwire.domain.conversation.messages import Message, MessageType, ToolResult, ToolUse
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.limits import Limits
from turnwire.domain.principal import BUILT_IN
from turnwire.ports.commit import Commit, Committed, PutMessage, RecordRequest
from turnwire.ports.store import StoredRequest

CALL = ToolUse(name="read", call_id="c1", input_json="{}")
RESULT = ToolResult(call_id="c1", output="1")


class WaitingTurns(Turns):
    """One session, whose running turn waits for calls."""

    def __init__(self, environment: Environment, *awaited_call_ids: str) -> None:
        """Takes the ids of the calls; without any, no turn runs."""
        super().__init__(environment)
        turn = SimpleNamespace(turn_id="trn_running")
        self._live = SimpleNamespace(turn=turn, awaited_call_ids=frozenset(awaited_call_ids))

    def live(self, session_id: str) -> Any:
        """Returns the turn; None when it waits for nothing."""
        return self._live if self._live.awaited_call_ids else None


def _conversations(
    *history: Message, awaited: tuple[str, ...] = (), limits: Limits | None = None
) -> tuple[Conversations, FakeStore]:
    store = FakeStore(sessions_by_id={"ses_1": make_session()}, conversation=history)
    environment = make_environment(store, settings={"limits": limits or Limits()})
    return _over(environment, *awaited), store


def _over(environment: Environment, *awaited: str) -> Conversations:
    turns = WaitingTurns(environment, *awaited)
    requests = NamedRequests(environment.store, environment.detached)
    return Conversations(environment, turns, requests, tool_results=ToolResults(environment, turns))


def _new(*parts: NewPart, **fields: object) -> NewMessage:
    return NewMessage(**{"session_id": "ses_1", "parts": parts, **fields})


async def test_large_messages_are_stored_one_by_one() -> None:
    """Small ones that wait together are one commit; the commits of other sessions come between large ones."""
    conversations, store = _conversations()
    store.automatic = False
    texts = "first", "small", "small", "x" * (LARGE_BYTES + 1), "y" * (LARGE_BYTES + 1)
    appending = [asyncio.create_task(conversations.append(BUILT_IN, _new(NewText(text)))) for text in texts]
    await settled()
    for at in range(4):
        assert len(store.futures) == at + 1
        store.futures[at].set_result(Committed(at, at + 1))
        await settled()
    await asyncio.gather(*appending)
    added = [sum(isinstance(event.kind, MessageAdded) for event in commit.events) for commit in store.commits]
    assert added == [1, 2, 1, 1]


async def test_a_repetition_after_a_cancelled_first_try_gets_its_answer() -> None:
    """The commit of a caller that went away is under way: who asks again meanwhile waits for it."""
    conversations, store = _conversations()
    store.automatic = False
    new = _new(NewText("note"), request_id="req", fingerprint="f")
    first = asyncio.create_task(conversations.append(BUILT_IN, new))
    while not store.commits:
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait((first,))
    second = asyncio.create_task(conversations.append(BUILT_IN, new))
    for _ in range(5):
        await asyncio.sleep(0)
    [record] = [change for change in store.commits[0].changes if isinstance(change, RecordRequest)]
    store.requests["req"] = StoredRequest("f", record.receipt_json, before_sequence=7)
    store.futures[0].set_result(Committed(7, 8))
    expected = Receipt(session_id="ses_1", message_id="msg_1", sequence=7, duplicate=True)
    assert (await second, len(store.commits)) == (expected, 1)


async def test_a_request_without_a_name_ends_with_its_caller() -> None:
    """As long as its commit is not under way: nobody would look for its answer."""

    class SlowStore(FakeStore):
        """Answers no question about a session before it may."""

        def __init__(self) -> None:
            super().__init__(sessions_by_id={"ses_1": make_session()})
            self.asked = asyncio.Event()

        async def cached_session(self, session_id: str) -> Session:
            self.asked.set()
            await asyncio.Event().wait()
            raise AssertionError("nobody waits so long")

    store = SlowStore()
    environment = make_environment(store)
    conversations = _over(environment)
    appending = asyncio.create_task(conversations.append(BUILT_IN, _new(NewText("note"))))
    await store.asked.wait()
    appending.cancel()
    await asyncio.wait((appending,))
    await asyncio.wait_for(environment.detached.aclose(), 1)
    assert store.commits == []


class Gated(FakeStore):
    """Reads the messages whose calls get results, and answers when it may."""

    def __init__(self, *history: Message) -> None:
        super().__init__(sessions_by_id={"ses_1": make_session()}, conversation=history)
        self.reads = list[asyncio.Future[None]]()

    async def callers(self, session_id: str, message_ids: Collection[str]) -> tuple[Message, ...]:
        """Returns what was stored when the read began."""
        found = await super().callers(session_id, message_ids)
        self.reads.append(asyncio.get_running_loop().create_future())
        await self.reads[-1]
        return found

    def commit(self, commit: Commit) -> asyncio.Future[Committed]:
        """Keeps what is written of the conversation."""
        written = {
            change.message.message_id: change.message for change in commit.changes if isinstance(change, PutMessage)
        }
        self.conversation = tuple(written.get(message.message_id, message) for message in self.conversation)
        return super().commit(commit)


@pytest.mark.parametrize("second_reads", ["before the first is stored", "while the first is stored"])
async def test_of_two_results_for_a_call_one_is_folded(second_reads: str) -> None:
    """The other one sees what the first has stored, whenever it read, and is shown by itself."""
    store = Gated(make_answer("msg_a", CALL))
    environment = make_environment(store)
    conversations, new = _over(environment), _new(RESULT, type=MessageType.TOOL_RESULT)
    first, second = (asyncio.create_task(conversations.append(BUILT_IN, new)) for _ in range(2))
    await settled()
    if second_reads == "while the first is stored":
        store.automatic = False
        store.reads[0].set_result(None)
        await settled()
        store.reads[1].set_result(None)
        await settled()
        assert len(store.commits) == 1
        store.automatic = True
        store.futures[0].set_result(Committed(0, 2))
    else:
        store.reads[0].set_result(None)
        await first
        store.reads[1].set_result(None)
    await settled()
    for read in store.reads[2:]:
        read.set_result(None)
    await asyncio.gather(first, second)
    folded = [
        change.message.answers_message_id
        for commit in store.commits
        for change in commit.changes
        if isinstance(change, PutMessage) and change.message.type is MessageType.TOOL_RESULT
    ]
    assert sorted(folded) == ["", "msg_a"]


async def test_a_result_whose_caller_is_gone_is_stored() -> None:
    """As soon as its command is given: nothing takes it back."""
    conversations, store = _conversations(make_answer("msg_a", CALL))
    store.automatic = False
    appending = asyncio.create_task(conversations.append(BUILT_IN, _new(RESULT, type=MessageType.TOOL_RESULT)))
    await settled()
    appending.cancel()
    await asyncio.wait((appending,))
    assert not store.futures[0].cancelled()
