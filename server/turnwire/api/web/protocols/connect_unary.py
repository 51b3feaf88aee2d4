"""The Connect protocol for methods with one answer: POST, and GET for methods that only read.

https://connectrpc.com/docs/protocol: the message is the body, an error a JSON object with an HTTP status of its own.
"""

import base64
import binascii
import contextlib
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

from google.rpc import code_pb2, status_pb2

from turnwire.api.gate import CallFailed, Receive, UnaryMethod
from turnwire.api.web.caller import WebCaller
from turnwire.api.web.encoding.codecs import CodecName, Route
from turnwire.api.web.encoding.compression import GZIP, IDENTITY, SUPPORTED, WORTHWHILE_BYTES, compress
from turnwire.api.web.encoding.deadlines import BadTimeout, connect_timeout, within
from turnwire.api.web.encoding.statuses import connect_error_json, http_status
from turnwire.api.web.exchange import Exchange, Headers
from turnwire.api.web.protocols.call import (
    Encodings,
    Serving,
    check_announced,
    decompressed,
    encodings,
    read_body,
    refuse,
    refuse_too_large,
    while_connected,
)

CONTENT_TYPES: Mapping[str, CodecName] = {"application/proto": "proto", "application/json": "json"}
"""Content types of requests with the codec of each; a charset behind it is not looked at, for JSON is UTF-8."""

TYPE_OF: Mapping[CodecName, str] = {codec: name for name, codec in CONTENT_TYPES.items()}

VERSION = "1"

_NOT_KEPT = ("cache-control", "no-store")
"""Header of answers to GET, which browsers and proxies would keep: they are for one caller and one moment."""


class _Request(NamedTuple):
    codec: CodecName
    receive: Receive
    encodings: Encodings


async def serve_post(serving: Serving, route: Route, codec: CodecName, exchange: Exchange) -> None:
    """Answers a POST. Raises CallerGone."""
    try:
        check_version(exchange.header("connect-protocol-version"))
        coding = encodings(exchange, "content-encoding", "accept-encoding")

        async def receive() -> bytes:
            data = await read_body(serving, exchange)
            return await decompressed(serving, data) if coding.sent == GZIP else data

        await _carry_out(serving, route, _Request(codec, receive, coding), exchange, ())
    except CallFailed as failed:
        await answer_failure(exchange, failed.status)


async def serve_get(serving: Serving, route: Route, exchange: Exchange) -> None:
    """Answers a GET, whose message is in the query. Raises CallerGone."""
    try:
        request = _from_query(serving, exchange)
        await _carry_out(serving, route, request, exchange, (_NOT_KEPT,))
    except CallFailed as failed:
        await answer_failure(exchange, failed.status)


async def answer_failure(
    exchange: Exchange, status: status_pb2.Status, more: Headers = (), as_http: int | None = None
) -> None:
    """Writes the error of a call.

    Args:
        exchange: The exchange of the answer.
        status: The error.
        more: Further headers.
        as_http: The HTTP status; None takes that of the code.
    """
    headers = [("content-type", "application/json"), *more]
    if status.code == code_pb2.UNIMPLEMENTED:
        headers.append(("accept-encoding", ", ".join(SUPPORTED)))
    await exchange.answer(as_http or http_status(status.code), headers, connect_error_json(status))


def check_version(version: str | None) -> None:
    """Raises CallFailed for a version of the protocol that is not there. Callers may leave it out."""
    if version is not None and version != VERSION:
        refuse(code_pb2.INVALID_ARGUMENT, f"connect-protocol-version must be {VERSION}")


def deadline(exchange: Exchange) -> float | None:
    """Returns how many seconds a caller waits. Raises CallFailed."""
    try:
        return connect_timeout(exchange.header("connect-timeout-ms"))
    except BadTimeout as error:
        refuse(code_pb2.INVALID_ARGUMENT, str(error))


def as_trailers(trailers: Headers) -> list[tuple[str, str]]:
    """Returns trailers as headers: Connect sends them so with one answer."""
    return [(f"trailer-{name}", value) for name, value in trailers]


async def _carry_out(serving: Serving, route: Route, request: _Request, exchange: Exchange, more: Headers) -> None:
    method, caller = route.method(request.codec), WebCaller(exchange)
    assert isinstance(method, UnaryMethod)
    with contextlib.ExitStack() as sent:  # a large answer has its place until it is written
        try:
            seconds = deadline(exchange)
            check_announced(serving, exchange)
            call = serving.gate.unary(method, request.receive, caller, sent.callback)
            answer = await while_connected(exchange, within(seconds, call))
        except CallFailed as failed:
            metadata = (*caller.answer_headers, *as_trailers(caller.answer_trailers), *more)
            await answer_failure(exchange, failed.status, metadata)
            return
        body = await route.encode(request.codec, answer)
        del answer
        headers = [("content-type", TYPE_OF[request.codec]), *more]
        if request.encodings.answers_gzip and len(body) >= WORTHWHILE_BYTES:
            body = await compress(body)
            headers.append(("content-encoding", GZIP))
        headers += [*caller.answer_headers, *as_trailers(caller.answer_trailers)]
        await exchange.answer(200, headers, body)


def _from_query(serving: Serving, exchange: Exchange) -> _Request:
    query = _query(exchange)
    if query.get("connect", f"v{VERSION}") != f"v{VERSION}":
        refuse(code_pb2.INVALID_ARGUMENT, f'the parameter "connect" must be v{VERSION}')
    codec = CONTENT_TYPES.get(f"application/{query.get('encoding', '')}")
    if codec is None:
        refuse(code_pb2.INVALID_ARGUMENT, 'the parameter "encoding" must be proto or json')
    if "message" not in query:
        refuse(code_pb2.INVALID_ARGUMENT, 'the parameter "message" is missing')
    data = _message(query)
    if len(data) > serving.max_message_bytes:
        refuse_too_large(serving)
    sent = query.get("compression", IDENTITY)
    if sent not in SUPPORTED:
        refuse(code_pb2.UNIMPLEMENTED, f"unknown compression {sent!r:.40}; supported: {', '.join(SUPPORTED)}")
    accepted = encodings(exchange, "content-encoding", "accept-encoding")

    async def receive() -> bytes:
        await read_body(serving, exchange)
        return await decompressed(serving, data) if sent == GZIP else data

    return _Request(codec, receive, Encodings(sent, accepted.answers_gzip))


def _query(exchange: Exchange) -> dict[str, str]:
    # surrogates carry bytes that are no text: a message may be percent-encoded as it is
    text = exchange.scope["query_string"].decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="surrogateescape", max_num_fields=20)
    except ValueError:
        refuse(code_pb2.INVALID_ARGUMENT, "the query has too many parameters")
    query: dict[str, str] = {}
    for name, value in pairs:
        query.setdefault(name, value)
    return query


def _message(query: Mapping[str, str]) -> bytes:
    text = query["message"]
    if query.get("base64") != "1":
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        refuse(code_pb2.INVALID_ARGUMENT, 'the parameter "message" is not base64')
