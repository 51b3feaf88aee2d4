"""When older messages are summarised, what the summary covers, and what stands behind it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.context import says
from tests.support.fakes.context_world import OLD, USAGE, WINDOW, WORDS, World, words_in
from tests.support.fakes.domain_values import make_answer, make_message, make_part, make_turn, outcome
from turnwire.core.context.compaction import Allowance, Cut, allowance, choose_cut
from turnwire.core.context.next_request import StepRequests
from turnwire.core.context.summaries import INSTRUCTION
from turnwire.core.ending import spent_by_call
from turnwire.core.settings import CompactionSettings
from turnwire.domain.conversation.events import CompactionStarted, ContextCompacted, MessageAdded
from turnwire.domain.conversation.messages import (
    Compaction,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRun,
    ProviderContent,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import GenerationOptions
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
    assert world.requests.is_compacted
    [commit] = world.store.commits
    [summary] = world.store.summaries()
    assert commit.changes == (PutMessage(summary), *spent_by_call(world.turn, summary, summary.created_at).changes)
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
    assert (await world.requests.next()).request.messages == step.request.messages


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
    assert sent.message_count == 2


SETTINGS = CompactionSettings(threshold=0.8, keep=0.3)


@pytest.mark.parametrize(
    ("window", "asked", "expected"),
    [
        (200_000, None, Allowance(window=200_000, answer=4096, prompt=155_904, keep=60_000, summary=4096)),
        (200_000, 64_000, Allowance(window=200_000, answer=64_000, prompt=96_000, keep=60_000, summary=4096)),
        (8_000, None, Allowance(window=8_000, answer=1000, prompt=5400, keep=2400, summary=800)),
        (8_000, 100_000, Allowance(window=8_000, answer=4000, prompt=2400, keep=1800, summary=800)),
    ],
)
def test_the_window_is_divided(window: int, asked: int | None, expected: Allowance) -> None:
    """Room for the answer, at most half of it; less is kept than would fill the rest at once."""
    turn = make_turn(options=GenerationOptions(max_output_tokens=asked))
    assert allowance(window, turn, SETTINGS) == expected


def test_a_low_threshold_leaves_room_for_a_prompt() -> None:
    """Beside the longest answer too; else each step would be compacted."""
    turn = make_turn(options=GenerationOptions(max_output_tokens=128_000))
    allowed = allowance(200_000, turn, CompactionSettings(threshold=0.4, keep=0.3))
    assert (allowed.answer, allowed.prompt, allowed.keep) == (100_000, 20_000, 15_000)


@pytest.mark.parametrize("window", [1, 2, 9, 40])
def test_a_window_in_which_nothing_fits_is_never_cut(window: int) -> None:
    """Its provider shall say so."""
    running = make_turn("t3", user_message_id="u3")
    assert choose_cut(TALK, running, allowance(window, running, SETTINGS), 0, lambda _: 100) is None


@pytest.mark.slow
def test_a_very_long_conversation_is_cut_in_one_walk() -> None:
    """The event loop waits meanwhile, so the work must not grow with the square of the length."""
    talk = [said for number in range(30_000) for said in (_question(str(number)), _step(f"a{number}", str(number)))]
    assert len(_ids(_cut(talk, 1000, turn="29999", window=10**9))) == 2 * 30_000 - 8


def _allowed(keep: int, window: int = 1000, summary: int = 10) -> Allowance:
    return Allowance(window=window, answer=0, prompt=window, keep=keep, summary=summary)


def _question(name: str, **fields: object) -> Message:
    return make_message(f"u{name}", "?", turn_id=f"t{name}", **fields)


def _step(name: str, turn: str, *parts: object, **fields: object) -> Message:
    return make_answer(name, *(parts or ("!",)), turn_id=f"t{turn}", **fields)  # type: ignore[arg-type]


def _cut(messages: list[Message], keep: int, turn: str = "3", **fields: int) -> Cut | None:
    """Cuts, with a hundred tokens for each message."""
    running = make_turn(f"t{turn}", user_message_id=f"u{turn}")
    return choose_cut(messages, running, _allowed(keep, **fields), 0, lambda _: 100)


def _ids(cut: Cut | None) -> list[str]:
    return [message.message_id for message in cut.covered] if cut is not None else []


COVERED = Compaction(through_message_id="a1", message_count=2, tokens_before=1, tokens_after=1)
SUMMARY = make_message("sum", "so far", compaction=COVERED)
TALK = [_question("1"), _step("a1", "1"), _question("2"), _step("a2", "2"), _step("b2", "2"), _question("3")]


@pytest.mark.parametrize(("keep", "covered"), [(410, 2), (500, 2), (409, 5), (110, 5)])
def test_as_much_is_kept_as_may_be(keep: int, covered: int) -> None:
    """Cut is between turns; the summary counts among what stays."""
    cut = _cut(TALK, keep)
    assert _ids(cut) == [message.message_id for message in TALK[:covered]]
    assert (cut.through_message_id, cut.questions) == (TALK[covered - 1].message_id, ())


def test_nothing_is_cut_for_little_gain() -> None:
    """When what could be covered is hardly longer than its summary, or is a summary already."""
    assert _cut(TALK[-1:], 0) is None
    assert _cut(TALK, 0, summary=251) is None
    assert _ids(_cut(TALK, 0, summary=250)) != []
    assert _cut([SUMMARY, _question("3")], 0) is None
    assert _ids(_cut([SUMMARY, *TALK[2:]], 0)) == ["sum", "u2", "a2", "b2"]


def test_one_message_that_no_summary_covers_yet_is_enough() -> None:
    """Between turns and between steps; behind a summary too, which is covered again."""
    assert _ids(_cut([_question("1"), _question("3")], 0)) == ["u1"]
    assert _ids(_cut([SUMMARY, _question("2"), _question("3")], 0)) == ["sum", "u2"]
    assert _ids(_cut([_question("3"), _step("a3", "3")], 0)) == ["a3"]
    assert _ids(_cut([SUMMARY, _question("3"), _step("a3", "3")], 0)) == ["sum", "a3"]


def test_nothing_is_cut_when_even_the_shortest_form_does_not_fit() -> None:
    """The provider shall say so."""
    assert _cut(TALK, 50, window=109) is None
    assert _cut(TALK, 50, window=110) is not None


LONG = [*TALK, _step("a3", "3"), _step("b3", "3"), _step("c3", "3")]


@pytest.mark.parametrize(
    ("keep", "covered", "question"),
    [
        (410, ["u1", "a1", "u2", "a2", "b2"], None),
        (409, ["u1", "a1", "u2", "a2", "b2", "a3"], "u3"),
        (210, ["u1", "a1", "u2", "a2", "b2", "a3", "b3"], "u3"),
        (0, ["u1", "a1", "u2", "a2", "b2", "a3", "b3", "c3"], "u3"),
    ],
)
def test_a_turn_that_is_too_long_is_cut_between_its_steps(keep: int, covered: list[str], question: str | None) -> None:
    """Only when nothing else helps; its user message then stays."""
    cut = _cut(LONG, keep)
    assert cut is not None
    assert _ids(cut) == covered
    assert cut.through_message_id == covered[-1]
    assert [message.message_id for message in cut.questions] == ([] if question is None else [question])


def test_a_paused_step_is_never_covered() -> None:
    """It is to be handed back as it is."""
    paused = _step("c3", "3", finish_reason=FinishReason.PAUSED)
    assert _ids(_cut([*LONG[:-1], paused], 0)) == ["u1", "a1", "u2", "a2", "b2"]


def test_messages_that_joined_the_turn_are_never_covered() -> None:
    """Behind the cut they stay where they are, before it they stay with the turn's own."""
    joined = make_message("x", "one more thing")
    cut = _cut([*LONG, joined], 0)
    assert (_ids(cut)[-1], [m.message_id for m in cut.questions]) == ("c3", ["u3"])
    cut = _cut([*LONG[:-1], joined, LONG[-1]], 0)
    assert (_ids(cut)[5:], [m.message_id for m in cut.questions]) == (["a3", "b3", "c3"], ["u3", "x"])


@st.composite
def _conversations(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = []
    turns = draw(st.integers(1, 5))
    for turn in range(turns):
        messages.append(_question(str(turn)))
        for step in range(draw(st.integers(0, 4))):
            result = ToolResult(call_id="c", output="r")
            kind = draw(st.sampled_from(["step", "step", "appended", "system", "result"]))
            name = f"{kind}{turn}.{step}"
            if kind == "step":
                sealed = make_part(0, ProviderContent("x"), provider_state=draw(st.sampled_from(["{}", None])))
                messages.append(_step(name, str(turn), sealed))
            elif kind == "result":
                messages.append(make_message(name, result, type=MessageType.TOOL_RESULT))
            else:
                role = MessageType.USER if kind == "appended" else MessageType.SYSTEM
                messages.append(make_message(name, "x", type=role))
    return messages


@given(_conversations(), st.integers(0, 3000), st.integers(1, 300))
def test_every_cut_keeps_what_must_be_kept(messages: list[Message], keep: int, summary: int) -> None:
    """Newest user message, system messages, turns that ended as a whole, sealed steps of the running turn together."""
    turn = str(max(int(m.turn_id[1:]) for m in messages if m.turn_id))
    cut = _cut(messages, keep, turn, summary=summary, window=10_000)
    if cut is None:
        return
    covered = {message.message_id for message in cut.covered}
    kept = [message for message in messages if message.message_id not in covered]
    assert [m for m in messages if m.type is MessageType.USER][-1] in kept
    assert not any(message.type is MessageType.SYSTEM for message in cut.covered)
    assert cut.through_message_id == cut.covered[-1].message_id
    divided = {m.turn_id for m in cut.covered if m.turn_id} & {m.turn_id for m in kept if m.turn_id}
    assert divided == ({f"t{turn}"} if cut.questions else set())
    if cut.questions:
        assert cut.questions[0].message_id == f"u{turn}"
        begun = messages.index(cut.questions[0])
        assert not [m for m in messages[begun:] if m.type is MessageType.USER and m.message_id in covered]
        running = [m for m in messages if m.turn_id == f"t{turn}" and m.parts[0].provider_state]
        assert len({m.message_id in covered for m in running}) <= 1
    assert len(covered) * 100 >= 2 * summary
