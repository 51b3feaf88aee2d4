"""The span of each call, by the RPC semantic conventions of OpenTelemetry (version 1.41, release candidate)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import grpc

from turnwire.ports.telemetry.tracing import Span, SpanKind, Tracer

Context = grpc.aio.ServicerContext[Any, Any]
Handler = Any
"""A `grpc.RpcMethodHandler`."""

_CODES = {code.value[0]: code.name for code in grpc.StatusCode}

_SERVER_ERRORS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
"""Codes that the conventions call errors of the server; the others are the caller's."""


class CallTracing(grpc.aio.ServerInterceptor[Any, Any] if TYPE_CHECKING else grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Runs each call of the contract in a span that continues the trace of the caller.

    The span begins before the gate, so that the log line of the call is part of its trace. Health checks and
    reflection have no spans.
    """

    def __init__(self, tracer: Tracer) -> None:
        """Takes what starts the spans."""
        self._tracer = tracer

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Returns the handler of a call within a span."""
        handler = await continuation(handler_call_details)
        name = handler_call_details.method.removeprefix("/")
        if handler is None or not name.startswith("opencode."):
            return handler
        parent = _caller_place(handler_call_details.invocation_metadata)
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._traced(handler.stream_stream, name, parent),
                request_deserializer=handler.request_deserializer,
                response_serializer=handler.response_serializer,
            )
        return grpc.stream_unary_rpc_method_handler(
            self._traced(handler.stream_unary, name, parent),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _traced(self, behavior: Callable[..., Any], name: str, parent: str) -> Callable[[Any, Context], Awaitable[Any]]:
        attributes = {"rpc.system.name": "grpc", "rpc.method": name}

        async def handle(request: Any, context: Context) -> Any:
            answer, failure = None, None
            with self._tracer.start(name, attributes, SpanKind.SERVER, parent) as span:
                try:
                    answer = await behavior(request, context)
                except BaseException as error:
                    failure = error
                _note_code(span, _code(context, failure))
            if failure is not None:
                raise failure
            return answer

        return handle


def _caller_place(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """Returns the caller's `traceparent`; "" when it sent none. Of several, gRPC keeps the last."""
    return next((str(value) for key, value in metadata or () if key == "traceparent"), "")


def _code(context: Context, failure: BaseException | None) -> str:
    """Returns the name of the status that a call ended with."""
    if isinstance(failure, asyncio.CancelledError) or (failure is None and context.cancelled()):
        return "CANCELLED"
    code: Any = context.code()  # gRPC gives it as a number or as an enum; 0 or None of a call without an error
    if failure is None and not code:
        return "OK"
    return _CODES.get(code.value[0] if isinstance(code, grpc.StatusCode) else code, "UNKNOWN")


def _note_code(span: Span, code: str) -> None:
    span.set({"rpc.response.status_code": code})
    if code in _SERVER_ERRORS:
        span.fail(code)
