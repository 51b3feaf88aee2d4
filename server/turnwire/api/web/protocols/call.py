"""The common part of all protocols: reading the request, and the refusals before the gate."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

from google.protobuf.message import Message
from google.rpc import code_pb2

from turnwire.api.admission.requests import CallerGone
from turnwire.api.admission.responses import WhenSent
from turnwire.api.gate import CallFailed, Outlet, Receive, StreamingMethod, UnaryMethod, too_long
from turnwire.api.web.caller import WebCaller
from turnwire.api.web.encoding.codecs import CodecName, Route
from turnwire.api.web.encoding.compression import (
    GZIP,
    IDENTITY,
    SUPPORTED,
    WORTHWHILE_BYTES,
    BadCompression,
    TooLarge,
    accepts_gzip,
    compress,
    decompress,
)
from turnwire.api.web.encoding.envelopes import COMPRESSED, BrokenEnvelope, Envelope, envelope, envelopes
from turnwire.api.web.encoding.statuses import simple_status
from turnwire.api.web.exchange import Exchange
from turnwire.api.wire.status import code_name, status_of
from turnwire.domain.errors import InvalidRequest

T = TypeVar("T")


class Gatekeeper(Protocol):
    """Carries out calls: `api.gate.Gate`, or a stand-in of a test."""

    async def unary(
        self, method: UnaryMethod, receive: Receive, caller: WebCaller, when_sent: WhenSent | None = None
    ) -> Message | bytes:
        """See `Gate.unary`."""
        ...

    async def stream(self, method: StreamingMethod, receive: Receive, caller: WebCaller, outlet: Outlet) -> None:
        """See `Gate.stream`."""
        ...

    def refused(self, code: str, cause: str, address: str) -> None:
        """See `Gate.refused`."""
        ...


class Serving(NamedTuple):
    """The objects that carry out calls."""

    gate: Gatekeeper
    max_message_bytes: int
    """Size of the largest request, compressed or not."""
    is_stopping: Callable[[], bool]
    """Whether new calls are refused."""
    is_of_method: bool = False
    """Whether the largest request is that of one method."""

    def of(self, method: UnaryMethod | StreamingMethod) -> "Serving":
        """Returns the same for a method, of which no more is received than it takes."""
        max_bytes = method.max_request_bytes
        if max_bytes is None or max_bytes >= self.max_message_bytes:
            return self
        return self._replace(max_message_bytes=max_bytes, is_of_method=True)


class Encodings(NamedTuple):
    """The compression of a call."""

    sent: str
    """The encoding of the request."""
    answers_gzip: bool
    """Whether the caller takes gzip."""


def refuse(code: int, message: str) -> NoReturn:
    """Raises CallFailed for a call that does not reach the gate."""
    raise CallFailed(simple_status(code, message))


def encodings(exchange: Exchange, sent_by: str, accepted_by: str) -> Encodings:
    """Returns the compression of a call by its headers. Raises CallFailed: the request's is unknown."""
    sent = (exchange.header(sent_by) or IDENTITY).strip().lower()
    if sent not in SUPPORTED:
        refuse(code_pb2.UNIMPLEMENTED, f"unknown compression {sent!r:.40}; supported: {', '.join(SUPPORTED)}")
    return Encodings(sent, accepts_gzip(exchange.header(accepted_by) or ""))


def check_announced(serving: Serving, exchange: Exchange, more_bytes: int = 0) -> None:
    """Refuses and notes a request that says that it is too large, before its call waits for anything.

    Args:
        serving: Has the limit.
        exchange: The request.
        more_bytes: Bytes that the protocol may add to a message.

    Raises:
        CallFailed: it is too large.
    """
    if exchange.announced_bytes() <= serving.max_message_bytes + more_bytes:
        return
    try:
        refuse_too_large(serving)
    except InvalidRequest as error:
        status = status_of(error)
    except CallFailed as failed:
        status = failed.status
    serving.gate.refused(code_name(status.code), "a request that is too large", WebCaller(exchange).address())
    raise CallFailed(status)


async def read_body(serving: Serving, exchange: Exchange, more_bytes: int = 0) -> bytes:
    """Returns the body of a request.

    Args:
        serving: Has the limit.
        exchange: The request.
        more_bytes: Bytes that the protocol may add to a message.

    Raises:
        CallFailed: it is too large.
        TooManyCalls: too much is being read.
        CallerGone: the client left.
    """
    if serving.is_stopping():
        refuse(code_pb2.UNAVAILABLE, "the server is shutting down")
    try:
        return await exchange.body(serving.max_message_bytes + more_bytes)
    except TooLarge:
        refuse_too_large(serving)


def refuse_too_large(serving: Serving) -> NoReturn:
    """Raises CallFailed for a request over the limit, with the code that gRPC has for it.

    Raises InvalidRequest, as the gate does, where the limit is that of the method.
    """
    if serving.is_of_method:
        raise too_long(serving.max_message_bytes)
    refuse(code_pb2.RESOURCE_EXHAUSTED, f"the request is larger than {serving.max_message_bytes} bytes")


async def decompressed(serving: Serving, data: bytes) -> bytes:
    """Returns a message that was compressed by gzip. Raises CallFailed."""
    try:
        return await decompress(data, serving.max_message_bytes)
    except TooLarge:
        refuse_too_large(serving)
    except BadCompression as error:
        refuse(code_pb2.INVALID_ARGUMENT, f"the request is not compressed as it says: {error}")


async def one_message(serving: Serving, body: bytes, sent: str) -> bytes:
    """Returns the only message of a body of envelopes.

    Args:
        serving: Has the limit.
        body: The body.
        sent: The compression of the messages that say that they are compressed.

    Raises:
        CallFailed: it is none, more than one, or not in whole envelopes.
    """
    try:  # a body of nothing but heads has millions of envelopes: two of them are enough to refuse it
        found: list[Envelope] = list(islice(envelopes(body), 2))
    except BrokenEnvelope as error:
        refuse(code_pb2.INVALID_ARGUMENT, f"the request is broken: {error}")
    if len(found) != 1:
        refuse(
            code_pb2.UNIMPLEMENTED, f"this method takes one message, and the request has {'more' if found else 'none'}"
        )
    flags, data = found[0]
    if len(data) > serving.max_message_bytes:
        refuse_too_large(serving)
    if flags == 0:
        return data
    if flags != COMPRESSED:
        refuse(code_pb2.INVALID_ARGUMENT, f"the request has an envelope with unknown flags {flags}")
    if sent != GZIP:
        refuse(code_pb2.INTERNAL, "the request has a compressed message, and names no compression")
    return await decompressed(serving, data)


async def answer_envelope(route: Route, codec: CodecName, answer: Message | bytes, *, gzip: bool) -> bytes:
    """Returns an answer in its envelope, compressed if that is worthwhile and wanted."""
    data = await route.encode(codec, answer)
    if gzip and len(data) >= WORTHWHILE_BYTES:
        return envelope(COMPRESSED, await compress(data))
    return envelope(0, data)


async def while_connected(exchange: Exchange, call: Coroutine[Any, Any, T]) -> T:
    """Returns what a call returns, and cancels it when the client leaves.

    Raises:
        CallerGone: the client left.
        CallFailed: the call failed.
    """
    gone = asyncio.create_task(exchange.until_gone())
    running = asyncio.create_task(call)
    try:
        await asyncio.wait((gone, running), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise CallerGone
        return await running
    finally:
        for task in (running, gone):
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
        # A failed task has its error, which has this frame, and those of the call with all that they made: without this
        # the refused answer stays until a full garbage collection.
        del running, gone, task
