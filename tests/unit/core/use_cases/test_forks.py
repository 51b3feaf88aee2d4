"""Copies of sessions: what becomes of one whose caller is gone."""

import asyncio
import re

import msgspec
import pytest

from tests.support.fakes.core import FakeStore, make_environment, numbered_ids
from tests.support.fakes.domain_values import (
    NOW,
    in_order,
    later,
    make_answer,
    make_message,
    make_part,
    make_session,
    make_turn,
)
from tests.support.fakes.loop import settled
from turnwire.core.intake.requests import NamedRequests, SessionChange
from turnwire.core.turns.registry import Turns
from turnwire.core.use_cases.forks import CopiedConversation, SessionForks, copy_conversation
from turnwire.domain.conversation.messages import (
    Compaction,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    Origin,
    Reasoning,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.errors import MessageNotFound, SessionNotFound, TurnInProgress
from turnwire.domain.principal import BUILT_IN
from turnwire.ports.conversations import Conversation


class _SlowStore(FakeStore):
    """Looks for a session when it is told to, and finds none."""

    def __init__(self) -> None:
        """Begins without being told."""
        super().__init__()
        self.may_go_on = asyncio.Event()

    async def session(self, session_id: str) -> Session:
        """Waits."""
        await self.may_go_on.wait()
        raise SessionNotFound(session_id)


async def test_the_end_waits_for_a_copy_whose_caller_is_gone() -> None:
    """Else the store would close under it."""
    store = _SlowStore()
    environment = make_environment(store)
    requests = NamedRequests(environment.store, environment.detached)
    forks = SessionForks(environment, Turns(environment), requests)
    copying = asyncio.create_task(forks.fork(BUILT_IN, "ses_1", "", SessionChange()))
    await settled()
    copying.cancel()
    closing = asyncio.create_task(environment.detached.aclose())
    await settled()
    assert (copying.cancelled(), closing.done()) == (True, False)
    store.may_go_on.set()
    await closing


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


def test_references_lead_to_copies() -> None:
    """Between messages, of results to their calls, of a summary to what it covers, and of turns to their questions."""
    copy = copied()
    first, answer, result, summary = copy.messages
    assert list(copy.message_ids.items()) == [(f"msg_{number}", f"new_msg_{number}") for number in range(1, 5)]
    assert (answer.answers_message_id, result.answers_message_id) == (first.message_id, answer.message_id)
    assert result.parts[0].content.tool_call_id == answer.parts[1].part_id
    assert summary.compaction.through_message_id == result.message_id
    [turn] = copy.turns
    assert (first.turn_id, answer.turn_id, turn.user_message_id) == (turn.turn_id, turn.turn_id, first.message_id)
    assert result.turn_id == ""
    assert {message.session_id for message in copy.messages} | {turn.session_id} == {"ses_2"}
    assert copy.last_id == "msg_4"


def test_everything_else_is_equal() -> None:
    """What providers sealed and what clients noted included; names of requests belong to the original."""
    first, answer = copied().messages[:2]
    assert first.metadata_json == '{"a":1}'
    assert first.request_id == ""
    assert first.origin == Origin(session_id="ses_1", message_id="msg_1")
    assert answer.parts[0].provider_state == '{"sealed":1}'
    assert [part.content for part in answer.parts] == [part.content for part in MESSAGES[1].parts]


def test_a_copied_turn_has_used_nothing() -> None:
    """It is over, as its original is or will be."""
    used = msgspec.structs.replace(TURN, cost_pico_usd=7, tools=(), system="be brief", traceparent="00-1")
    [turn] = copied(turns=(used,)).turns
    assert (turn.status, turn.finish_reason, turn.steps) == (TurnStatus.ENDED, FinishReason.STOP, 2)
    assert (turn.cost_pico_usd, turn.usage, turn.system, turn.traceparent) == (None, None, None, "")
    running = msgspec.structs.replace(TURN, status=TurnStatus.RUNNING, finish_reason=None, steps=1)
    [turn] = copied(turns=(running,)).turns
    assert (turn.status, turn.finish_reason, turn.ended_at) == (TurnStatus.ENDED, FinishReason.INTERRUPTED, later(9))


@pytest.mark.parametrize("through", ["msg_1", "msg_2", "msg_3"])
def test_a_copy_ends_with_its_last_message(through: str) -> None:
    """And has the turns whose questions it has."""
    copy = copied(through=through)
    assert (copy.last_id, len(copy.turns)) == (through, 1)
    with pytest.raises(MessageNotFound):
        copied(through="msg_9")


def test_what_is_not_complete_ends_a_copy() -> None:
    """An answer that streams, and an open call of a turn that runs; what comes behind is left out too."""
    running = msgspec.structs.replace(TURN, status=TurnStatus.RUNNING, finish_reason=None)
    streaming = make_answer("msg_2", "so f", status=MessageStatus.STREAMING, turn_id="trn_1")
    open_call = make_answer("msg_2", ToolUse(name="look", call_id="c1"), turn_id="trn_1")
    note = make_message("msg_3", "note", type=MessageType.HOST)
    for incomplete in (streaming, open_call):
        messages = in_order(MESSAGES[0], incomplete, note)
        assert list(copied(*messages, turns=(running,)).message_ids) == ["msg_1"]
        assert list(copied(*messages, turns=(running,), through="msg_1").message_ids) == ["msg_1"]
        for through in ("msg_2", "msg_3"):
            with pytest.raises(TurnInProgress, match=re.escape("'msg_2' is not complete")):
                copied(*messages, turns=(running,), through=through)


def test_nothing_can_be_copied() -> None:
    """An empty conversation."""
    copy = copy_conversation(Conversation(make_session(), (), ()), "", "ses_2", numbered_ids(), NOW)
    assert (copy.messages, copy.turns, copy.last_id) == ((), (), "")
