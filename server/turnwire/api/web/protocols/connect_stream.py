"""The Connect protocol for methods with a stream of answers: envelopes, of which the last one has the status.

The HTTP status is 200 even for a call that fails: clients look at the last envelope.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from google.protobuf.message import Message
from google.rpc import status_pb2

from turnwire.api.gate import CallFailed, StreamingMethod
from turnwire.api.web.caller import WebCaller
from turnwire.api.web.encoding.codecs import CodecName, Route
from turnwire.api.web.encoding.compression import GZIP, SUPPORTED
from turnwire.api.web.encoding.deadlines import within
from turnwire.api.web.encoding.envelopes import HEADER_BYTES, envelope
from turnwire.api.web.encoding.statuses import connect_error
from turnwire.api.web.exchange import Exchange
from turnwire.api.web.protocols.call import (
    Serving,
    answer_envelope,
    check_announced,
    encodings,
    one_message,
    read_body,
    while_connected,
)
from turnwire.api.web.protocols.connect_unary import check_version, deadline

CONTENT_TYPES: Mapping[str, CodecName] = {"application/connect+proto": "proto", "application/connect+json": "json"}

_TYPE_OF = {codec: name for name, codec in CONTENT_TYPES.items()}

_END = 0x02
"""Flag of the last envelope."""


async def serve(serving: Serving, route: Route, codec: CodecName, exchange: Exchange) -> None:
    """Answers a POST with a stream. Raises CallerGone."""
    caller = WebCaller(exchange)
    outlet = _Outlet(route, codec, exchange, caller)
    status = None
    try:
        check_version(exchange.header("connect-protocol-version"))
        coding = encodings(exchange, "connect-content-encoding", "connect-accept-encoding")
        outlet.gzip = coding.answers_gzip

        async def receive() -> bytes:
            return await one_message(serving, await read_body(serving, exchange, HEADER_BYTES), coding.sent)

        method = route.method(codec)
        assert isinstance(method, StreamingMethod)
        seconds = deadline(exchange)
        check_announced(serving, exchange, HEADER_BYTES)
        await while_connected(exchange, within(seconds, serving.gate.stream(method, receive, caller, outlet)))
    except CallFailed as failed:
        status = failed.status
    await outlet.end(status)


class _Outlet:
    """Writes the answers of a stream. Implements `api.gate.Outlet`."""

    def __init__(self, route: Route, codec: CodecName, exchange: Exchange, caller: WebCaller) -> None:
        self.gzip = False
        self._route, self._codec, self._exchange, self._caller = route, codec, exchange, caller

    async def open(self) -> None:
        """Sends the headers."""
        if not self._exchange.is_started:
            headers = [("content-type", _TYPE_OF[self._codec]), ("connect-accept-encoding", ", ".join(SUPPORTED))]
            if self.gzip:
                headers.append(("connect-content-encoding", GZIP))
            await self._exchange.start(200, (*headers, *self._caller.answer_headers))

    async def send(self, answer: Message | bytes) -> None:
        """Writes one answer."""
        await self.open()
        await self._exchange.write(await answer_envelope(self._route, self._codec, answer, gzip=self.gzip))

    async def end(self, status: status_pb2.Status | None) -> None:
        """Writes the last envelope: the error if there is one, and the trailers."""
        await self.open()
        ending: dict[str, Any] = {} if status is None else {"error": connect_error(status)}
        metadata: dict[str, list[str]] = {}
        for name, value in self._caller.answer_trailers:
            metadata.setdefault(name, []).append(value)
        if metadata:
            ending["metadata"] = metadata
        await self._exchange.write(envelope(_END, msgspec.json.encode(ending)), last=True)
