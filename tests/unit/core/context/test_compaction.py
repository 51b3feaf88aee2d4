"""When older messages are summarised, what the summary covers, and what stands behind it."""

import pytest

from tests.support.fakes.context import says
from tests.support.fakes.context_world import OLD, USAGE, WINDOW, WORDS, World, words_in
from tests.support.fakes.domain_values import make_answer, make_message, make_turn, outcome
from turnwire.core.context.next_request import StepRequests
from turnwire.core.context.summaries import INSTRUCTION
from turnwire.core.ending.spending import spent_by_call
from turnwire.domain.conversation.events import CompactionStarted, ContextCompacted, MessageAdded
from turnwire.domain.conversation.messages import (
    Compaction,
    FinishReason,
    MessageStatus,
    MessageType,
    ModelRun,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.errors import ProviderContextFull
from turnwire.domain.money import Usage
from turnwire.ports.commit import PutMessage


async def test_older_messages_are_summarised_before_a_request_that_would_not_fit() -> None:
    """The summary stands in their place; it is stored and told in one commit, with its usage."""
    world = World(says("what was", USAGE))
    step = await world.requests.next()
    [asked] = world.provider.requests
    assert (asked.system, asked.tools, asked.options.max_output_tokens) == (INSTRUCTION, (), 500)
    assert all(word in words_in(asked.messages[0]) for word in ("first", "one", "second", "two"))
    assert "third" not in words_in(asked.messages[0])
    first, last = step.request.messages
    assert "what was" in words_in(first)
    assert (first.type, last.message_id) == (MessageType.USER, "msg_user")
    assert step.is_compacted
    [commit] = world.store.commits
    [summary] = world.store.summaries()
    assert commit.changes == (
        PutMessage(summary),
        *spent_by_call(world.turn, summary, summary.created_at).changes,
    )
    assert summary.compaction is not None
    assert [event.kind for event in commit.events] == [
        MessageAdded(summary),
        ContextCompacted(summary.message_id, summary.compaction),
    ]
    assert {event.turn_id for event in commit.events} == {"trn_1"}
    assert (summary.type, summary.status, summary.turn_id) == (MessageType.SYSTEM, MessageStatus.COMPLETE, "trn_1")
    assert (summary.usage, summary.cost_pico_usd) == (USAGE, 34)
    assert summary.model_run == ModelRun(provider_id="offline", model_requested="echo")
    told = summary.compaction
    assert (told.through_message_id, told.message_count) == ("a2", 4)
    assert told.tokens_before > 1600 > 400 > told.tokens_after == step.sent.estimated_tokens
    assert world.published == [CompactionStarted(4, told.tokens_before, WINDOW)]


@pytest.mark.parametrize(("session", "server", "compacts"), [(None, False, 0), (False, True, 0), (True, False, 1)])
async def test_compaction_can_be_off(session: bool | None, server: bool, compacts: int) -> None:
    """For the server, and for a session, which counts more."""
    world = World(says("what was"), compaction=session, enabled=server)
    await world.requests.next()
    assert len(world.store.summaries()) == compacts


async def test_the_next_summary_covers_the_one_before() -> None:
    """It is part of what is summarised, and stands no more."""
    world = World(says(f"what was {WORDS}"), says("all of it"))
    await world.requests.next()
    world.store.add(
        make_answer("a3", f"three {WORDS}", turn_id="trn_1"),
        make_message("u4", f"fourth {WORDS}", turn_id="t4"),
        make_answer("a4", f"four {WORDS}", turn_id="t4"),
        make_message("u5", "fifth", turn_id="t5"),
    )
    later = StepRequests(world.environment, make_turn("t5", user_message_id="u5"))
    step = await later.next()
    asked = words_in(world.provider.requests[1].messages[0])
    assert all(word in asked for word in ("what was", "third", "three", "fourth", "four"))
    assert "first" not in asked
    assert ["all of it" in words_in(message) for message in step.request.messages] == [True, False]
    compaction = world.store.summaries()[1].compaction
    assert compaction is not None
    assert (compaction.through_message_id, compaction.message_count) == ("a4", 8)


async def test_a_turn_that_is_too_long_keeps_its_question() -> None:
    """It stands behind the summary, and the steps behind the cut follow."""
    call = ToolUse(name="read", call_id="c", input_json="{}", status=ToolStatus.SUCCESS, output=WORDS[:1000])
    steps = [make_answer(f"s{number}", call, finish_reason=FinishReason.TOOL_USE) for number in range(10)]
    world = World(says("what was"), history=[OLD[-1], *steps])
    step = await world.requests.next()
    summary, question, *kept = step.request.messages
    assert "what was" in words_in(summary)
    assert "third" in words_in(world.provider.requests[0].messages[0])
    assert question == OLD[-1]
    assert 0 < len(kept) < 10
    assert kept == steps[10 - len(kept) :]
    again = await world.requests.next()
    assert again.request.messages == step.request.messages


async def test_a_later_summary_never_covers_less_than_the_one_before() -> None:
    """Also when nothing but the question of a divided turn stands behind that one: its steps are not sent again."""
    call = ToolUse(name="read", call_id="c", input_json="{}", status=ToolStatus.SUCCESS, output=WORDS)
    steps = [make_answer(f"s{number}", call, turn_id="t1", finish_reason=FinishReason.TOOL_USE) for number in range(6)]
    first = make_message(
        "sum", "so far", type=MessageType.SYSTEM, turn_id="t1",
        compaction=Compaction(through_message_id="s5", message_count=6, tokens_before=3000, tokens_after=100),
    )  # fmt: skip
    history = [make_message("u1", WORDS * 5, turn_id="t1"), *steps, first, OLD[-1]]
    world = World(says("all of it"), history=history)
    step = await world.requests.next()
    assert [m.message_id for m in step.request.messages][1:] == ["msg_user"]
    summary = world.store.summaries()[-1].compaction
    assert summary is not None
    assert summary.through_message_id == "s5"
    assert summary.tokens_after < summary.tokens_before


async def test_a_step_is_compacted_once() -> None:
    """One that was compacted before it was sent, and is refused, is not compacted again."""
    world = World(says("what was"), (ProviderContextFull("full"),))
    assert (await world.run()).turn.finish_reason is FinishReason.CONTEXT_FULL
    assert len(world.provider.requests) == 2


async def test_the_turn_sums_its_summaries() -> None:
    """Usage and cost of the summary are the turn's; it is no step. The answer records what was sent."""
    world = World(says("what was", USAGE), says("fine", Usage(input_tokens=5, output_tokens=1)))
    total = Usage(input_tokens=35, output_tokens=5)
    assert outcome(await world.run()) == {
        "finish_reason": FinishReason.STOP,
        "usage": total,
        "cost_pico_usd": 40,
        "steps": 1,
    }
    sent = [message.sent_context for message in world.store.conversation if message.type is MessageType.ASSISTANT][-1]
    assert sent is not None
    assert sent.message_count == 2
