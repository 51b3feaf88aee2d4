"""The health service (grpc.health.v1), which is open to callers without credentials.

grpcio-health-checking has one too. There, a caller that watches without reading holds a lock, which stops all other
watchers and the end of the server; a request is kept as long as its watch; and bytes that are no request are logged
with a trace each. Here a caller can hold up only itself.
"""

import asyncio
from collections.abc import Iterable
from functools import partial

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1.health_pb2 import DESCRIPTOR, HealthCheckRequest, HealthCheckResponse

from turnwire.api.admission.overload import Overload
from turnwire.api.admission.requests import CallerGone
from turnwire.api.gate import CallFailed, too_long
from turnwire.api.grpc.caller import Context, GrpcCaller
from turnwire.api.grpc.fair_server import when_ended
from turnwire.api.grpc.handlers import CallOutlet, end_with, read_request, to_bytes
from turnwire.api.wire.status import status_of
from turnwire.domain.errors import DomainError, InvalidRequest, TooManyCalls

SERVICE_NAME = DESCRIPTOR.services_by_name["Health"].full_name

MAX_REQUEST_BYTES = 1024
"""Maximum size of a health request: more than the name of any service."""


class Health:
    """Reports whether the server and its services serve: `start`, then `stop`. Keeps nothing of a call."""

    def __init__(self, overload: Overload) -> None:
        """Takes what bounds all calls together. No service is known before `start`."""
        self._names: frozenset[str] = frozenset()
        self._stopping = asyncio.Event()
        self._overload = overload

    def start(self, names: Iterable[str]) -> "grpc.GenericRpcHandler[bytes, HealthCheckResponse]":
        """Reports the server ("") and the named services as serving. Returns the handler of the service."""
        self._names = frozenset(("", *names))
        methods: dict[str, grpc.RpcMethodHandler[bytes, HealthCheckResponse]] = {
            "Check": grpc.stream_unary_rpc_method_handler(self._check, response_serializer=to_bytes),
            "Watch": grpc.stream_stream_rpc_method_handler(self._watch, response_serializer=to_bytes),
        }
        return grpc.method_handlers_generic_handler(SERVICE_NAME, methods)

    def stop(self) -> None:
        """Reports everything as not serving, and tells all watchers. Waits for none of them. Idempotent."""
        self._stopping.set()

    async def _check(self, _requests: object, context: Context) -> HealthCheckResponse:
        # it does not count for limits.max_calls: a load balancer is answered whatever the number of other calls
        try:
            counted = self._overload.enter_uncounted(GrpcCaller(context).metadata_bytes)
        except DomainError as error:
            end_with(context, CallFailed(status_of(error)))
            return self._answer(None)
        when_ended(partial(self._overload.leave_uncounted, counted))
        name = await self._asked(context)
        if name is not None and name not in self._names:
            context.set_code(grpc.StatusCode.NOT_FOUND)
        return self._answer(name)

    async def _watch(self, _requests: object, context: Context) -> None:
        try:
            caller = GrpcCaller(context)
            taken = self._overload.enter(caller.metadata_bytes, begins_work=False, connection=caller.connection())
        except DomainError as error:
            end_with(context, CallFailed(status_of(error)))
            return
        try:
            self._overload.count_anonymous(taken)
            await self._tell(context)
        except TooManyCalls as error:
            end_with(context, CallFailed(status_of(error)))
        finally:
            self._overload.leave(taken)

    async def _tell(self, context: Context) -> None:
        name = await self._asked(context)
        if name is None:
            return
        outlet = CallOutlet(context)
        try:
            was_stopping = self._stopping.is_set()
            await outlet.send(self._answer(name))
            if name in self._names and not was_stopping:
                await self._stopping.wait()
                await outlet.send(self._answer(name))
        except CallerGone:
            return
        # the protocol leaves it to the caller to end a watch
        await asyncio.Event().wait()

    async def _asked(self, context: Context) -> str | None:
        """Returns the name in a request. None if there is none; the call then has its status."""
        try:
            receive = partial(read_request, context)
            return _service(await self._overload.anonymous_reads.read(context.peer(), receive))
        except DomainError as error:
            end_with(context, CallFailed(status_of(error)))
            return None

    def _answer(self, name: str | None) -> HealthCheckResponse:
        if name not in self._names:
            return HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
        if self._stopping.is_set():
            return HealthCheckResponse(status=HealthCheckResponse.NOT_SERVING)
        return HealthCheckResponse(status=HealthCheckResponse.SERVING)


def _service(data: bytes) -> str:
    """Returns the name in a request. Raises InvalidRequest: these bytes are none."""
    if len(data) > MAX_REQUEST_BYTES:
        raise too_long(MAX_REQUEST_BYTES)
    try:
        return str(HealthCheckRequest.FromString(data).service)
    except DecodeError:
        raise InvalidRequest.of("request", "its bytes are not a HealthCheckRequest") from None
