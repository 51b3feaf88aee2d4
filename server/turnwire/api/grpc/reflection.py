"""Server reflection, for callers that may read. It speaks both versions, whose messages are the same on the wire."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2
from grpc_reflection.v1alpha._async import ReflectionServicer

from turnwire.api.gate import CallFailed, Gate
from turnwire.api.grpc.caller import Context, GrpcCaller
from turnwire.api.grpc.handlers import end_with
from turnwire.api.rights import REFLECTION

_METHOD = "ServerReflectionInfo"
SERVICE_NAMES = (reflection.SERVICE_NAME, "grpc.reflection.v1.ServerReflection")


def reflection_handlers(names: Iterable[str], gate: Gate) -> "tuple[grpc.GenericRpcHandler[Any, Any], ...]":
    """Returns the handlers of both versions.

    Args:
        names: Full names of the services to list, beside reflection itself in the version that has a descriptor here.
        gate: Admits the callers.
    """
    servicer = _Reflection((*names, reflection.SERVICE_NAME), gate)
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return tuple(grpc.method_handlers_generic_handler(name, {_METHOD: method}) for name in SERVICE_NAMES)


class _Reflection(ReflectionServicer):  # type: ignore[misc] # grpcio has no types of its own
    """Asks the gate first. The call of a caller that it does not admit fails before a request is read."""

    def __init__(self, names: Iterable[str], gate: Gate) -> None:
        super().__init__(names)
        self._gate = gate

    async def ServerReflectionInfo(
        self, requests: AsyncIterable[reflection_pb2.ServerReflectionRequest], context: Context
    ) -> AsyncIterator[reflection_pb2.ServerReflectionResponse]:
        """Answers each request in order. Each counts as a request of its tenant, and needs valid credentials."""
        caller, is_admitted = GrpcCaller(context), False
        try:
            await self._admit(caller)
            is_admitted = True
            async for answer in super().ServerReflectionInfo(requests, context):
                if not is_admitted:
                    await self._admit(caller)
                is_admitted = False
                yield answer
        except CallFailed as failed:
            end_with(context, failed)

    async def _admit(self, caller: GrpcCaller) -> None:
        await self._gate.admit(f"{reflection.SERVICE_NAME}.{_METHOD}", REFLECTION, caller)
