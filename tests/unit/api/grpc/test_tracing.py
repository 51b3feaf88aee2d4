"""The span of each call."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from opentelemetry.trace import SpanKind, StatusCode

from tests.support.fakes.traces import RecordedTracer
from turnwire.api.grpc.tracing import CallTracing

NAME = "opencode.a.B/Method"


class EndedCall:
    """A call as gRPC sees it when its handler has ended."""

    def __init__(self, code: object = None, *, cancelled: bool = False) -> None:
        """Takes the code of its status, and whether the caller is gone."""
        self._code = code
        self._cancelled = cancelled

    def code(self) -> object:
        """Returns the code."""
        return self._code

    def cancelled(self) -> bool:
        """Returns whether the caller is gone."""
        return self._cancelled


async def traced(
    tracer: RecordedTracer, behavior: Callable[[Any, Any], Awaitable[Any]], *, streams: bool = False, name: str = NAME
) -> Any:
    """Returns the handler that is made of a behavior."""
    make = grpc.stream_stream_rpc_method_handler if streams else grpc.stream_unary_rpc_method_handler

    async def continuation(_: object) -> Any:
        return make(behavior, request_deserializer=bytes, response_serializer=bytes)

    details: Any = SimpleNamespace(method=f"/{name}", invocation_metadata=None)
    return await CallTracing(tracer).intercept_service(continuation, details)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("failure", "call", "code", "failed"),
    [
        (None, EndedCall(), "OK", False),
        (None, EndedCall(5), "NOT_FOUND", False),
        (None, EndedCall(grpc.StatusCode.INTERNAL), "INTERNAL", True),
        (None, EndedCall(cancelled=True), "CANCELLED", False),
        (asyncio.CancelledError(), EndedCall(), "CANCELLED", False),
        (RuntimeError("abort"), EndedCall(5), "NOT_FOUND", False),
        (RuntimeError("abort"), EndedCall(grpc.StatusCode.RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED", False),
        (RuntimeError("abort"), EndedCall(13), "INTERNAL", True),
        (RuntimeError("abort"), EndedCall(grpc.StatusCode.UNAVAILABLE), "UNAVAILABLE", True),
        (KeyError("the secret plan"), EndedCall(None), "UNKNOWN", True),
    ],
)
async def test_a_call_has_its_code(
    failure: BaseException | None, call: EndedCall, code: str, failed: bool, streams: bool
) -> None:
    """Only errors of the server fail the span. What the handler raises goes on to gRPC."""

    async def behavior(request: bytes, context: object) -> bytes:
        if failure is not None:
            raise failure
        return request + b"!"

    tracer = RecordedTracer()
    handler = await traced(tracer, behavior, streams=streams)
    handle = handler.stream_stream if streams else handler.stream_unary
    if failure is None:
        assert await handle(b"hi", call) == b"hi!"
    else:
        with pytest.raises(type(failure)):
            await handle(b"hi", call)
    expected = {"rpc.system.name": "grpc", "rpc.method": NAME, "rpc.response.status_code": code}
    assert tracer.attributes() == expected | ({"error.type": code} if failed else {})
    [span] = tracer.spans
    assert (span.name, span.kind, span.status.status_code is StatusCode.ERROR) == (NAME, SpanKind.SERVER, failed)
    assert (handler.request_deserializer, handler.response_serializer) == (bytes, bytes)
