"""The offline provider: models, directives, limits, usage."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from datetime import timedelta

import pytest

from tests.support.fakes.domain_values import make_answer, make_message
from turnwire.domain import errors
from turnwire.domain.conversation.messages import FinishReason, Message, ToolStatus, ToolUse
from turnwire.domain.conversation.turns import GenerationOptions, ToolDefinition
from turnwire.domain.money import Usage
from turnwire.ports.provider import (
    PartEnded,
    ProviderRequest,
    ReasoningDelta,
    RefusalDelta,
    ResponseStarted,
    StepFinished,
    StreamItem,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from turnwire.providers.offline.provider import OfflineProvider
from turnwire.providers.offline.request import OfflineWriter
from turnwire.providers.offline.script import MAX_LINES


def asking(text: str, model: str = "echo", *later: Message, **fields: object) -> ProviderRequest:
    """Returns the request that answers the text; `later` came after it."""
    return ProviderRequest(model_id=model, system="", messages=(make_message("msg_1", text), *later), **fields)


async def items_of(request: ProviderRequest) -> list[StreamItem]:
    """Returns all items of the answer."""
    return [item async for item in stream_of(request)]


async def failing(request: ProviderRequest) -> tuple[list[StreamItem], errors.ProviderError]:
    """Returns what came before the failure, and the failure."""
    seen: list[StreamItem] = []
    with pytest.raises(errors.ProviderError) as caught:
        async for item in stream_of(request):
            seen.append(item)
    return seen, caught.value


def stream_of(request: ProviderRequest, provider: OfflineProvider | None = None) -> AsyncGenerator[StreamItem]:
    """Returns the answer's stream, of a new provider unless one is given."""
    provider = provider or OfflineProvider()
    return provider.stream(provider.writer().prepare(request))


def text_of(items: Iterable[StreamItem], kind: type = TextDelta) -> str:
    """Returns the joined text of the deltas of one kind."""
    return "".join(item.text for item in items if isinstance(item, kind))


def calls_of(items: Iterable[StreamItem]) -> dict[str, str]:
    """Returns name -> arguments; the names of the calls must differ."""
    names = {item.key: item.name for item in items if isinstance(item, ToolCallDelta) and item.name}
    return {
        name: "".join(i.arguments for i in items if isinstance(i, ToolCallDelta) and i.key == key)
        for key, name in names.items()
    }


async def test_echo_answers_with_the_text_and_counts_words() -> None:
    """The whole stream of the simplest answer."""
    assert await items_of(asking("Hello  world")) == [
        ResponseStarted("echo", "offline-1"),
        UsageReported(Usage(input_tokens=2)),
        TextDelta(0, "Hello"),
        TextDelta(0, "  world"),
        PartEnded(0),
        UsageReported(Usage(input_tokens=2, output_tokens=2, reasoning_tokens=0)),
        StepFinished(FinishReason.STOP, "stop"),
    ]


@pytest.mark.parametrize("text", ["  a \n\n b\n", "/etc/hosts is a file\n/unknown 3", "emoji 👩‍👩‍👧 and\ttabs", "x"])
async def test_echo_keeps_plain_text_exactly(text: str) -> None:
    """White space and lines that only look like directives come back unchanged."""
    assert text_of(await items_of(asking(text))) == text


async def test_lorem_has_the_asked_number_of_words() -> None:
    """`/words` and `/rate` replace the model's own length and pace."""
    answer = text_of(await items_of(asking("/rate 0\n/words 500", "lorem")))
    assert len(answer.split()) == 500


WEATHER = ToolDefinition(
    "weather",
    "Tells the weather.",
    json.dumps(
        {
            "properties": {
                "city": {"type": "string", "minLength": 6},
                "days": {"type": ["integer", "null"], "minimum": 3},
                "units": {"enum": ["metric", "imperial"]},
                "places": {"type": "array", "items": {"$ref": "#/$defs/place"}},
                "optional": {"type": "string"},
            },
            "required": ["city", "days", "units", "places"],
            "$defs": {"place": {"type": "object", "properties": {"near": {"type": "boolean"}}, "required": ["near"]}},
        }
    ),
)
CLOCK = ToolDefinition("clock", "Tells the time.", "")


async def test_tools_calls_each_declared_tool_with_fitting_arguments() -> None:
    """Required properties are filled by their schema; a tool without schema gets an empty object."""
    items = await items_of(asking("go", "tools", tools=(WEATHER, CLOCK)))
    arguments = {name: json.loads(text) for name, text in calls_of(items).items()}
    assert arguments == {
        "weather": {"city": "textxx", "days": 3, "units": "metric", "places": [{"near": True}]},
        "clock": {},
    }
    assert items[-1] == StepFinished(FinishReason.TOOL_USE, "tool_use")


@pytest.mark.parametrize(
    ("bounds", "number"),
    [
        ({}, 1),
        ({"minimum": 3}, 3),
        ({"exclusiveMinimum": 3}, 4),
        ({"exclusiveMinimum": 3, "minimum": 7}, 7),
        ({"maximum": 0}, 0),
    ],
)
async def test_numbers_are_within_their_bounds(bounds: dict[str, int], number: int) -> None:
    """A tool would refuse others."""
    schema = {"properties": {"days": {"type": "integer", **bounds}}, "required": ["days"]}
    tool = ToolDefinition("weather", "", json.dumps(schema))
    assert calls_of(await items_of(asking("go", "tools", tools=(tool,)))) == {"weather": json.dumps({"days": number})}


async def test_arguments_end_where_a_schema_says_nothing() -> None:
    """Any value fits `true`, and a reference to itself; the other arguments are there all the same."""
    schema = {
        "properties": {"any": True, "itself": {"$ref": "#/properties/itself"}, "days": {"type": "integer"}},
        "required": ["any", "itself", "days"],
    }
    tool = ToolDefinition("weather", "Tells the weather.", json.dumps(schema))
    (arguments,) = calls_of(await items_of(asking("go", "tools", tools=(tool,)))).values()
    assert json.loads(arguments) == {"any": "text", "itself": "text", "days": 1}


async def test_call_ids_differ_between_the_steps_of_a_conversation() -> None:
    """A real provider never repeats a call id either."""
    text = "/tool a\n/tool b\n/step\n/tool c"
    first = await items_of(asking(text))
    step = make_answer("msg_1", ToolUse(name="a", status=ToolStatus.SUCCESS, output=""))
    second = await items_of(asking(text, "echo", step))
    ids = [item.call_id for item in first + second if isinstance(item, ToolCallDelta) and item.name]
    assert len(set(ids)) == 3


async def test_a_speaker_may_stand_before_a_directive() -> None:
    """Where there are several, their names are before what they say; before anything else they are text."""
    items = await items_of(asking('Émilie (2): /tool missing {"a": 1}', tools=(CLOCK,)))
    assert (text_of(items), calls_of(items)) == ("", {"missing": '{"a": 1}'})
    assert text_of(await items_of(asking("Émilie: /unknown\nBob: /words 2"))) == "Émilie: /unknown\nBob: /words 2"


async def test_directives_are_performed_in_order() -> None:
    """The plain lines are echoed in their places."""
    items = await items_of(asking("/reason hm\nfirst\n/words 2\nsecond\n/finish content_filter"))
    parts = [(type(item), item.text) for item in items if isinstance(item, TextDelta | ReasoningDelta)]
    texts = ("first", "\nlorem", " ipsum", "\nsecond")
    assert parts == [(ReasoningDelta, "hm"), *((TextDelta, text) for text in texts)]
    assert items[-1] == StepFinished(FinishReason.CONTENT_FILTER, "content_filter")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("one\n/sleep 0\n/rate 0\ntwo\n/finish stop", ["one\ntwo"]),
        ("one\n/words 2\n\n/words 0\n/words 1\n", ["one\nlorem ipsum\nlorem"]),
        ("/words 0\none", ["one"]),
        ("one\n/reason hm\n/sleep 0\ntwo\nthree", ["one", "hm", "two\nthree"]),
        ("one\n/tool a {}\ntwo\n/refuse no\nthree", ["one", "{}", "two", "no", "three"]),
    ],
)
async def test_text_is_one_part_unless_something_else_comes_between(text: str, parts: list[str]) -> None:
    """A client that shows one part of an answer shows all of it. Every part ends once, before the next begins."""
    keys, texts, ended = list[object](), list[str](), list[object]()
    for item in await items_of(asking(text)):
        if isinstance(item, PartEnded):
            ended.append(item.key)
        elif isinstance(item, TextDelta | ReasoningDelta | RefusalDelta | ToolCallDelta):
            words = item.arguments if isinstance(item, ToolCallDelta) else item.text
            if item.key not in keys:
                assert [key for key in ended if key in keys] == keys
                keys.append(item.key)
                texts.append("")
            texts[-1] += words
    assert texts == parts
    assert [key for key in ended if key in keys] == keys


async def test_an_error_between_two_lines_cuts_their_part() -> None:
    """The line after it belongs to the part that did not end."""
    seen, _ = await failing(asking("one\n/error failed\ntwo"))
    assert (text_of(seen), any(isinstance(item, PartEnded) for item in seen)) == ("one", False)
    seen, _ = await failing(asking("one\n/error failed"))
    assert [item for item in seen if isinstance(item, PartEnded)] == [PartEnded(0)]


async def test_a_paused_answer_is_continued() -> None:
    """Without results the next step says so."""
    paused = make_answer("msg_1", "wait")
    assert text_of(await items_of(asking("wait\n/finish paused", "echo", paused))) == "continued"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("rate_limited", errors.ProviderRateLimited),
        ("unavailable", errors.ProviderUnavailable),
        ("timeout", errors.ProviderTimeout),
        ("credentials", errors.ProviderCredentialsRejected),
        ("refused", errors.ProviderRefusedRequest),
        ("context_full", errors.ProviderContextFull),
        ("failed", errors.ProviderStreamFailed),
    ],
)
async def test_error_directive_fails_before_anything_else(code: str, kind: type[errors.ProviderError]) -> None:
    """At the top of the message nothing comes before the error."""
    seen, error = await failing(asking(f"/error {code}\nHello"))
    assert (seen, type(error)) == ([], kind)
    assert error.retry_after == (timedelta(milliseconds=100) if code == "rate_limited" else None)


async def test_cut_directive_counts_words_and_never_lets_an_answer_end_well() -> None:
    """A short answer is cut at its end."""
    seen, _ = await failing(asking("/cut 3\n/words 9"))
    assert text_of(seen) == "lorem ipsum dolor"
    seen, error = await failing(asking("/cut 20\nshort"))
    assert (text_of(seen), type(error)) == ("short", errors.ProviderStreamCut)


async def test_refuse_and_length() -> None:
    """Both finish for their own reason."""
    refused = await items_of(asking("x", "refuse"))
    assert text_of(refused, RefusalDelta) == "I will not answer that."
    assert refused[-1] == StepFinished(FinishReason.REFUSAL, "refusal")
    cut = await items_of(asking("one two three four", "length"))
    assert (text_of(cut), cut[-1]) == ("one two", StepFinished(FinishReason.LENGTH, "length"))


async def test_output_limit_ends_the_answer_even_inside_a_tool_call() -> None:
    """Reasoning, text and arguments count together; a part that was cut is not ended."""
    options = GenerationOptions(max_output_tokens=3)
    items = await items_of(asking('/reason hm\nword\n/tool a {"x": 1}\nnever', options=options))
    assert (text_of(items), calls_of(items)) == ("word", {"a": '{"x":'})
    assert items[-2:] == [
        UsageReported(Usage(input_tokens=8, output_tokens=2, reasoning_tokens=1)),
        StepFinished(FinishReason.LENGTH, "length"),
    ]
    assert PartEnded(2) not in items


async def test_an_answer_as_long_as_the_limit_is_complete() -> None:
    """The limit is inclusive."""
    items = await items_of(asking("one two", options=GenerationOptions(max_output_tokens=2)))
    assert items[-1] == StepFinished(FinishReason.STOP, "stop")


@pytest.mark.parametrize(
    "text", ["/words many", "/words -1", "/rate nan", "/rate 0.001", "/error what", "/finish x", "/tool", "/sleep"]
)
async def test_a_bad_argument_is_refused_and_named(text: str) -> None:
    """The message tells which directive is wrong."""
    seen, error = await failing(asking(text))
    assert (seen, type(error)) == ([], errors.ProviderRefusedRequest)
    assert text.split(maxsplit=1)[0] in error.message


async def test_an_unknown_model_is_refused() -> None:
    """Only the listed models exist."""
    _, error = await failing(asking("x", "gpt"))
    assert isinstance(error, errors.ProviderRefusedRequest)


async def test_a_long_answer_lets_other_tasks_run() -> None:
    """Even without a pace."""
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await items_of(asking("/words 1000"))
    task.cancel()
    assert others > 30


async def test_a_message_of_too_many_lines_is_refused() -> None:
    """Each line is looked at before the first word of the answer."""
    most = "a\n" * (MAX_LINES - 1)
    assert len(text_of(await items_of(asking(most)))) == len(most)
    seen, failure = await failing(asking("\n" * MAX_LINES + "a"))
    assert (seen, type(failure)) == ([], errors.ProviderRefusedRequest)


@pytest.mark.slow
async def test_filler_is_made_when_it_is_said() -> None:
    """A small message may ask for gigabytes of it; a client that aborts then has not paid for it."""
    tracemalloc.start()
    try:
        stream = stream_of(asking("/words 100000\n" * (MAX_LINES - 1)))
        async with aclosing(stream):
            async for item in stream:
                if isinstance(item, TextDelta):
                    break
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20


@pytest.mark.parametrize("space", [" ", "\n", "  \t", "\u3000"])
async def test_words_of_long_texts_are_counted_in_pieces(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a piece ends: in a word, before it or behind it."""
    text = f"{space}one{space}three and four{space}"
    for size in range(1, len(text) + 1):
        monkeypatch.setattr("turnwire.providers.offline.request._PIECE_CHARACTERS", size)
        assert (await items_of(asking(text)))[1] == UsageReported(Usage(input_tokens=4))


def test_long_texts_are_encoded_a_bit_at_a_time() -> None:
    """The event loop has others between two pieces; what is shown is the whole text."""
    text = "a\n" * 500_000
    prepared = OfflineWriter().prepare(asking(text))
    assert max(map(len, prepared.pieces)) < 500_000
    assert json.loads(b"".join(prepared.pieces))["messages"][-1]["text"] == [text]


async def test_few_flaky_messages_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may ask for them to the end."""
    monkeypatch.setattr("turnwire.providers.offline.provider.MAX_FLAKY", 3)
    provider = OfflineProvider()
    for number in range(10):
        user = make_message(f"msg_{number}", "/flaky unavailable 2")
        with pytest.raises(errors.ProviderUnavailable):
            async for _ in stream_of(ProviderRequest(model_id="echo", system="", messages=(user,)), provider):
                pass
    assert len(provider._flaky_calls) == 3
