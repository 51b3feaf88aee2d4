"""A tracer whose spans a test reads."""

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from turnwire.config.sections import TracingConfig
from turnwire.telemetry.tracing import OtelTracer, tracer_provider


class RecordedTracer(OtelTracer):
    """Keeps the spans that have ended, in the order of their ends."""

    def __init__(self, config: TracingConfig | None = None) -> None:
        """Takes the configuration; None for the default one."""
        config = config or TracingConfig()
        provider = tracer_provider(config)
        self._ended = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._ended))
        super().__init__(provider, records_content=config.content)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """The spans that have ended."""
        return self._ended.get_finished_spans()

    def attributes(self) -> Mapping[str, Any]:
        """Returns the attributes of the only span."""
        [span] = self.spans
        return dict(span.attributes or {})
