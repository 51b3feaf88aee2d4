"""Traces through OpenTelemetry, sent over OTLP/HTTP. Needs the extra `otel`.

The SDK is used without its global tracer provider and without its current span: with either, the SDKs of MCP and of
providers would write spans of their own and send the trace to their servers, whatever the configuration says.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from turnwire import __version__
from turnwire.config.sections import TracingConfig
from turnwire.ports.telemetry.tracing import Attributes, Span, SpanKind, TracedSpan, Tracer, current_span

FLUSH_SECONDS = 1.0
"""Maximum time that the stop of the server waits for the last spans to be sent."""

REPORT_SECONDS = 60.0
"""Minimum interval between two log lines about spans that could not be sent."""

_PROPAGATOR = TraceContextTextMapPropagator()
"""Reads the header `traceparent` (W3C Trace Context)."""

_KINDS = {
    SpanKind.INTERNAL: trace.SpanKind.INTERNAL,
    SpanKind.SERVER: trace.SpanKind.SERVER,
    SpanKind.CLIENT: trace.SpanKind.CLIENT,
}

log = structlog.get_logger()


@contextlib.asynccontextmanager
async def tracing(config: TracingConfig) -> AsyncIterator[Tracer]:
    """Yields the tracer while the context is open. Leaving it sends the waiting spans, within `FLUSH_SECONDS`.

    Spans wait in a queue of bounded size for a thread that sends them; a full queue drops the oldest. The event loop
    never waits for the collector.

    Raises:
        RuntimeError: a variable of OpenTelemetry has an invalid value.
    """
    # the SDK logs each failed batch; `_ReportingExporter` writes one line per minute instead
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    try:
        exporter = _ReportingExporter(OTLPSpanExporter(endpoint=config.endpoint or None))
        processor = BatchSpanProcessor(exporter)
        provider = tracer_provider(config)
    except ValueError as error:
        raise RuntimeError(f"tracing: an OTEL_* variable is invalid: {error}") from error
    provider.add_span_processor(processor)
    try:
        yield OtelTracer(provider, records_content=config.content)
    finally:
        await _stop(provider, exporter)


def tracer_provider(config: TracingConfig) -> TracerProvider:
    """Returns a provider without processors. Settings that have their default are read from the variables OTEL_*."""
    own = Resource({"service.name": "turnwire", "service.version": __version__})
    resource = own.merge(OTELResourceDetector().detect())
    if config.service_name:
        resource = resource.merge(Resource({"service.name": config.service_name}))
    sampler = None if config.sample_ratio == 1 else ParentBased(TraceIdRatioBased(config.sample_ratio))
    return TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)


class OtelTracer(Tracer):
    """Starts spans of OpenTelemetry."""

    def __init__(self, provider: TracerProvider, *, records_content: bool) -> None:
        """Args:
        provider: Samples and processes the spans.
        records_content: Whether prompts, answers, and arguments and results of tools may become attributes.
        """
        self._tracer = provider.get_tracer("turnwire", __version__)
        self._records_content = records_content

    @property
    def records_content(self) -> bool:
        """See `Tracer`."""
        return self._records_content

    def start(
        self,
        name: str,
        attributes: Attributes | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: str | None = None,
    ) -> Span:
        """See `Tracer`."""
        known = {key: value for key, value in (attributes or {}).items() if value is not None}
        return OtelSpan(self._tracer.start_span(name, _context(parent), _KINDS[kind], known))


class OtelSpan(TracedSpan):
    """One span of OpenTelemetry."""

    def __init__(self, span: trace.Span) -> None:
        """Takes a span that has started."""
        self._span = span
        self._place = span.get_span_context()

    @property
    def context(self) -> Context:
        """The parent context for spans below this one."""
        return trace.set_span_in_context(self._span, Context())

    @property
    def is_recording(self) -> bool:
        """See `Span`."""
        return self._span.is_recording()

    @property
    def traceparent(self) -> str:
        """See `Span`."""
        return f"00-{self.trace_id}-{self.span_id}-{self._place.trace_flags & 1:02x}" if self._place.is_valid else ""

    @property
    def trace_id(self) -> str:
        """See `Span`."""
        return trace.format_trace_id(self._place.trace_id) if self._place.is_valid else ""

    @property
    def span_id(self) -> str:
        """See `Span`."""
        return trace.format_span_id(self._place.span_id) if self._place.is_valid else ""

    def set(self, attributes: Attributes) -> None:
        """See `Span`."""
        if self._span.is_recording():
            self._span.set_attributes({key: value for key, value in attributes.items() if value is not None})

    def fail(self, error_type: str) -> None:
        """See `Span`."""
        if self._span.is_recording():
            self._span.set_attribute("error.type", error_type)
            self._span.set_status(trace.StatusCode.ERROR)

    def end(self) -> None:
        """See `Span`."""
        if self._span.is_recording():
            self._span.end()


def _context(parent: str | None) -> Context:
    """Returns the parent context of a new span: the given parent, else the current span, else none."""
    if parent is not None:
        return _PROPAGATOR.extract({"traceparent": parent}, Context())
    current = current_span()
    return current.context if isinstance(current, OtelSpan) else Context()


class _ReportingExporter(SpanExporter):
    """Sends spans through another exporter, and logs at intervals the number of spans that could not be sent. Used on
    one thread.
    """

    def __init__(self, exporter: SpanExporter, clock: Callable[[], float] = time.monotonic) -> None:
        self._exporter = exporter
        self._clock = clock
        self._lost = 0
        self._report_at = 0.0
        self._is_shut_down = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See `SpanExporter`."""
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._lost += len(spans)
            if self._clock() >= self._report_at:
                log.warning("traces_not_sent", spans=self._lost)
                self._lost, self._report_at = 0, self._clock() + REPORT_SECONDS
        return result

    def shutdown(self) -> None:
        """Makes a running export stop. Idempotent."""
        if not self._is_shut_down:
            self._is_shut_down = True
            self._exporter.shutdown()


async def _stop(provider: TracerProvider, exporter: _ReportingExporter) -> None:
    """Sends the waiting spans. Spans that are not sent within `FLUSH_SECONDS` are lost.

    The thread that sends is a daemon, because the interpreter waits for others when it ends.
    """
    sending = threading.Thread(target=provider.shutdown, name="tracing stop", daemon=True)
    sending.start()
    try:
        await asyncio.to_thread(sending.join, FLUSH_SECONDS)
    finally:
        if sending.is_alive():
            log.warning("traces_not_sent_at_stop")
        exporter.shutdown()
