"""Services as gRPC handlers: parse requests, write answers and convert statuses. The gate does the rest.

Handlers are made from service descriptors, so a method may return a message or its encoded bytes.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_status import rpc_status

from turnwire.api.gate import CallerGone, CallFailed, Gate
from turnwire.api.registry import Service

Context = grpc.aio.ServicerContext[Any, Any]


def service_handler(service: Service, gate: Gate) -> "grpc.GenericRpcHandler[Any, Any]":
    """Returns the handler of a service; its calls run through the gate."""
    methods = {
        method.name: _method_handler(method, getattr(service.servicer, method.name), gate)
        for method in service.descriptor.methods
    }
    return grpc.method_handlers_generic_handler(service.descriptor.full_name, methods)


def _method_handler(
    method: MethodDescriptor, implementation: Callable[..., Any], gate: Gate
) -> "grpc.RpcMethodHandler[Any, Any]":
    parse = GetMessageClass(method.input_type).FromString
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(
            stream_behavior(method.full_name, implementation, gate),
            request_deserializer=parse,
            response_serializer=_to_bytes,
        )
    return grpc.unary_unary_rpc_method_handler(
        _unary_behavior(method.full_name, implementation, gate),
        request_deserializer=parse,
        response_serializer=_to_bytes,
    )


def _to_bytes(answer: Message | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


def _unary_behavior(
    name: str, implementation: Callable[..., Any], gate: Gate
) -> Callable[[Any, Context], Awaitable[Message | bytes]]:
    async def handle(request: Any, context: Context) -> Message | bytes:
        try:
            return await gate.unary(name, implementation, request)
        except CallFailed as failed:
            await _abort(context, failed)
            raise AssertionError("abort raises") from failed

    return handle


def stream_behavior(
    name: str, implementation: Callable[..., Any], gate: Gate
) -> Callable[[Any, Context], Awaitable[None]]:
    """Returns the function that gRPC calls for a streaming method.

    Args:
        name: The method's full name.
        implementation: The servicer's method.
        gate: Runs the call.
    """

    async def handle(request: Any, context: Context) -> None:
        try:
            await gate.stream(name, implementation, request, _Outlet(context))
        except CallFailed as failed:
            await _abort(context, failed)

    return handle


class _Outlet:
    """Writes a stream's answers to the call. Implements `api.gate.Outlet`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def open(self) -> None:
        """Sends the initial metadata."""
        try:
            await self._context.send_initial_metadata(())
        except Exception as error:
            self._translate(error)

    async def send(self, answer: Message | bytes) -> None:
        """Writes one message."""
        try:
            await self._context.write(answer)
        except Exception as error:
            self._translate(error)

    def _translate(self, error: Exception) -> None:
        """Raises CallerGone if the client is gone, which gRPC reports in several ways, else the error."""
        if self._context.cancelled() or self._context.done() or isinstance(error, grpc.aio.InternalError):
            raise CallerGone from error
        raise error


async def _abort(context: Context, failed: CallFailed) -> None:
    """Ends the call with the status. Always raises."""
    await context.abort_with_status(rpc_status.to_status(failed.status))  # type: ignore[attr-defined]
