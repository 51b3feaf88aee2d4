"""Registering servicers: every call gets its log line and its errors mapped in one place.

Handlers are made from the service descriptors, so a method may answer a message or its bytes: pages and batches are
bytes that were framed when they were stored.
"""

import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

import grpc
import structlog
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from turnwire.api.services.opening import STREAM_OPEN
from turnwire.api.wire.status import internal_status, status_of
from turnwire.domain.errors import DomainError
from turnwire.domain.ids import new_id
from turnwire.domain.principal import BUILT_IN, Principal

Context = grpc.aio.ServicerContext[Any, Any]
Answer = TypeVar("Answer")

log = structlog.get_logger()


def service_handler(descriptor: ServiceDescriptor, servicer: object) -> "grpc.GenericRpcHandler[Any, Any]":
    """Returns the handler of a service.

    Args:
        descriptor: The service.
        servicer: Has a coroutine method, or for a stream an async generator method, of each method's name, called with
            the principal and the request. Each returns or yields messages or their bytes.
    """
    methods = {method.name: _method_handler(method, getattr(servicer, method.name)) for method in descriptor.methods}
    return grpc.method_handlers_generic_handler(descriptor.full_name, methods)


def _method_handler(method: MethodDescriptor, implementation: Callable[..., Any]) -> "grpc.RpcMethodHandler[Any, Any]":
    parse = GetMessageClass(method.input_type).FromString
    name = method.full_name
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(
            _stream(name, implementation), request_deserializer=parse, response_serializer=_to_bytes
        )
    return grpc.unary_unary_rpc_method_handler(
        _unary(name, implementation), request_deserializer=parse, response_serializer=_to_bytes
    )


def _to_bytes(answer: Message | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


def _unary(
    name: str, implementation: Callable[[Principal, Any], Awaitable[Answer]]
) -> Callable[[Any, Context], Awaitable[Answer]]:
    async def handle(request: Any, context: Context) -> Answer:
        call = _Call(name, request)
        try:
            answer = await implementation(BUILT_IN, request)
            call.session_id = call.session_id or getattr(answer, "session_id", "")
        except Exception as error:
            await call.fail(error, context)
            raise AssertionError("abort raises") from error
        except BaseException:
            call.log("CANCELLED")
            raise
        call.log("OK")
        return answer

    return handle


def _stream(
    name: str, implementation: Callable[[Principal, Any], AsyncGenerator[Message | bytes]]
) -> Callable[[Any, Context], Awaitable[None]]:
    async def handle(request: Any, context: Context) -> None:
        call = _Call(name, request)
        try:
            async with contextlib.aclosing(implementation(BUILT_IN, request)) as answers:
                async for answer in answers:
                    if answer is STREAM_OPEN:
                        await context.send_initial_metadata(())
                    else:
                        await context.write(answer)
        except DomainError as error:
            await call.fail(error, context)
        except Exception as error:
            # a client that went away makes the pending write fail in grpc's own ways
            if context.cancelled() or context.done() or isinstance(error, grpc.aio.InternalError):
                call.log("CANCELLED")
                return
            await call.fail(error, context)
        except BaseException:
            call.log("CANCELLED")
            raise
        call.log("OK")

    return handle


class _Call:
    """One call, for its log line and its errors."""

    def __init__(self, name: str, request: Any) -> None:
        self._name = name
        self.session_id = getattr(request, "session_id", "")
        self._started = time.perf_counter()

    def log(self, code: str, reason: str = "", request_id: str = "") -> None:
        """Writes the call's line. Holds no content of the request."""
        log.info(
            "rpc",
            method=self._name,
            code=code,
            reason=reason,
            milliseconds=round((time.perf_counter() - self._started) * 1000, 1),
            # a caller may write anything into it
            session_id=self.session_id[:64] if self.session_id.isprintable() else "",
            request_id=request_id,
        )

    async def fail(self, error: Exception, context: Context) -> None:
        """Ends the call with the status of an error. Always raises."""
        if isinstance(error, DomainError):
            status = status_of(error)
            self.log(status.code.name, error.reason)
        else:
            request_id = new_id("rpc")
            status = internal_status(request_id)
            log.error("rpc_failed", method=self._name, request_id=request_id, exc_info=error)
        await context.abort_with_status(status)  # type: ignore[attr-defined]
