"""Where a conversation is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.domain_values import make_answer, make_message, make_part, make_turn
from turnwire.core.context.compaction_plan import Allowance, Cut, allowance, choose_cut
from turnwire.core.settings import CompactionSettings
from turnwire.domain.conversation.messages import (
    Compaction,
    FinishReason,
    Message,
    MessageType,
    ProviderContent,
    ToolResult,
)
from turnwire.domain.conversation.turns import GenerationOptions

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


def test_a_very_long_conversation_is_cut_in_one_walk() -> None:
    """The event loop waits meanwhile, so the work must not grow with the square of the length."""
    talk = [said for number in range(30_000) for said in (_question(str(number)), _step(f"a{number}", str(number)))]
    cut = _cut(talk, 1000, turn="29999", window=10**9)
    assert len(_ids(cut)) == 2 * 30_000 - 8


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


TALK = [_question("1"), _step("a1", "1"), _question("2"), _step("a2", "2"), _step("b2", "2"), _question("3")]


@pytest.mark.parametrize(("keep", "covered"), [(410, 2), (500, 2), (409, 5), (110, 5)])
def test_as_much_is_kept_as_may_be(keep: int, covered: int) -> None:
    """Cut is between turns; the summary counts among what stays."""
    cut = _cut(TALK, keep)
    assert _ids(cut) == [message.message_id for message in TALK[:covered]]
    assert cut is not None
    assert (cut.through_message_id, cut.questions) == (TALK[covered - 1].message_id, ())


def test_system_messages_stay_and_count() -> None:
    """They are not summarised, so there is less room for the others."""
    system = make_message("s", "be brief", type=MessageType.SYSTEM)
    assert _ids(_cut([system, *TALK], 509)) == ["u1", "a1", "u2", "a2", "b2"]


def test_the_newest_user_message_is_never_covered() -> None:
    """However little may be kept; then the shortest form is taken."""
    assert _ids(_cut(TALK, 0)) == ["u1", "a1", "u2", "a2", "b2"]


def test_nothing_is_cut_for_little_gain() -> None:
    """When what could be covered is hardly longer than its summary, or is a summary already."""
    assert _cut(TALK[-1:], 0) is None
    assert _cut(TALK, 0, summary=251) is None
    assert _ids(_cut(TALK, 0, summary=250)) != []
    compaction = Compaction(through_message_id="a1", message_count=2, tokens_before=1, tokens_after=1)
    summary = make_message("sum", "so far", compaction=compaction)
    assert _cut([summary, _question("3")], 0) is None
    assert _ids(_cut([summary, *TALK[2:]], 0)) == ["sum", "u2", "a2", "b2"]


def test_one_message_that_no_summary_covers_yet_is_enough() -> None:
    """Between turns and between steps; behind a summary too, which is covered again."""
    compaction = Compaction(through_message_id="a1", message_count=2, tokens_before=1, tokens_after=1)
    summary = make_message("sum", "so far", compaction=compaction)
    assert _ids(_cut([_question("1"), _question("3")], 0)) == ["u1"]
    assert _ids(_cut([summary, _question("2"), _question("3")], 0)) == ["sum", "u2"]
    assert _ids(_cut([_question("3"), _step("a3", "3")], 0)) == ["a3"]
    assert _ids(_cut([summary, _question("3"), _step("a3", "3")], 0)) == ["sum", "a3"]


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


def test_sealed_steps_of_the_running_turn_stay_together() -> None:
    """Each is valid behind the others only, so all are covered or none."""
    sealed = make_part(0, ProviderContent("thinking"), provider_state="{}")
    steps = [_step("a3", "3"), _step("b3", "3", sealed), _step("c3", "3", sealed)]
    assert _ids(_cut([*TALK, *steps], 310))[-1] == "a3"
    assert _ids(_cut([*TALK, *steps], 309))[-1] == "c3"


def test_a_paused_step_is_never_covered() -> None:
    """It is to be handed back as it is."""
    paused = _step("c3", "3", finish_reason=FinishReason.PAUSED)
    assert _ids(_cut([*LONG[:-1], paused], 0)) == ["u1", "a1", "u2", "a2", "b2"]


def test_messages_that_joined_the_turn_are_never_covered() -> None:
    """Behind the cut they stay where they are, before it they stay with the turn's own."""
    joined = make_message("x", "one more thing")
    cut = _cut([*LONG, joined], 0)
    assert cut is not None
    assert (_ids(cut)[-1], [m.message_id for m in cut.questions]) == ("c3", ["u3"])
    cut = _cut([*LONG[:-1], joined, LONG[-1]], 0)
    assert cut is not None
    assert (_ids(cut)[5:], [m.message_id for m in cut.questions]) == (["a3", "b3", "c3"], ["u3", "x"])


def test_turns_that_ended_are_not_divided() -> None:
    """A message that was appended in the middle of one is no place to cut."""
    appended = make_message("x", "by the way")
    messages = [_question("1"), _step("a1", "1"), appended, _step("b1", "1"), _question("3")]
    assert _ids(_cut(messages, 400)) == ["u1", "a1", "x", "b1"]


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
