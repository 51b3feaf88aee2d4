"""Calls with a deadline, which are tried again where that is safe.

A call is repeated when the server cannot have done it twice: it only reads, or its request has a name (`request_id`),
under which the server carries it out once. What a caller cancels stays cancelled.
"""

import asyncio
import random
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import Message

from turnwire_client.connection import Credentials
from turnwire_client.errors import TurnwireError, UnauthenticatedError, UnavailableError, error_of

FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 5.0
"""Before a call is tried again: doubled from the first to the greatest, less a part by chance."""

_TRANSIENT = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
"""Statuses after which the same call can succeed."""

_BROKEN = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED})
"""Statuses that gRPC gives to a connection that broke during a response. An error of the server with such a status has
a reason."""

_REPEATABLE = frozenset({"opencode.tool.PermissionResponse"})
"""Requests without a name that a server confirms when they come again."""

Answer = TypeVar("Answer", bound=Message)


class Pauses:
    """Times to wait before further attempts."""

    def __init__(self) -> None:
        """Begins with the shortest pause."""
        self._next = FIRST_PAUSE_SECONDS

    def after(self, error: TurnwireError | None) -> float:
        """Returns the seconds to wait: those that the server asks for, or else a part by chance of a growing pause."""
        pause, self._next = self._next, min(2 * self._next, MAX_PAUSE_SECONDS)
        if error is not None and error.retry_after is not None:
            return error.retry_after.total_seconds() + random.uniform(0, FIRST_PAUSE_SECONDS)
        return random.uniform(pause / 2, pause)


def is_transient(error: TurnwireError) -> bool:
    """Returns whether the same call can succeed after a while."""
    if error.retry_after is not None:
        return error.code in (*_TRANSIENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
    return error.code in _TRANSIENT or (error.code in _BROKEN and not error.reason)


def is_repeatable(request: Message) -> bool:
    """Returns whether a request that may have been carried out can be sent again."""
    if "request_id" in request.DESCRIPTOR.fields_by_name and getattr(request, "request_id"):  # noqa: B009
        return True
    if request.DESCRIPTOR.full_name in _REPEATABLE:
        return True
    method = _method_of(request.DESCRIPTOR)
    return method is not None and method.GetOptions().idempotency_level != MethodOptions.IDEMPOTENCY_UNKNOWN


def name(request: Message) -> None:
    """Gives a request a name if it can have one and has none."""
    if "request_id" in request.DESCRIPTOR.fields_by_name and not getattr(request, "request_id"):  # noqa: B009
        request.request_id = str(uuid.uuid4())  # type: ignore[attr-defined]


class Caller:
    """Makes calls over one channel."""

    def __init__(self, credentials: Credentials, *, timeout_seconds: float, retry_seconds: float) -> None:
        """Args:
        credentials: Who calls.
        timeout_seconds: Of one attempt.
        retry_seconds: How long after its beginning a call is tried again; 0 for never.
        """
        self._credentials = credentials
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds

    async def call(
        self,
        method: Callable[..., Awaitable[Answer]],
        request: Message,
        *,
        timeout_seconds: float | None = None,
        retry_seconds: float | None = None,
        may_repeat: bool = False,
    ) -> Answer:
        """Returns the answer of a method with one answer. See `Client.call`."""
        name(request)
        repeatable = may_repeat or is_repeatable(request)
        retry_seconds = self._retry_seconds if retry_seconds is None else retry_seconds
        timeout_seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        until, pauses, has_renewed = time.monotonic() + retry_seconds, Pauses(), False
        while True:
            metadata = await self._credentials.metadata()
            try:
                return await method(request, timeout=timeout_seconds, metadata=metadata)
            except grpc.aio.AioRpcError as caught:
                error = error_of(caught)
            if isinstance(error, UnauthenticatedError) and not has_renewed and self._credentials.refuse(metadata):
                has_renewed = True
                continue
            if not repeatable or not is_transient(error):
                raise error
            pause = pauses.after(error)
            if time.monotonic() + pause > until:
                raise error
            await asyncio.sleep(pause)

    async def stream(
        self, method: Callable[..., Any], request: Message, *, silence_seconds: float
    ) -> AsyncGenerator[Any, None]:
        """Yields the answers of a method with a stream of answers, once. Cancels the call at the end.

        Raises:
            TurnwireError: the stream broke, or nothing came for `silence_seconds`.
        """
        metadata = await self._credentials.metadata()
        call = method(request, metadata=metadata)
        try:
            while True:
                try:
                    async with asyncio.timeout(silence_seconds):
                        answer = await call.read()
                except TimeoutError:
                    silence = f"nothing came for {silence_seconds:.0f} seconds"
                    raise UnavailableError(silence, code=grpc.StatusCode.UNAVAILABLE) from None
                if answer is grpc.aio.EOF:  # type: ignore[attr-defined]  # the stubs lack it
                    return
                yield answer
        except grpc.aio.AioRpcError as caught:
            error = error_of(caught)
            if isinstance(error, UnauthenticatedError):
                self._credentials.refuse(metadata)
            raise error from None
        finally:
            call.cancel()

    def can_renew(self) -> bool:
        """Returns whether another token can be had after one was refused."""
        return self._credentials.refuse(())


def _method_of(request: Any) -> MethodDescriptor | None:
    """Returns the method that takes a request of a descriptor; each has a request of its own, in its own file."""
    for service in request.file.services_by_name.values():
        for method in service.methods:
            if method.input_type is request or method.input_type.full_name == request.full_name:
                found: MethodDescriptor = method
                return found
    return None
