"""A local collector of OpenTelemetry: it takes traces over OTLP/HTTP and decodes them."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

Attribute = str | int | float | bool | list[str]


@dataclass(frozen=True)
class ReceivedSpan:
    """One span as it came."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    """Such as `SERVER`."""
    failed: bool
    attributes: Mapping[str, Attribute]
    resource: Mapping[str, Attribute]
    text: str
    """All of the span, to search in."""


@dataclass
class Collector:
    """Receiver of traces: its address, and the spans that have arrived so far."""

    endpoint: str = ""
    """Its address, for `tracing.endpoint`."""
    spans: list[ReceivedSpan] = field(default_factory=list)

    def named(self, name: str) -> list[ReceivedSpan]:
        """Returns the spans with a name, oldest first."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReceivedSpan:
        """Returns the only span with a name."""
        [span] = self.named(name)
        return span

    def configuration(self, *more: str) -> str:
        """Returns a section that sends traces here."""
        return "\n".join(["[tracing]", "enabled = true", f'endpoint = "{self.endpoint}"', *more, ""])


@contextlib.asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """Listens on a free port. A server sends the last of its spans when it stops."""
    collected = Collector()

    async def receive(request: web.Request) -> web.Response:
        _decode(await request.read(), collected.spans)
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(), content_type="application/x-protobuf"
        )

    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/traces", receive)
    runner = web.AppRunner(app, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    collected.endpoint = f"http://{host}:{port}/v1/traces"
    try:
        yield collected
    finally:
        await runner.cleanup()


def _decode(body: bytes, spans: list[ReceivedSpan]) -> None:
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = {pair.key: _value(pair.value) for pair in group.resource.attributes}
        for span in (span for scope in group.scope_spans for span in scope.spans):
            spans.append(
                ReceivedSpan(
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
                    failed=span.status.code == Status.STATUS_CODE_ERROR,
                    attributes={pair.key: _value(pair.value) for pair in span.attributes},
                    resource=resource,
                    text=str(span),
                )
            )


def _value(value: AnyValue) -> Attribute:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [item.string_value for item in value.array_value.values]
    found: str | int | float | bool = getattr(value, kind or "string_value")
    return found
