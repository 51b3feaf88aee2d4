"""Copies of sessions: what becomes of one whose caller is gone."""

import asyncio

import msgspec
import pytest

from tests.support.fakes.core import FakeStore, make_environment, numbered_ids
from tests.support.fakes.domain_values import (
    in_order,
    later,
    make_answer,
    make_message,
    make_part,
    make_session,
    make_turn,
)
from tests.support.fakes.loop import begun
from turnwire.core.environment import Environment
from turnwire.core.intake.requests import NamedRequests, SessionChange
from turnwire.core.turns.registry import Turns
from turnwire.core.use_cases.forks import CopiedConversation, SessionForks, copy_conversation
from turnwire.domain.conversation.messages import (
    Compaction,
    FinishReason,
    Message,
    MessageType,
    Reasoning,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.errors import SessionNotFound
from turnwire.domain.principal import BUILT_IN, Principal
from turnwire.ports.conversations import Conversation


class _SlowStore(FakeStore):
    """Looks for a session when it is told to, and finds none."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = asyncio.Event()
        self.looked_for = list[str]()

    async def session(self, session_id: str) -> Session:
        """Waits."""
        self.looked_for.append(session_id)
        await self.may_go_on.wait()
        raise SessionNotFound(session_id)

    async def request(self, principal: Principal, request_id: str) -> None:
        """Returns that no request was named so."""


def slow_forks() -> tuple[_SlowStore, Environment, SessionForks]:
    """Returns forks over a store that waits."""
    store = _SlowStore()
    environment = make_environment(store)
    requests = NamedRequests(environment.store, environment.detached)
    return store, environment, SessionForks(environment, Turns(environment), requests)


async def test_the_end_waits_for_a_copy_whose_caller_is_gone() -> None:
    """Else the store would close under it."""
    store, environment, forks = slow_forks()
    copying = await begun(forks.fork(BUILT_IN, "ses_1", "", SessionChange()))
    copying.cancel()
    closing = await begun(environment.detached.aclose())
    assert (copying.cancelled(), closing.done()) == (True, False)
    store.may_go_on.set()
    await closing


@pytest.mark.parametrize("request_id", ["", "named"])
async def test_a_copy_that_waits_ends_with_its_caller(request_id: str) -> None:
    """Else a client that cancels leaves one behind for each of its calls, before those of others."""
    store, environment, forks = slow_forks()
    copying = await begun(forks.fork(BUILT_IN, "ses_1", "", SessionChange()))
    waiting = await begun(forks.fork(BUILT_IN, "ses_2", "", SessionChange(request_id=request_id)))
    early = asyncio.create_task(forks.fork(BUILT_IN, "ses_3", "", SessionChange(request_id=request_id and "other")))
    await asyncio.sleep(0)  # its work is to begin
    early.cancel()
    waiting.cancel()
    store.may_go_on.set()
    await environment.detached.aclose()
    with pytest.raises(SessionNotFound):
        await copying
    assert store.looked_for == ["ses_1"]
    with pytest.raises(SessionNotFound):
        await forks.fork(BUILT_IN, "ses_4", "", SessionChange(request_id=request_id))


async def test_copies_of_tenants_take_turns() -> None:
    """One tenant with many copies does not delay those of others by all of them."""
    store, _, forks = slow_forks()
    other = msgspec.structs.replace(BUILT_IN, tenant="other")
    wanted = [(BUILT_IN, "ses_1"), (BUILT_IN, "ses_2"), (BUILT_IN, "ses_3"), (other, "ses_4")]
    copying = [await begun(forks.fork(who, session_id, "", SessionChange())) for who, session_id in wanted]
    store.may_go_on.set()
    await asyncio.wait(copying)
    assert all(isinstance(one.exception(), SessionNotFound) for one in copying)
    assert store.looked_for == ["ses_1", "ses_2", "ses_4", "ses_3"]


CALL = ToolUse(name="look", call_id="c1", input_json="{}", status=ToolStatus.SUCCESS, output="a cat")
TURN = make_turn(user_message_id="msg_1", status=TurnStatus.ENDED, finish_reason=FinishReason.STOP, steps=2)
MESSAGES = in_order(
    make_message("msg_1", "look", turn_id="trn_1", request_id="named", metadata_json='{"a":1}'),
    make_answer(
        "msg_2",
        make_part(0, Reasoning("hm"), provider_state='{"sealed":1}'),
        make_part(1, CALL, part_id="prt_call"),
        turn_id="trn_1",
        answers_message_id="msg_1",
    ),
    make_message(
        "msg_3",
        ToolResult(call_id="c1", output="a cat", tool_call_id="prt_call"),
        type=MessageType.TOOL_RESULT,
        answers_message_id="msg_2",
    ),
    make_message(
        "msg_4",
        "a cat was seen",
        type=MessageType.SYSTEM,
        compaction=Compaction(through_message_id="msg_3", message_count=3, tokens_before=9, tokens_after=1),
    ),
)


def copied(
    *messages: Message, through: str = "", turns: tuple[Turn, ...] = (TURN,), prefix: str = "new"
) -> CopiedConversation:
    """Returns a copy whose ids begin with a word."""
    make = numbered_ids()
    conversation = Conversation(make_session(), messages or MESSAGES, turns)
    return copy_conversation(conversation, through, "ses_2", lambda kind: make(f"{prefix}_{kind}"), later(9))


def test_a_copied_turn_has_used_nothing() -> None:
    """It is over, as its original is or will be."""
    used = msgspec.structs.replace(TURN, cost_pico_usd=7, tools=(), system="be brief", traceparent="00-1")
    [turn] = copied(turns=(used,)).turns
    assert (turn.status, turn.finish_reason, turn.steps) == (TurnStatus.ENDED, FinishReason.STOP, 2)
    assert (turn.cost_pico_usd, turn.usage, turn.system, turn.traceparent) == (None, None, None, "")
    running = msgspec.structs.replace(TURN, status=TurnStatus.RUNNING, finish_reason=None, steps=1)
    [turn] = copied(turns=(running,)).turns
    assert (turn.status, turn.finish_reason, turn.ended_at) == (TurnStatus.ENDED, FinishReason.INTERRUPTED, later(9))
