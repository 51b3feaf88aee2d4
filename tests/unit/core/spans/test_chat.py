"""The span of one call of a model."""

import pytest
from opentelemetry.trace import SpanKind

from tests.support.fakes.core import FakeProvider
from tests.support.fakes.domain_values import NOW
from tests.support.fakes.traces import RecordedTracer
from turnwire.config.sections import TracingConfig
from turnwire.core.spans.chat import ChatSpan
from turnwire.domain.conversation.messages import (
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRef,
    ModelRun,
)
from turnwire.domain.conversation.turns import GenerationOptions
from turnwire.domain.errors import ProviderStreamCut
from turnwire.domain.money import Usage
from turnwire.ports.provider import ProviderRequest, StepFinished

OPTIONS = GenerationOptions(temperature=0.5, max_output_tokens=100)
REQUEST = ProviderRequest(model_id="m", system="the secret plan", messages=(), options=OPTIONS)
USAGE = Usage(input_tokens=5, cache_read_tokens=3, cache_write_tokens=2, output_tokens=7, reasoning_tokens=4)
ANSWER = Message(
    message_id="msg_1",
    session_id="ses_1",
    type=MessageType.ASSISTANT,
    status=MessageStatus.STREAMING,
    created_at=NOW,
    updated_at=NOW,
    usage=USAGE,
    model_run=ModelRun(provider_id="p", model_requested="m", model_served="m-2026", response_id="r1"),
)


def test_it_has_what_was_asked_and_what_came_back() -> None:
    """Tokens of the prompt include those of the cache, and those of the answer its reasoning."""
    tracer = RecordedTracer()
    chat = ChatSpan(tracer, REQUEST, ModelRef("p", "m"), "ses_1")
    with chat.span:
        chat.note_item()
        chat.note_item()
        chat.note_answer(ANSWER, StepFinished(FinishReason.STOP, "end_turn"), None)
    attributes = dict(tracer.attributes())
    assert attributes.pop("gen_ai.response.time_to_first_chunk") >= 0
    assert attributes == {
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
    chat = ChatSpan(tracer, REQUEST, ModelRef("p", "m"), "ses_1")
    with chat.span:
        chat.note_answer(ANSWER, None, ProviderStreamCut("the secret plan"))
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
    chat = ChatSpan(tracer, REQUEST, ModelRef(provider_id, "m"), "ses_1")
    with chat.span:
        chat.note_provider(provider)
    assert tracer.attributes()["gen_ai.provider.name"] == name
    assert tracer.attributes()["turnwire.provider"] == provider_id


def test_a_summary_is_marked() -> None:
    """It is no answer that somebody reads."""
    tracer = RecordedTracer()
    ChatSpan(tracer, REQUEST, ModelRef("p", "m"), "ses_1", is_summary=True).span.end()
    assert tracer.attributes()["turnwire.summary"] is True


@pytest.mark.parametrize(("ratio", "content", "found"), [(1, False, 0), (1, True, 1), (0, True, 0)])
def test_content_needs_the_setting(ratio: int, content: bool, found: int) -> None:
    """And a trace that is recorded."""
    tracer = RecordedTracer(TracingConfig(content=content, sample_ratio=ratio))
    chat = ChatSpan(tracer, REQUEST, ModelRef("p", "m"), "ses_1")
    with chat.span:
        chat.note_answer(ANSWER, None, None)
    assert sum("the secret plan" in span.to_json() for span in tracer.spans) == found
