"""The spans of turns, model calls and tool calls, and prompts and answers as attributes."""

import json

import pytest
from opentelemetry.trace import SpanKind

from tests.support.fakes.core import FakeProvider
from tests.support.fakes.domain_values import make_answer, make_message, make_turn
from tests.support.fakes.traces import RecordedTracer
from turnwire.config.sections import TracingConfig
from turnwire.core.spans import (
    MAX_ATTRIBUTE_BYTES,
    MAX_TEXT_CHARS,
    TOOL_ERROR,
    chat_span,
    input_content,
    note_answer,
    note_outcome,
    note_provider,
    note_turn_end,
    output_content,
    server_tool_span,
    shortened,
    turn_span,
)
from turnwire.domain.conversation.messages import (
    File,
    FinishReason,
    MessageStatus,
    ModelRef,
    ModelRun,
    ProviderContent,
    Reasoning,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import GenerationOptions
from turnwire.domain.errors import ProviderStreamCut
from turnwire.domain.money import Usage
from turnwire.ports.commit import Work
from turnwire.ports.provider import ProviderRequest, StepFinished
from turnwire.ports.tools import ToolOutcome


def test_work_that_ends_no_turn_adds_nothing() -> None:
    """A turn that was suspended ends in another process."""
    tracer = RecordedTracer()
    with turn_span(tracer, make_turn()) as span:
        note_turn_end(span, Work())
    assert "gen_ai.response.finish_reasons" not in tracer.attributes()


OPTIONS = GenerationOptions(temperature=0.5, max_output_tokens=100)
REQUEST = ProviderRequest(model_id="m", system="the secret plan", messages=(), options=OPTIONS)
USAGE = Usage(input_tokens=5, cache_read_tokens=3, cache_write_tokens=2, output_tokens=7, reasoning_tokens=4)
RUN = ModelRun(provider_id="p", model_requested="m", model_served="m-2026", response_id="r1")
ANSWER = make_answer("msg_1", status=MessageStatus.STREAMING, usage=USAGE, model_run=RUN)
MODEL = ModelRef("p", "m")


def test_it_has_what_was_asked_and_what_came_back() -> None:
    """Tokens of the prompt include those of the cache, and those of the answer its reasoning."""
    tracer = RecordedTracer()
    with chat_span(tracer, REQUEST, MODEL, "ses_1") as span:
        note_answer(span, tracer, ANSWER, StepFinished(FinishReason.STOP, "end_turn"), first_output_seconds=0.25)
    assert dict(tracer.attributes()) == {
        "gen_ai.response.time_to_first_chunk": 0.25,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "p",
        "gen_ai.conversation.id": "ses_1",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.temperature": 0.5,
        "turnwire.provider": "p",
        "gen_ai.response.model": "m-2026",
        "gen_ai.response.id": "r1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.cache_write.input_tokens": 2,
        "gen_ai.usage.output_tokens": 11,
        "gen_ai.usage.reasoning.output_tokens": 4,
    }
    assert (tracer.spans[0].name, tracer.spans[0].kind) == ("chat m", SpanKind.CLIENT)


def test_an_answer_that_was_cut_has_the_reason() -> None:
    """Not the message of the error, which may quote the answer."""
    tracer = RecordedTracer()
    with chat_span(tracer, REQUEST, MODEL, "ses_1") as span:
        note_answer(span, tracer, ANSWER, None, failure=ProviderStreamCut("the secret plan"))
    assert tracer.attributes()["error.type"] == ProviderStreamCut.reason
    assert "the secret plan" not in tracer.spans[0].to_json()


@pytest.mark.parametrize(
    ("provider_id", "api", "name"),
    [
        ("anthropic", "anthropic", "anthropic"),
        ("ours", "openai_chat", "openai"),
        ("openai", "openai_responses", "openai"),
        ("mistral", "openai_chat", "mistral_ai"),
        ("xai", "openai_chat", "x_ai"),
        ("offline", "offline", "offline"),
    ],
)
def test_the_provider_has_its_name_in_the_conventions(provider_id: str, api: str, name: str) -> None:
    """Its id decides where it is that of a vendor, else the form of the API."""
    tracer, provider = RecordedTracer(), FakeProvider(())
    provider.provider_id, provider.api = provider_id, api
    with chat_span(tracer, REQUEST, ModelRef(provider_id, "m"), "ses_1") as span:
        note_provider(span, provider)
    assert tracer.attributes()["gen_ai.provider.name"] == name
    assert tracer.attributes()["turnwire.provider"] == provider_id


def test_a_summary_is_marked() -> None:
    """It is no answer that somebody reads."""
    tracer = RecordedTracer()
    chat_span(tracer, REQUEST, MODEL, "ses_1", is_summary=True).end()
    assert tracer.attributes()["turnwire.summary"] is True


@pytest.mark.parametrize(("ratio", "content", "found"), [(1, False, 0), (1, True, 1), (0, True, 0)])
def test_content_needs_the_setting(ratio: int, content: bool, found: int) -> None:
    """And a trace that is recorded."""
    tracer = RecordedTracer(TracingConfig(content=content, sample_ratio=ratio))
    with chat_span(tracer, REQUEST, MODEL, "ses_1") as span:
        note_answer(span, tracer, ANSWER, None)
    assert sum("the secret plan" in span.to_json() for span in tracer.spans) == found


CALL = ToolUse(name="look", call_id="c1", input_json='{"at":"the secret plan"}')


def test_a_tool_of_the_server_has_its_result_only_when_switched_on() -> None:
    """An outcome that is an error fails the span."""
    for content in (False, True):
        tracer = RecordedTracer(TracingConfig(content=content))
        with server_tool_span(tracer, CALL) as span:
            note_outcome(span, tracer, ToolOutcome(output="it says the secret plan", is_error=True))
        attributes = dict(tracer.attributes())
        shown = {attributes.pop(name, None) for name in ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result")}
        assert shown == ({CALL.input_json, "it says the secret plan"} if content else {None})
        assert attributes == {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "look",
            "gen_ai.tool.call.id": "c1",
            "gen_ai.tool.type": "extension",
            "error.type": TOOL_ERROR,
        }


def test_a_request_has_the_forms_of_the_conventions() -> None:
    """Results of calls follow their message; files have a type but no content; sealed content is left out."""
    picture = File(sha256="0" * 64, size_bytes=3, mime="image/png", filename="secret.png")
    call = ToolUse(name="look", call_id="c1", input_json='{"at":1}', status=ToolStatus.SUCCESS, output="seen")
    request = ProviderRequest(
        model_id="m",
        system="be kind",
        messages=(
            make_message("msg_1", "what is this?", picture),
            make_answer("msg_2", Reasoning("hm"), ProviderContent("sealed"), call),
        ),
    )
    found = input_content(request)
    assert json.loads(str(found["gen_ai.system_instructions"])) == [{"type": "text", "content": "be kind"}]
    assert json.loads(str(found["gen_ai.input.messages"])) == [
        {
            "role": "user",
            "parts": [
                {"type": "text", "content": "what is this?"},
                {"type": "file", "modality": "image", "mime_type": "image/png", "file_id": ""},
            ],
        },
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "tool_call", "id": "c1", "name": "look", "arguments": '{"at":1}'},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "seen"}]},
    ]


def test_a_long_conversation_is_cut_between_messages() -> None:
    """The newest stay, and the attribute is still JSON."""
    messages = tuple(make_message("msg_1", f"{number} " + "x" * 1000) for number in range(200))
    text = str(input_content(ProviderRequest(model_id="m", system="", messages=messages))["gen_ai.input.messages"])
    kept = json.loads(text)
    assert MAX_ATTRIBUTE_BYTES * 0.9 < len(text) <= MAX_ATTRIBUTE_BYTES + 2
    assert kept[-1]["parts"][0]["content"].startswith("199 ")
    assert kept[0]["parts"][0]["content"].startswith(f"{200 - len(kept)} ")


def test_an_answer_has_its_finish_reason() -> None:
    """It is one message."""
    found = output_content(make_answer("msg_1", "hi"), FinishReason.STOP)
    assert json.loads(str(found["gen_ai.output.messages"])) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "hi"}], "finish_reason": "stop"}
    ]


def test_long_texts_are_cut() -> None:
    """With their length behind them."""
    assert shortened("x" * MAX_TEXT_CHARS) == "x" * MAX_TEXT_CHARS
    assert shortened("x" * (MAX_TEXT_CHARS + 1)) == "x" * MAX_TEXT_CHARS + f"... [{MAX_TEXT_CHARS + 1} characters]"
