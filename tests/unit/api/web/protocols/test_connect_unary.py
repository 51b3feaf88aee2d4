"""Calls of Connect with one answer: what each request is refused for, and what an answer says."""

import asyncio
import json
from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import StringValue

from turnwire.api.admission.responses import WhenSent
from turnwire.api.gate import Outlet, Receive, StreamingMethod, UnaryMethod
from turnwire.api.web.caller import WebCaller
from turnwire.api.web.encoding.codecs import Route
from turnwire.api.web.exchange import Exchange, shared_bodies
from turnwire.api.web.protocols.call import Serving
from turnwire.api.web.protocols.connect_unary import serve_get, serve_post
from turnwire.domain.principal import Role

MAX_BYTES = 10_000


class Answer(NamedTuple):
    """The answer that a client gets."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> tuple[str, str]:
        """The code and the message."""
        error = json.loads(self.body)
        return error["code"], error["message"]


class _Gate:
    """Answers the request itself."""

    async def unary(
        self, method: UnaryMethod, receive: Receive, caller: WebCaller, when_sent: WhenSent | None = None
    ) -> Message | bytes:
        """Carries out a call."""
        parsed = method.parse(await receive())
        assert isinstance(parsed, StringValue)
        return parsed

    async def stream(self, method: StreamingMethod, receive: Receive, caller: WebCaller, outlet: Outlet) -> None:
        """No call is one."""
        raise AssertionError

    def refused(self, code: str, cause: str, address: str) -> None:
        """No call is refused."""


def _one(parse: Any) -> UnaryMethod:
    return UnaryMethod("S.One", Role.READER, parse, None)  # type: ignore[arg-type]


ROUTE = Route(
    _one(StringValue.FromString), _one(lambda data: StringValue(value=json.loads(data))), StringValue, only_reads=True
)


def _said(text: str) -> bytes:
    return StringValue(value=text).SerializeToString()


async def _called(headers: Mapping[str, str], body: bytes = b"", query: Mapping[str, str] | None = None) -> Answer:
    """Carries out a POST, or a GET where there is a query."""
    sent: list[MutableMapping[str, Any]] = []
    bodies = [body]

    async def receive() -> MutableMapping[str, Any]:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    scope = {
        "method": "POST" if query is None else "GET",
        "path": "/",
        "query_string": urlencode(query or {}).encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    exchange = Exchange(scope, receive, send, shared_bodies(2**20))
    serving = Serving(_Gate(), MAX_BYTES, lambda: False)
    if query is None:
        await serve_post(serving, ROUTE, "proto", exchange)
    else:
        await serve_get(serving, ROUTE, exchange)
    start, *pieces = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(piece["body"] for piece in pieces))


@pytest.mark.parametrize(
    ("headers", "status", "text"),
    [
        ({"connect-protocol-version": "2"}, 400, "connect-protocol-version must be 1"),
        ({"connect-timeout-ms": "soon"}, 400, "connect-timeout-ms is not a number of at most ten digits"),
        ({"content-encoding": "br"}, 501, "unknown compression 'br'"),
    ],
)
async def test_wrong_headers_are_refused(headers: Mapping[str, str], status: int, text: str) -> None:
    """They say what is wrong."""
    answer = await _called(headers, _said("x"))
    assert answer.status == status
    assert answer.error[1].startswith(text)


QUERY = {"connect": "v1", "encoding": "json", "message": '"hello"'}


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"connect": "v2"}, 400, 'the parameter "connect" must be v1'),
        ({"encoding": "text"}, 400, 'the parameter "encoding" must be proto or json'),
        ({"encoding": None}, 400, 'the parameter "encoding" must be proto or json'),
        ({"message": None}, 400, 'the parameter "message" is missing'),
        ({"message": "*", "base64": "1"}, 400, 'the parameter "message" is not base64'),
        ({"message": "x" * (MAX_BYTES + 1)}, 429, "the request is larger than 10000 bytes"),
        ({"compression": "br"}, 501, "unknown compression 'br'"),
        ({f"p{number}": "" for number in range(18)}, 400, "the query has too many parameters"),
    ],
)
async def test_wrong_queries_are_refused(change: Mapping[str, str | None], status: int, text: str) -> None:
    """They say what is wrong."""
    query = {name: value for name, value in {**QUERY, **change}.items() if value is not None}
    answer = await _called({}, query=query)
    assert answer.status == status
    assert answer.error[1].startswith(text)


async def test_the_longest_message_of_a_query_is_taken() -> None:
    """One byte more is too large."""
    text = "x" * (MAX_BYTES - 2)
    answer = await _called({}, query={**QUERY, "message": f'"{text}"'})
    assert (answer.status, json.loads(answer.body)) == (200, text)
    assert (await _called({}, query={**QUERY, "message": f'"{text}x"'})).status == 429
