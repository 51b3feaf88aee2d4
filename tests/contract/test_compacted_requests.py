"""Whatever is summarised of whatever conversation, each API takes the request that is left."""

import json
from itertools import accumulate

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.domain_values import make_message, make_turn
from tests.support.models.wire_requests import BUILDERS, body_of, mostly_with, normal_run, violations
from tests.support.oracles.histories import FILES, HOST_SECRET, histories
from tests.support.oracles.whole_requests import assemble, prefix_changed, prefix_of
from turnwire.core.context.compaction import Allowance, choose_cut
from turnwire.domain.conversation.messages import Compaction, Message, MessageType, ModelRef
from turnwire.domain.conversation.turns import ToolDefinition, Turn
from turnwire.ports.provider import ProviderRequest

MODEL = ModelRef("p", "claude-opus-4-8")


def request_for(history: tuple[Message, ...], turn: Turn) -> ProviderRequest:
    """Returns the next request, as a step makes it."""
    request = msgspec.structs.replace(assemble(history, turn, "be brief").request, files=FILES)
    return msgspec.structs.replace(request, prefix_changed=prefix_changed(request, prefix_of(request)))


def summary_through(message_id: str, turn: Turn) -> Message:
    """Returns a summary that the turn made."""
    compaction = Compaction(through_message_id=message_id, message_count=1, tokens_before=1, tokens_after=1)
    return make_message("sum", "so far", type=MessageType.SYSTEM, turn_id=turn.turn_id, compaction=compaction)


def in_turns(history: tuple[Message, ...]) -> tuple[Message, ...]:
    """Returns the messages with the ids of turns: each user message begins one."""
    turns = accumulate((message.type is MessageType.USER for message in history), initial=0)
    return tuple(
        msgspec.structs.replace(message, turn_id=f"t{turn}")
        for message, turn in zip(history, [*turns][1:], strict=True)
    )


def check(dialect: str, history: tuple[Message, ...], turn: Turn) -> None:
    """Checks the request of a conversation by the rules of its API."""
    request = request_for(history, turn)
    body = body_of(BUILDERS[dialect](request, turn.model.provider_id))
    assert violations(dialect, body, request) == []
    assert HOST_SECRET not in json.dumps(body, ensure_ascii=False)


@pytest.mark.parametrize("dialect", BUILDERS)
@given(data=st.data())
@normal_run
def test_a_summary_anywhere_leaves_a_request_that_is_taken(dialect: str, data: st.DataObject) -> None:
    """Also one that divides a turn, or covers all there is."""
    history = in_turns(data.draw(histories(mostly_with(dialect, MODEL.provider_id, MODEL.model_id))))
    turn_id = data.draw(st.sampled_from([message.turn_id for message in history] or [""]))
    turn = make_turn(turn_id, model=MODEL, tools=(ToolDefinition("read", "", ""),))
    through = data.draw(st.sampled_from([message.message_id for message in history] or ["none"]))
    check(dialect, (*history, summary_through(through, turn)), turn)


@pytest.mark.parametrize("dialect", BUILDERS)
@given(data=st.data())
@normal_run
def test_a_planned_cut_leaves_a_request_that_is_taken(dialect: str, data: st.DataObject) -> None:
    """And what is sent is what was to be kept: the covered messages are gone, all others are there in their order."""
    history = in_turns(data.draw(histories(mostly_with(dialect, MODEL.provider_id, MODEL.model_id))))
    users = [message for message in history if message.type is MessageType.USER]
    turn_id, question = (users[-1].turn_id, users[-1].message_id) if users else ("t", "none")
    turn = make_turn(turn_id, user_message_id=question, model=MODEL)
    before = request_for(history, turn).messages
    allowed = Allowance(window=10_000, answer=0, prompt=10_000, keep=data.draw(st.integers(0, 800)), summary=10)
    cut = choose_cut(before, turn, allowed, 0, lambda _: 100)
    if cut is None:
        return
    compacted = (*history, summary_through(cut.through_message_id, turn))
    check(dialect, compacted, turn)
    covered = {message.message_id for message in cut.covered}
    after = [message.message_id for message in request_for(compacted, turn).messages]
    assert sorted(set(after) - {"sum"}) == sorted({message.message_id for message in before} - covered)
