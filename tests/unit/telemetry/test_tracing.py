"""Spans of OpenTelemetry, and what becomes of those that cannot be sent."""

import asyncio
import threading
from collections.abc import Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from structlog.testing import capture_logs

from tests.support.fakes.traces import RecordedTracer
from turnwire.config.sections import TracingConfig
from turnwire.ports.telemetry.tracing import SpanKind, current_span
from turnwire.telemetry import tracing as module
from turnwire.telemetry.tracing import REPORT_SECONDS, _ReportingExporter, _stop, tracer_provider, tracing

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes from the environment of the test."""
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


def test_spans_belong_to_the_current_one() -> None:
    """Without one, they begin a trace. OpenTelemetry's own current span is left alone."""
    tracer = RecordedTracer()
    with tracer.start("outer", {"a": "b", "c": None}, SpanKind.SERVER) as outer:
        with tracer.start("inner") as inner:
            assert current_span() is inner
            assert not trace.get_current_span().get_span_context().is_valid
        assert outer.traceparent == f"00-{outer.trace_id}-{outer.span_id}-01"
    tracer.start("other").end()
    first, second, third = tracer.spans
    assert second.parent is None and third.parent is None and first.parent is not None
    assert trace.format_span_id(first.parent.span_id) == outer.span_id
    assert inner.trace_id == outer.trace_id != trace.format_trace_id(third.context.trace_id)
    assert (second.attributes, second.kind) == ({"a": "b"}, trace.SpanKind.SERVER)


@pytest.mark.parametrize(
    "text",
    [
        f"00-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-03",
        f"cc-{TRACE}-{PARENT}-01",
        f"cc-{TRACE}-{PARENT}-01-what-comes-later",
    ],
)
def test_a_valid_place_is_continued(text: str) -> None:
    """Versions to come may have more in them."""
    tracer = RecordedTracer(TracingConfig(sample_ratio=0))
    with tracer.start("call", parent=text) as span:
        assert span.trace_id == TRACE and span.traceparent.endswith("-01")
    [ended] = tracer.spans
    assert trace.format_span_id(ended.parent.span_id) == PARENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-01-more",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-0g",
        f"00-{TRACE}-{PARENT}-01" * 10_000,
    ],
)
def test_a_place_that_is_not_valid_is_ignored(text: str) -> None:
    """The trace begins here, also inside another span."""
    tracer = RecordedTracer()
    with tracer.start("outer") as outer, tracer.start("call", parent=text) as span:
        assert span.trace_id not in ("", TRACE, outer.trace_id)
    assert tracer.spans[0].parent is None


def test_spans_that_are_not_sampled_keep_their_trace() -> None:
    """So that what follows is not sampled either, in this process and in the next."""
    tracer = RecordedTracer(TracingConfig(sample_ratio=0))
    with tracer.start("call") as span:
        assert (span.is_recording, span.traceparent[-2:], len(span.trace_id)) == (False, "00", 32)
        with tracer.start("turn", parent=span.traceparent) as later:
            assert later.trace_id == span.trace_id
    assert tracer.spans == ()


def test_errors_are_words() -> None:
    """Without a message or a traceback, which may quote prompts."""
    tracer = RecordedTracer()
    with pytest.raises(KeyError), tracer.start("work"):
        raise KeyError("the secret plan")
    [span] = tracer.spans
    assert (dict(span.attributes or {}), span.status.status_code) == (
        {"error.type": "KeyError"},
        trace.StatusCode.ERROR,
    )
    assert (span.events, span.status.description) == ((), None)


def test_what_happens_to_an_ended_span_has_no_effect() -> None:
    """And is no error."""
    tracer = RecordedTracer()
    span = tracer.start("work")
    span.end()
    span.set({"late": True})
    span.fail("LATE")
    span.end()
    assert tracer.attributes() == {}


def test_the_file_wins_over_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key with its default is taken from them."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "from the variable")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    left_out, given = TracingConfig(), TracingConfig(service_name="from the file", sample_ratio=0.9999999)
    assert [tracer_provider(config).resource.attributes["service.name"] for config in (left_out, given)] == [
        "from the variable",
        "from the file",
    ]
    assert tracer_provider(given).resource.attributes["deployment.environment.name"] == "test"
    assert [RecordedTracer(config).start("a").is_recording for config in (left_out, given)] == [False, True]


def test_the_variables_can_switch_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The spans are then part of no trace."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with RecordedTracer().start("work") as span:
        assert (span.traceparent, span.trace_id, span.is_recording) == ("", "", False)


async def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops the start."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
    with pytest.raises(RuntimeError, match="OTEL_"):
        async with tracing(TracingConfig(enabled=True)):
            pass


class Unreachable(SpanExporter):
    """Fails, or hangs until it is shut down."""

    def __init__(self, *, hangs: bool = False) -> None:
        self._hangs = hangs
        self._shut_down = threading.Event()
        self.ended = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Fails."""
        if self._hangs:
            self._shut_down.wait()
            self.ended.set()
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Makes it return."""
        self._shut_down.set()


def test_lost_spans_are_logged_once_a_minute() -> None:
    """With their number since the last line."""
    now = [0.0]
    exporter = _ReportingExporter(Unreachable(), lambda: now[0])
    spans = [ReadableSpan("a"), ReadableSpan("b")]
    with capture_logs() as lines:
        for now[0] in (0.0, 1.0, REPORT_SECONDS, REPORT_SECONDS + 1):
            exporter.export(spans)
    assert [(line["event"], line["spans"]) for line in lines] == [("traces_not_sent", 2), ("traces_not_sent", 4)]


async def test_the_stop_waits_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the running export is told to give up, and the event loop has gone on all the time."""
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.01)
    hanging = Unreachable(hangs=True)
    provider, exporter = tracer_provider(TracingConfig()), _ReportingExporter(hanging)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    provider.get_tracer("test").start_span("last").end()
    with capture_logs() as lines:
        await _stop(provider, exporter)
        await asyncio.to_thread(hanging.ended.wait, 10)
    assert hanging.ended.is_set()
    assert lines[0]["event"] == "traces_not_sent_at_stop"
