"""Provider items become parts and events; text is whole at every moment."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.core import numbered_ids
from tests.support.fakes.domain_values import later, make_answer, open_part
from turnwire.core.answer.message_stream import MAX_NAME_CHARACTERS, GrowingPart, MessageStream
from turnwire.domain.conversation.events import EphemeralKind, PartDelta, PartStarted
from turnwire.domain.conversation.messages import (
    DraftPart,
    FinishReason,
    Message,
    MessageStatus,
    ModelRef,
    ModelRun,
    Part,
    PartStatus,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.errors import ProviderAnswerOverLimit
from turnwire.domain.limits import Limits
from turnwire.domain.money import Usage
from turnwire.domain.text import join_surrogates
from turnwire.ports.provider import (
    PartEnded,
    ProviderContentReceived,
    ProviderOrigin,
    ReasoningDelta,
    RefusalDelta,
    ResponseStarted,
    StepFinished,
    StreamItem,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)

STARTED = make_answer("msg_1", status=MessageStatus.STREAMING)


def _streamed(*items: StreamItem, message: Message = STARTED) -> tuple[MessageStream, list[EphemeralKind]]:
    published: list[EphemeralKind] = []
    stream = MessageStream(message, published.append, numbered_ids(), Limits())
    for item in items:
        stream.apply(item)
    return stream, published


def _taken(stream: MessageStream) -> tuple[int, ...]:
    return tuple(one.part.index for one in stream.take_draft().parts)


def _part(index: int, content: object, status: PartStatus = PartStatus.STREAMING, state: str | None = None) -> Part:
    return Part(part_id=f"prt_{index + 1}", index=index, content=content, status=status, provider_state=state)


def test_offsets_count_utf8_bytes() -> None:
    """A delta's offset is the length in bytes of what came before, whatever the script."""
    stream, published = _streamed(TextDelta(0, "aé"), TextDelta(0, "日"), TextDelta(0, "😀"), TextDelta(0, "."))
    assert published == [
        PartStarted("msg_1", _part(0, Text(""))),
        PartDelta("msg_1", 0, 0, "aé"),
        PartDelta("msg_1", 0, 3, "日"),
        PartDelta("msg_1", 0, 6, "😀"),
        PartDelta("msg_1", 0, 10, "."),
    ]
    assert stream.part(0) == _part(0, Text("aé日😀."))


def test_halves_of_a_character_are_joined_over_deltas() -> None:
    """A surrogate pair that a provider split arrives as one character."""
    stream, published = _streamed(TextDelta(0, "a\ud83d"), TextDelta(0, "\ude00b"))
    assert published[1:] == [PartDelta("msg_1", 0, 0, "a"), PartDelta("msg_1", 0, 1, "😀b")]
    assert stream.part(0).content == Text("a😀b")


def test_a_half_alone_in_a_delta_tells_nothing_yet() -> None:
    """No delta is published for it, and the text so far can be encoded."""
    stream, published = _streamed(TextDelta(0, "\ud83d"))
    assert published == [PartStarted("msg_1", _part(0, Text("")))]
    assert stream.snapshot().parts == (_part(0, Text("")),)


@pytest.mark.parametrize(
    ("deltas", "text"),
    [
        (["\ud83d", "x"], "�x"),
        (["\ud83d", "\ud83d\ude00"], "�😀"),
        (["\ude00"], "�"),
        (["a\ude00b"], "a�b"),
        (["a\ud83d"], "a�"),
        (["\ud83d"], "�"),
    ],
)
def test_lone_halves_are_replaced_by_one_character(deltas: list[str], text: str) -> None:
    """Each half that stays alone becomes one U+FFFD by the end of its part."""
    stream, published = _streamed(*[TextDelta(0, delta) for delta in deltas], PartEnded(0))
    assert stream.part(0) == _part(0, Text(text), PartStatus.COMPLETE)
    assert "".join(event.text for event in published if isinstance(event, PartDelta)) == text


def test_parts_stand_in_the_order_of_their_first_items() -> None:
    """Interleaved calls grow each in its own part."""
    stream, published = _streamed(
        TextDelta("t", "I look"),
        ToolCallDelta("a", name="read", call_id="c1"),
        ToolCallDelta("b", name="list", call_id="c2", arguments='{"x"'),
        ToolCallDelta("a", arguments='{"p":'),
        ToolCallDelta("b", arguments=":2}"),
        ToolCallDelta("a", arguments="1}"),
        TextDelta("t", "."),
    )
    assert stream.snapshot() == make_answer(
        "msg_1",
        _part(0, Text("I look.")),
        _part(1, ToolUse(name="read", call_id="c1", input_json='{"p":1}')),
        _part(2, ToolUse(name="list", call_id="c2", input_json='{"x":2}')),
        status=MessageStatus.STREAMING,
    )
    assert [(d.part_index, d.offset, d.text) for d in published if isinstance(d, PartDelta)] == [
        (0, 0, "I look"),
        (2, 0, '{"x"'),
        (1, 0, '{"p":'),
        (2, 4, ":2}"),
        (1, 5, "1}"),
        (0, 6, "."),
    ]


def test_name_and_call_id_may_come_late() -> None:
    """A later piece fills in what an earlier one did not know, and an empty one clears nothing."""
    stream, _ = _streamed(
        ToolCallDelta(0, arguments="{"), ToolCallDelta(0, "read", "c1"), ToolCallDelta(0, "", "", "}")
    )
    assert stream.part(0).content == ToolUse(name="read", call_id="c1", input_json="{}")


@pytest.mark.parametrize(
    ("delta", "content"), [(TextDelta, Text), (ReasoningDelta, Reasoning), (RefusalDelta, Refusal)]
)
def test_each_kind_of_text_makes_its_kind_of_part(delta: Callable[..., StreamItem], content: type) -> None:
    """An empty delta opens the part without adding to it."""
    stream, published = _streamed(delta(0, ""), delta(0, "a"))
    assert published == [PartStarted("msg_1", _part(0, content(""))), PartDelta("msg_1", 0, 0, "a")]
    assert stream.part(0) == _part(0, content("a"))


def test_the_whole_text_at_the_end_wins() -> None:
    """When the provider repeats the text, it replaces what the deltas gave."""
    stream, _ = _streamed(TextDelta(0, "helo"), PartEnded(0, text="hello\ud83d"))
    assert stream.part(0) == _part(0, Text("hello�"), PartStatus.COMPLETE)


def test_provider_state_is_kept_byte_exact() -> None:
    """Signatures stand beside the part that they sign."""
    state = '{"signature": "a+b/=="}'
    stream, _ = _streamed(ReasoningDelta(0, "hm"), PartEnded(0, provider_state=state))
    assert stream.part(0) == _part(0, Reasoning("hm"), PartStatus.COMPLETE, state)


def test_sealed_content_is_a_part_at_once_complete() -> None:
    """Content that only its provider understands comes whole."""
    stream, published = _streamed(ProviderContentReceived(0, "web_search_call", '{"id":1}'))
    assert stream.part(0) == _part(0, ProviderContent("web_search_call"), PartStatus.COMPLETE, '{"id":1}')
    assert published == [PartStarted("msg_1", _part(0, ProviderContent("web_search_call")))]
    assert stream.take_ended() == (0,)


def test_the_end_of_an_unknown_or_ended_part_changes_nothing() -> None:
    """A provider that ends a part twice does not replace it."""
    stream, _ = _streamed(TextDelta(0, "a"), PartEnded(0, "s1"), PartEnded(0, "s2", "b"), PartEnded(9))
    assert stream.snapshot().parts == (_part(0, Text("a"), PartStatus.COMPLETE, "s1"),)
    assert stream.take_ended() == (0,)


def test_usage_and_response_belong_to_the_message() -> None:
    """A later report replaces an earlier one; a later name replaces only what it tells."""
    run = ModelRun(provider_id="p", model_requested="m")
    stream, _ = _streamed(
        ResponseStarted("m-2", "r1"),
        UsageReported(Usage(input_tokens=1)),
        ResponseStarted("", "r2"),
        UsageReported(Usage(input_tokens=1, output_tokens=2)),
        StepFinished(FinishReason.STOP, "end_turn"),
        message=make_answer("msg_1", model_run=run),
    )
    assert stream.snapshot() == make_answer(
        "msg_1",
        model_run=ModelRun(provider_id="p", model_requested="m", model_served="m-2", response_id="r2"),
        usage=Usage(input_tokens=1, output_tokens=2),
    )
    assert stream.finished == StepFinished(FinishReason.STOP, "end_turn")


def test_what_is_unsaved_is_known() -> None:
    """Each change counts until it is taken; taking forgets."""
    stream, _ = _streamed(TextDelta(0, "a"), TextDelta(1, "b"))
    assert (stream.has_unsaved, _taken(stream), stream.has_unsaved) == (True, (0, 1), False)
    stream.apply(TextDelta(1, "c"))
    assert _taken(stream) == (1,)
    stream.apply(UsageReported(Usage(input_tokens=1)))
    assert (stream.has_unsaved, _taken(stream)) == (False, ())
    stream.apply(PartEnded(0))
    assert (_taken(stream), stream.take_ended(), stream.take_ended()) == ((0,), (0,), ())


def test_a_failed_save_is_given_back() -> None:
    """The parts count as unsaved again, and those whose end was not stored as still open."""
    stream, _ = _streamed(TextDelta(0, "a"), TextDelta(1, "b"), PartEnded(0))
    stream.give_back(stream.take_draft(), stream.take_ended())
    assert _taken(stream) == (0, 1)
    assert [part.status for part in stream.snapshot().parts] == [PartStatus.STREAMING] * 2


def test_touching_changes_only_the_time() -> None:
    """The time of last change is the journal's to say."""
    stream, _ = _streamed(TextDelta(0, "a"))
    stream.touch(later(3))
    open_text = open_part(0, Text("a"), part_id="prt_1")
    assert stream.snapshot() == make_answer("msg_1", open_text, status=MessageStatus.STREAMING, updated_at=later(3))


_any_text = st.text(st.characters() | st.sampled_from("\ud83d\ude00\udbff\udfff"), max_size=8)


@given(st.lists(st.tuples(st.sampled_from([0, 1]), _any_text), max_size=12))
def test_folding_the_deltas_gives_the_text(deltas: list[tuple[int, str]]) -> None:
    """Deltas follow each other without gap, never hold half a character, and make up what is stored."""
    stream, published = _streamed(*[TextDelta(key, text) for key, text in deltas])
    for key in (0, 1):
        stream.apply(PartEnded(key))
    folded: dict[int, bytes] = {}
    for event in published:
        if isinstance(event, PartStarted):
            folded[event.part.index] = b""
        elif isinstance(event, PartDelta):
            assert event.offset == len(folded[event.part_index])
            folded[event.part_index] += event.text.encode()
    parts = stream.snapshot().parts
    assert [part.content for part in parts] == [Text(folded[index].decode()) for index in range(len(parts))]
    for part, key in zip(parts, dict.fromkeys(key for key, _ in deltas), strict=True):
        whole = "".join(text for k, text in deltas if k == key)
        assert part.content == Text(join_surrogates(whole))


@given(_any_text)
def test_joined_text_can_be_encoded(text: str) -> None:
    """Whatever comes in, no half is left; text without halves stays as it is."""
    joined = join_surrogates(text)
    joined.encode()
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert joined == text


def test_usage_of_a_failed_attempt_stays_with_its_model() -> None:
    """It was used; of another model it would be counted at the wrong price."""
    stream, _ = _streamed()
    first, second = ModelRef("p", "first"), ModelRef("p", "second")
    stream.begin_attempt(first)
    stream.apply(UsageReported(Usage(input_tokens=3)))
    stream.begin_attempt(first)
    assert stream.snapshot().usage == Usage(input_tokens=3)
    stream.begin_attempt(second)
    run = ModelRun(provider_id="p", model_requested="second")
    assert (stream.snapshot().usage, stream.snapshot().model_run) == (None, run)


def test_a_complete_call_ends_once_it_was_checked() -> None:
    """It takes nothing more from then on, and shows its error when it cannot run."""
    stream, _ = _streamed(ToolCallDelta(0, "fly", "c1", "{}"), PartEnded(0), PartEnded(0))
    assert (stream.take_unchecked(), stream.take_unchecked(), stream.take_ended()) == ((0,), (), ())
    call = ToolUse(name="fly", call_id="c1", input_json="{}")
    assert stream.part(0) == _part(0, call)
    stream.apply(ToolCallDelta(0, arguments="late"))
    stream.end_call(0, "no such \ud83d tool", later(1))
    failed = msgspec.structs.replace(
        call, status=ToolStatus.ERROR, error="no such \ufffd tool", started_at=later(1), finished_at=later(1)
    )
    assert stream.part(0) == _part(0, failed, PartStatus.COMPLETE)
    assert stream.take_ended() == (0,)


@pytest.mark.parametrize("reason", FinishReason)
def test_a_whole_answer_completes_the_calls_that_are_open(reason: FinishReason) -> None:
    """Some APIs tell no end of a call. What a limit, a pause or a filter ended may be half of one."""
    stream, _ = _streamed(ToolCallDelta(0, "a"), PartEnded(0), TextDelta(1, "t"), ToolCallDelta(2, "b"))
    stream.end_answer()
    assert stream.take_unchecked() == (0,)
    stream.apply(StepFinished(reason, ""))
    stream.end_answer()
    whole = reason in (FinishReason.STOP, FinishReason.TOOL_USE)
    assert (stream.take_unchecked(), stream.take_ended()) == ((2,) if whole else (), ())


def test_a_part_whose_saving_failed_takes_nothing_more() -> None:
    """It counts as open for whoever ends the message only."""
    stream, _ = _streamed(TextDelta(0, "a"), PartEnded(0))
    stream.give_back(stream.take_draft(), stream.take_ended())
    stream.apply(TextDelta(0, "b"))
    assert [part.content for part in stream.snapshot().parts] == [Text("a"), Text("b")]


def test_an_answer_has_a_limit_of_parts_and_text() -> None:
    """The rest is left out, but for the text that reached the limit."""
    for limits, item in (
        (Limits(max_answer_parts=3), lambda n: TextDelta(n, "x")),
        (Limits(max_answer_parts=3), lambda n: ToolCallDelta(n, "x", str(n))),
        (Limits(max_answer_bytes=2), lambda _: TextDelta(0, "x")),
    ):
        stream = MessageStream(STARTED, lambda _: None, numbered_ids(), limits)
        stream.origin = ProviderOrigin("p", "p.example:8443")
        for number in range(3 if limits.max_answer_bytes > 2 else 2):
            stream.apply(item(number))
        with pytest.raises(ProviderAnswerOverLimit) as caught:
            stream.apply(item(3))
        assert "the provider p at p.example:8443 " in str(caught.value)
        assert caught.value.metadata.items() >= {"providerId": "p", "providerHost": "p.example:8443"}.items()
        assert len(stream.snapshot().parts) == (3 if limits.max_answer_bytes > 2 else 1)


def test_words_of_a_provider_are_cut_and_on_one_line() -> None:
    """Names, ids, models and reasons."""
    long = "a\n\0" + "b" * 1000
    stream, _ = _streamed()
    stream.begin_attempt(ModelRef("p", "m"))
    for item in (ResponseStarted(long, long), ToolCallDelta(0, long, long), ProviderContentReceived(1, long, "{}")):
        stream.apply(item)
    stream.apply(StepFinished(FinishReason.STOP, long))
    message, cut = stream.snapshot(), "a??" + "b" * (MAX_NAME_CHARACTERS - 3)
    call, content = (part.content for part in message.parts)
    assert {cut} == {
        *(message.model_run.model_served, message.model_run.response_id, stream.finished.provider_reason),
        *(call.name, call.call_id, content.kind),
    }


def test_a_save_has_what_is_new_alone() -> None:
    """However long the answer is; also when the part has ended, unless the save before has failed."""
    stream, _ = _streamed(TextDelta(0, "é" * 1000), ReasoningDelta(1, "why"))
    assert [one.continues for one in stream.take_draft().parts] == [False, False]
    new = "0123456789" * 80
    for digit in new:
        stream.apply(TextDelta(0, digit))
    draft = stream.take_draft()
    assert draft.parts == (DraftPart(_part(0, Text(new)), continues=True),)
    assert stream.part(0).content == Text("é" * 1000 + new)
    stream.give_back(draft, ())
    assert stream.take_draft().parts == (DraftPart(stream.part(0)),)
    stream.apply(TextDelta(0, "!"))
    stream.apply(PartEnded(0))
    [ended] = stream.take_draft().parts
    assert (ended.part.content, ended.part.status, ended.continues) == (Text("!"), PartStatus.COMPLETE, True)


def test_readers_of_one_moment_share_the_text() -> None:
    """Hundreds of watches that join a long answer hold it once; a save between them changes nothing."""
    part = GrowingPart("prt_1", 0, Text)
    for piece in ("long" * 10_000, "longer" * 10_000):
        part.add(piece, len(piece))
        shown = part.text()
        assert part.text() is shown
        part.take_draft()
        assert part.text() is shown
        assert part.value().content == Text(shown)


STEPS = st.lists(st.sampled_from(["add", "text", "take", "fail", "replace"]), max_size=30)


@given(STEPS)
def test_drafts_have_all_of_the_text_in_order(steps: list[str]) -> None:
    """However readers, saves and failed saves follow each other."""
    part, whole, saved = GrowingPart("prt_1", 0, Text), "", ""
    for number, step in enumerate([*steps, "end"]):
        match step:
            case "add":
                whole += (delta := f"é{number}")
                part.add(delta, len(delta.encode()))
            case "text":
                assert part.text() == whole
            case "replace":
                whole = f"another {number}"
                part.replace(whole)
            case "take" | "end":
                if step == "end":
                    part.status = PartStatus.COMPLETE
                draft = part.take_draft()
                saved = (saved if draft.continues else "") + draft.part.content.text
                assert (saved, draft.part.status, part.size) == (whole, part.status, len(whole.encode()))
            case _:
                part.draft_anew()
                saved = ""
    assert part.text() == whole
