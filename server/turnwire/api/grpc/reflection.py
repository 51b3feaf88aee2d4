"""Server reflection, for callers that may read. It speaks both versions, whose messages are the same on the wire.

Its calls run through the gate, as those of the contract. Here alone a stream has several requests: each is received as
the first one, and the next one when its answer is sent.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from functools import partial
from typing import Any

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

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
    servicer = reflection.ReflectionServicer((*names, reflection.SERVICE_NAME))
    return tuple(_handler(name, servicer, gate) for name in SERVICE_NAMES)


def _handler(name: str, servicer: Any, gate: Gate) -> "grpc.GenericRpcHandler[Any, Any]":
    parse = reflection_pb2.ServerReflectionRequest.FromString

    async def handle(requests: Any, context: Context) -> None:
        async def run(_principal: Principal, request: Any) -> AsyncGenerator[Any]:
            while True:
                for answer in servicer.ServerReflectionInfo(iter((request,)), context):
                    yield answer
                try:
                    request = await gate.further(method, partial(_next, context), GrpcCaller(context))
                except _NoMore:
                    return

        method = StreamingMethod(f"{name}.{_METHOD}", REFLECTION, parse, run, MAX_REQUEST_BYTES)
        await stream_behavior(method, gate)(requests, context)

    method = grpc.stream_stream_rpc_method_handler(handle, response_serializer=to_bytes)
    return grpc.method_handlers_generic_handler(name, {_METHOD: method})


class _NoMore(Exception):
    """The caller has no further request."""


def _next(context: Context) -> "asyncio.Task[bytes]":
    """Reads the next request; see `read_request`. The task raises _NoMore."""
    return asyncio.create_task(_next_request(context))


async def _next_request(context: Context) -> bytes:
    data: Any = await context.read()
    if isinstance(data, bytes):
        return data
    raise _NoMore
