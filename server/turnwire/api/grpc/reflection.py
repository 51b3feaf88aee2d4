"""Server reflection, for callers that may read. It speaks both versions, whose messages are the same on the wire.

Its calls run through the gate, as those of the contract. Here alone a stream has several requests: each is received as
the first one, and the next one when its answer is sent.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Self

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2
from grpc_reflection.v1alpha._async import ReflectionServicer

from turnwire.api.gate import Gate, StreamingMethod
from turnwire.api.grpc.caller import Context, GrpcCaller
from turnwire.api.grpc.handlers import stream_behavior, to_bytes
from turnwire.api.rights import REFLECTION
from turnwire.domain.principal import Principal

_METHOD = "ServerReflectionInfo"
SERVICE_NAMES = (reflection.SERVICE_NAME, "grpc.reflection.v1.ServerReflection")

MAX_REQUEST_BYTES = 1024
"""Maximum size of a request: more than any name of a file, a service or a message."""


def reflection_handlers(names: Iterable[str], gate: Gate) -> "tuple[grpc.GenericRpcHandler[Any, Any], ...]":
    """Returns the handlers of both versions.

    Args:
        names: Full names of the services to list, in addition to reflection itself in the version that has a descriptor
            here.
        gate: Runs the calls.
    """
    servicer = ReflectionServicer((*names, reflection.SERVICE_NAME))
    return tuple(_handler(name, servicer, gate) for name in SERVICE_NAMES)


def _handler(name: str, servicer: Any, gate: Gate) -> "grpc.GenericRpcHandler[Any, Any]":
    parse = reflection_pb2.ServerReflectionRequest.FromString

    async def handle(requests: Any, context: Context) -> None:
        def run(_principal: Principal, request: Any) -> AsyncGenerator[Any]:
            further = partial(gate.further, method, partial(_next, context), GrpcCaller(context))
            answers: AsyncGenerator[Any] = servicer.ServerReflectionInfo(_Requests(request, further), context)
            return answers

        method = StreamingMethod(f"{name}.{_METHOD}", REFLECTION, parse, run, MAX_REQUEST_BYTES)
        await stream_behavior(method, gate)(requests, context)

    method = grpc.stream_stream_rpc_method_handler(handle, response_serializer=to_bytes)
    return grpc.method_handlers_generic_handler(name, {_METHOD: method})


class _NoMore(Exception):
    """The caller has no further request."""


def _next(context: Context) -> "asyncio.Task[bytes]":
    """Reads the next request; see `grpc.reads`. The task raises _NoMore."""
    return asyncio.create_task(_next_request(context))


async def _next_request(context: Context) -> bytes:
    data: Any = await context.read()
    if isinstance(data, bytes):
        return data
    raise _NoMore


class _Requests:
    """The requests of one call, in order."""

    def __init__(self, first: Any, further: Callable[[], Awaitable[Any]]) -> None:
        """Takes the first one, and what receives the next one or raises _NoMore."""
        self._first, self._further = first, further

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        try:
            return await self._further()
        except _NoMore:
            raise StopAsyncIteration from None
