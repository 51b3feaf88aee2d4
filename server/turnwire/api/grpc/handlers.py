"""Services as gRPC handlers: write answers and convert statuses. The gate does the rest.

Handlers are made from service descriptors, so a method may return a message or its encoded bytes. For gRPC all of them
take a stream of requests, which on the wire is the same as one request: so a call begins before its request has come,
and HTTP/2 holds the request back until the gate asks for it.

gRPC frees a message only when it is read (https://github.com/grpc/grpc, `aio/grpc_aio.pyx.pxi`, 1.85). So each read is
a task, which continues when it is no longer awaited.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_status import rpc_status

from turnwire.api.admission.requests import CallerGone
from turnwire.api.gate import CallFailed, Gate, StreamingMethod, UnaryMethod
from turnwire.api.grpc.caller import Context, GrpcCaller
from turnwire.api.grpc.fair_server import when_ended
from turnwire.api.registry import Service
from turnwire.domain.errors import InvalidRequest

GONE_SECONDS = 0.2
"""Time within which gRPC tells that a call whose request did not come was ended by its client, or was too large."""


def service_handler(service: Service, gate: Gate) -> "grpc.GenericRpcHandler[Any, Any]":
    """Returns the handler of a service; its calls run through the gate, which also parses the requests."""
    handlers = {name: _method_handler(method, gate) for name, method in service.methods().items()}
    return grpc.method_handlers_generic_handler(service.descriptor.full_name, handlers)


def _method_handler(method: UnaryMethod | StreamingMethod, gate: Gate) -> "grpc.RpcMethodHandler[Any, Any]":
    if isinstance(method, StreamingMethod):
        return grpc.stream_stream_rpc_method_handler(stream_behavior(method, gate), response_serializer=to_bytes)
    return grpc.stream_unary_rpc_method_handler(_unary_behavior(method, gate), response_serializer=to_bytes)


def to_bytes(answer: Message | bytes) -> bytes:
    """Returns the bytes of an answer."""
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


def _unary_behavior(method: UnaryMethod, gate: Gate) -> Callable[[Any, Context], Awaitable[Message | bytes]]:
    async def handle(_requests: Any, context: Context) -> Message | bytes:
        receive = partial(read_request, context)
        try:
            return await gate.unary(method, receive, GrpcCaller(context), when_ended)
        except CallFailed as failed:
            return end_with(context, failed)

    return handle


def stream_behavior(method: StreamingMethod, gate: Gate) -> Callable[[Any, Context], Awaitable[None]]:
    """Returns the function that gRPC calls for a streaming method."""

    async def handle(_requests: Any, context: Context) -> None:
        receive = partial(read_request, context)
        try:
            await gate.stream(method, receive, GrpcCaller(context), CallOutlet(context))
        except CallFailed as failed:
            end_with(context, failed)

    return handle


def read_request(context: Context) -> "asyncio.Task[bytes]":
    """Reads the request of a call; further ones are ignored. The task raises InvalidRequest: it is missing."""
    return asyncio.create_task(_request(context))


async def _request(context: Context) -> bytes:
    data: Any = await context.read()
    if isinstance(data, bytes):
        return data
    # also when the client has gone or gRPC has refused the request; both end the call
    await asyncio.sleep(GONE_SECONDS)
    raise InvalidRequest.of("request", "is missing")


class CallOutlet:
    """Writes a stream's answers to the call. Implements `api.gate.Outlet`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._is_open = False

    async def open(self) -> None:
        """Sends the initial metadata, unless they are sent."""
        if self._is_open:
            return
        self._is_open = True
        try:
            await self._context.send_initial_metadata(())
        except Exception as error:
            self._translate(error)

    async def send(self, answer: Message | bytes) -> None:
        """Writes one message."""
        self._is_open = True
        try:
            await self._context.write(answer)
        except Exception as error:
            self._translate(error)

    def _translate(self, error: Exception) -> None:
        """Raises CallerGone if the client is gone, which gRPC reports in several ways, else the error."""
        if self._context.cancelled() or self._context.done() or isinstance(error, grpc.aio.InternalError):
            raise CallerGone from error
        raise error


def end_with(context: Context, failed: CallFailed) -> bytes:
    """Gives the call its status; the handler must return afterwards. Returns the answer that is never sent.

    gRPC's own `abort` keeps an exception that refers to the call: 50 objects for the garbage collector, each time. With
    it, a flood of wrong credentials stops the event loop for tenths of a second.
    """
    status = rpc_status.to_status(failed.status)
    context.set_code(status.code)
    context.set_details(status.details)
    context.set_trailing_metadata(status.trailing_metadata)
    return b""
