"""gRPC-Web, binary and as text (base64), for methods with one answer and with a stream.

https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md: messages in envelopes; the last one has the trailers, for
browsers do not show those of HTTP.
"""

import base64
import binascii
import contextlib
import re
from collections.abc import Mapping
from functools import partial
from string import whitespace
from typing import NamedTuple

from google.protobuf.message import Message
from google.rpc import code_pb2, status_pb2

from turnwire.api.gate import CallFailed, StreamingMethod
from turnwire.api.web.caller import WebCaller
from turnwire.api.web.encoding.codecs import CodecName, Route
from turnwire.api.web.encoding.compression import GZIP, SUPPORTED
from turnwire.api.web.encoding.deadlines import BadTimeout, grpc_timeout, within
from turnwire.api.web.encoding.envelopes import HEADER_BYTES, envelope
from turnwire.api.web.encoding.statuses import grpc_trailers
from turnwire.api.web.exchange import Exchange
from turnwire.api.web.protocols.call import (
    Serving,
    answer_envelope,
    check_announced,
    encodings,
    one_message,
    read_body,
    refuse,
    while_connected,
)


class Form(NamedTuple):
    """The form in which a call writes messages."""

    codec: CodecName
    is_text: bool

    def more_bytes(self, max_message_bytes: int) -> int:
        """Returns how much longer the body of the longest message is."""
        return max_message_bytes // 2 + 64 if self.is_text else HEADER_BYTES


CONTENT_TYPES: Mapping[str, Form] = {
    "application/grpc-web": Form("proto", is_text=False),
    "application/grpc-web+proto": Form("proto", is_text=False),
    "application/grpc-web+json": Form("json", is_text=False),
    "application/grpc-web-text": Form("proto", is_text=True),
    "application/grpc-web-text+proto": Form("proto", is_text=True),
}

_MAX_PIECES = 100
"""Pieces of base64 in one request; clients send one, or one for the head of a message and one for the message."""

_TRAILERS = 0x80
"""Flag of the last envelope."""


async def serve(serving: Serving, route: Route, content_type: str, exchange: Exchange) -> None:
    """Answers a POST. Raises CallerGone."""
    form, caller = CONTENT_TYPES[content_type], WebCaller(exchange)
    outlet = _Outlet(route, form, content_type, exchange, caller)
    status = None
    with contextlib.ExitStack() as sent:  # a large answer has its place until it is written
        try:
            coding = encodings(exchange, "grpc-encoding", "grpc-accept-encoding")
            outlet.gzip = coding.answers_gzip
            receive = partial(_message, serving, form, exchange, coding.sent)
            method, seconds = route.method(form.codec), _deadline(exchange)
            check_announced(serving, exchange, form.more_bytes(serving.max_message_bytes))
            if isinstance(method, StreamingMethod):
                await while_connected(exchange, within(seconds, serving.gate.stream(method, receive, caller, outlet)))
            else:
                call = serving.gate.unary(method, receive, caller, sent.callback)
                outlet.keep(await while_connected(exchange, within(seconds, call)))
        except CallFailed as failed:
            status = failed.status
        await outlet.end(status)


async def answer_failure(exchange: Exchange, content_type: str, status: status_pb2.Status) -> None:
    """Writes the status of a call that never had a method."""
    headers = [("content-type", content_type), *grpc_trailers(status)]
    await exchange.answer(200, headers)


async def _message(serving: Serving, form: Form, exchange: Exchange, sent: str) -> bytes:
    body = await read_body(serving, exchange, form.more_bytes(serving.max_message_bytes))
    try:
        return await one_message(serving, _from_text(body) if form.is_text else body, sent)
    except binascii.Error:
        refuse(code_pb2.INVALID_ARGUMENT, "the request is not base64")


def _from_text(text: bytes) -> bytes:
    """Returns the bytes of base64 that may have padding in its middle, because pieces were encoded one by one."""
    dense = text.translate(None, whitespace.encode())
    # the last piece has what is left, and is refused for padding in its middle
    pieces = re.split(rb"(?<==)(?=[^=])", dense, maxsplit=_MAX_PIECES - 1)
    return b"".join(base64.b64decode(piece, validate=True) for piece in pieces)


def _deadline(exchange: Exchange) -> float | None:
    try:
        return grpc_timeout(exchange.header("grpc-timeout"))
    except BadTimeout as error:
        refuse(code_pb2.INVALID_ARGUMENT, str(error))


class _Outlet:
    """Writes the answers of a call. Implements `api.gate.Outlet`."""

    def __init__(self, route: Route, form: Form, content_type: str, exchange: Exchange, caller: WebCaller) -> None:
        self.gzip = False
        self._route, self._form, self._content_type = route, form, content_type
        self._exchange, self._caller = exchange, caller
        self._kept: Message | bytes | None = None

    def keep(self, answer: Message | bytes) -> None:
        """Takes the only answer of a call: it is written with the trailers."""
        self._kept = answer

    async def open(self) -> None:
        """Sends the headers."""
        if not self._exchange.is_started:
            await self._exchange.start(200, self._headers())

    async def send(self, answer: Message | bytes) -> None:
        """Writes one answer."""
        await self.open()
        framed = await answer_envelope(self._route, self._form.codec, answer, gzip=self.gzip)
        await self._exchange.write(self._written(framed))

    async def end(self, status: status_pb2.Status | None) -> None:
        """Writes the trailers, after the answer that was kept."""
        trailers = [*grpc_trailers(status), *self._caller.answer_trailers]
        text = "".join(f"{name}: {value}\r\n" for name, value in trailers)
        last = envelope(_TRAILERS, text.encode("latin-1", "replace"))
        if self._exchange.is_started:
            await self._exchange.write(self._written(last), last=True)
            return
        if self._kept is not None:
            last = await answer_envelope(self._route, self._form.codec, self._kept, gzip=self.gzip) + last
        await self._exchange.answer(200, self._headers(), self._written(last))

    def _headers(self) -> list[tuple[str, str]]:
        headers = [("content-type", self._content_type), ("grpc-accept-encoding", ",".join(SUPPORTED))]
        if self.gzip:
            headers.append(("grpc-encoding", GZIP))
        return [*headers, *self._caller.answer_headers]

    def _written(self, framed: bytes) -> bytes:
        return base64.b64encode(framed) if self._form.is_text else framed
