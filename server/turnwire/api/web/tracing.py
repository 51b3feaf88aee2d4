"""The span of each call, as the gRPC listener has it."""

from collections.abc import Iterator
from contextlib import contextmanager

from google.protobuf.message import Message

from turnwire.api.admission.responses import WhenSent
from turnwire.api.gate import CallFailed, Outlet, Receive, StreamingMethod, UnaryMethod
from turnwire.api.web.caller import WebCaller
from turnwire.api.web.protocols.call import Gatekeeper
from turnwire.api.wire.status import code_name
from turnwire.ports.telemetry.tracing import SpanKind, Tracer

_SERVER_ERRORS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
"""Codes that the conventions call errors of the server; the others are the caller's."""


class TracedGate:
    """Runs each call in a span that continues the trace of the caller (`traceparent`)."""

    def __init__(self, gate: Gatekeeper, tracer: Tracer) -> None:
        """Takes what carries out the calls, and what starts the spans."""
        self._gate, self._tracer = gate, tracer

    async def unary(
        self, method: UnaryMethod, receive: Receive, caller: WebCaller, when_sent: WhenSent | None = None
    ) -> Message | bytes:
        """See `Gate.unary`."""
        with self._span(method, caller):
            return await self._gate.unary(method, receive, caller, when_sent)

    async def stream(self, method: StreamingMethod, receive: Receive, caller: WebCaller, outlet: Outlet) -> None:
        """See `Gate.stream`."""
        with self._span(method, caller):
            await self._gate.stream(method, receive, caller, outlet)

    def refused(self, code: str, cause: str, address: str) -> None:
        """See `Gate.refused`."""
        self._gate.refused(code, cause, address)

    @contextmanager
    def _span(self, method: UnaryMethod | StreamingMethod, caller: WebCaller) -> Iterator[None]:
        service, _, short = method.name.rpartition(".")
        name = f"{service}/{short}"
        attributes = {"rpc.system.name": "connectrpc", "rpc.method": name}
        parent = caller.exchange.header("traceparent") or ""
        with self._tracer.start(name, attributes, SpanKind.SERVER, parent) as span:
            failure: CallFailed | None = None
            code = "CANCELLED"
            try:
                yield
                code = "OK"
            except CallFailed as failed:
                failure, code = failed, code_name(failed.status.code)
            finally:
                span.set({"rpc.response.status_code": code})
            if code in _SERVER_ERRORS:
                span.fail(code)
        if failure is not None:
            raise failure
