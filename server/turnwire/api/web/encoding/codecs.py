"""Requests and answers as protobuf or JSON, for each method.

Protobuf goes through as it is: what was stored as bytes leaves as the same bytes. For JSON, answers are decoded and
written as ProtoJSON: field names in camel case, enums as names, 64-bit numbers and bytes as text. Fields that this
server does not know are ignored in requests.
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from turnwire.api.gate import StreamingMethod, UnaryMethod
from turnwire.api.registry import Service
from turnwire.api.request_values import check_json
from turnwire.api.web.encoding.objects import check_objects
from turnwire.domain.errors import InvalidRequest

CodecName = Literal["proto", "json"]
CODECS: tuple[CodecName, ...] = ("proto", "json")

IN_THREAD_BYTES = 32_768
"""Size from which responses are encoded as JSON on a worker thread, and requests are decoded there: that takes up to a
millisecond for each ten kilobytes of a response, and ten for those of a request of small values."""

_MAX_PROBLEM = 200
"""Characters of what is said of a request that cannot be read."""


class Route(NamedTuple):
    """A method that can be called over HTTP."""

    proto: UnaryMethod | StreamingMethod
    json: UnaryMethod | StreamingMethod
    """The same, for requests in JSON."""
    answer_type: type[Message]
    only_reads: bool
    """Whether the contract says that it has no side effects: such a call with one answer may come by GET."""

    def method(self, codec: CodecName) -> UnaryMethod | StreamingMethod:
        """Returns the method for requests of a codec."""
        return self.json if codec == "json" else self.proto

    async def encode(self, codec: CodecName, answer: Message | bytes) -> bytes:
        """Returns an answer as a codec writes it. Safe to cancel."""
        if codec == "proto":
            return answer if isinstance(answer, bytes) else answer.SerializeToString()
        size = len(answer) if isinstance(answer, bytes) else answer.ByteSize()
        if size < IN_THREAD_BYTES:
            return _as_json(self.answer_type, answer)
        return await asyncio.to_thread(_as_json, self.answer_type, answer)


def routes_of(services: Iterable[Service]) -> Mapping[str, Route]:
    """Returns all methods by their paths, such as /opencode.session.SessionService/GetSession."""
    return {
        f"/{service.descriptor.full_name}/{name}": _route(service.descriptor.methods_by_name[name], method)
        for service in services
        for name, method in service.methods().items()
    }


def _route(descriptor: MethodDescriptor, method: UnaryMethod | StreamingMethod) -> Route:
    only_reads = descriptor.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS
    parse = partial(_from_json, GetMessageClass(descriptor.input_type))
    as_json = method._replace(parse=parse, offload_bytes=IN_THREAD_BYTES)
    return Route(method, as_json, GetMessageClass(descriptor.output_type), only_reads)


def _from_json(kind: type[Message], data: bytes) -> Any:
    """Returns a request. Raises InvalidRequest."""
    check_json(data)
    check_objects(kind.DESCRIPTOR, data)
    try:
        return json_format.Parse(data, kind(), ignore_unknown_fields=True)
    except (json_format.ParseError, RecursionError, ValueError) as error:
        problem = str(error)[:_MAX_PROBLEM]
        raise InvalidRequest.of("request", f"its JSON is not a message of this method: {problem}") from None


def _as_json(kind: type[Message], answer: Message | bytes) -> bytes:
    message = kind.FromString(answer) if isinstance(answer, bytes) else answer
    return msgspec.json.encode(json_format.MessageToDict(message))
