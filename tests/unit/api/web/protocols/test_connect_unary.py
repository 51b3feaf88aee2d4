"""Calls of Connect with one answer: what each request is refused for, and what an answer says."""

import asyncio
import gzip
import json
from collections.abc import Mapping, MutableMapping
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import StringValue
from google.rpc import code_pb2

from tests.support.fakes.loop import elapse, settled
from turnwire.api.admission.requests import CallerGone
from turnwire.api.admission.responses import WhenSent
from turnwire.api.gate import CallFailed, Outlet, Receive, StreamingMethod, UnaryMethod
from turnwire.api.web.caller import WebCaller
from turnwire.api.web.encoding.codecs import Route
from turnwire.api.web.encoding.compression import WORTHWHILE_BYTES
from turnwire.api.web.encoding.statuses import simple_status
from turnwire.api.web.exchange import Exchange, shared_bodies
from turnwire.api.web.protocols.call import Serving
from turnwire.api.web.protocols.connect_unary import serve_get, serve_post
from turnwire.domain.principal import Role

MAX_BYTES = 10_000


class Answer(NamedTuple):
    """What a client gets."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> tuple[str, str]:
        """The code and the message."""
        error = json.loads(self.body)
        return error["code"], error["message"]


class _Gate:
    """Answers the request itself, or fails with a code, or never."""

    def __init__(self, code: int | None = None, *, waits: bool = False) -> None:
        self._code, self._waits = code, waits
        self.waiting = 0
        """Calls that are being carried out, and never end."""

    async def unary(
        self, method: UnaryMethod, receive: Receive, caller: WebCaller, when_sent: WhenSent | None = None
    ) -> Message | bytes:
        """Carries out a call."""
        data = await receive()
        if self._waits:
            self.waiting += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.waiting -= 1
        if self._code is not None:
            raise CallFailed(simple_status(self._code, "it failed"))
        parsed = method.parse(data)
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


async def _called(
    headers: Mapping[str, str],
    body: bytes = b"",
    query: Mapping[str, str] | None = None,
    gate: _Gate | None = None,
    gone: asyncio.Event | None = None,
) -> Answer:
    """Carries out a POST, or a GET where there is a query. The client leaves when `gone` is set."""
    sent: list[MutableMapping[str, Any]] = []
    bodies = [body]

    async def receive() -> MutableMapping[str, Any]:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    scope = {
        "method": "POST" if query is None else "GET",
        "path": "/",
        "query_string": urlencode(query or {}).encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    exchange = Exchange(scope, receive, send, shared_bodies(2**20))
    serving = Serving(gate or _Gate(), MAX_BYTES, lambda: False)
    if query is None:
        await serve_post(serving, ROUTE, "proto", exchange)
    else:
        await serve_get(serving, ROUTE, exchange)
    start, *pieces = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(piece["body"] for piece in pieces))


@pytest.mark.parametrize("version", [None, "1"])
async def test_a_message_is_answered(version: str | None) -> None:
    """With its type; the version of the protocol may be left out."""
    answer = await _called({} if version is None else {"connect-protocol-version": version}, _said("hello"))
    assert (answer.status, answer.body) == (200, _said("hello"))
    assert answer.headers["content-type"] == "application/proto"
    assert not {"content-encoding", "cache-control", "accept-encoding"} & answer.headers.keys()


@pytest.mark.parametrize(("size", "is_packed"), [(WORTHWHILE_BYTES, True), (WORTHWHILE_BYTES - 1, False)])
async def test_long_answers_are_compressed_for_who_takes_that(size: int, is_packed: bool) -> None:
    """Short ones would not get shorter."""
    text = "x" * (2 * size - len(_said("x" * size)))
    assert len(_said(text)) == size
    answer = await _called({"accept-encoding": "gzip", "content-encoding": "gzip"}, gzip.compress(_said(text)))
    assert (answer.headers.get("content-encoding") == "gzip") == is_packed
    assert (gzip.decompress(answer.body) if is_packed else answer.body) == _said(text)
    assert (await _called({}, _said(text))).body == _said(text)


async def test_an_error_is_json_with_a_status_of_http() -> None:
    """Where something is not there, the compressions that are there stand beside it; nowhere else."""
    for code, status, name in (
        (code_pb2.UNIMPLEMENTED, 501, "unimplemented"),
        (code_pb2.NOT_FOUND, 404, "not_found"),
        (code_pb2.UNAVAILABLE, 503, "unavailable"),
    ):
        answer = await _called({}, _said("x"), gate=_Gate(code))
        assert (answer.status, answer.error) == (status, (name, "it failed"))
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers.get("accept-encoding") == ("gzip, identity" if status == 501 else None)


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


async def test_a_caller_waits_as_long_as_it_says() -> None:
    """Not for ever."""
    call = asyncio.create_task(_called({"connect-timeout-ms": "5000"}, _said("x"), gate=_Gate(waits=True)))
    await elapse(timedelta(seconds=4))
    assert not call.done()
    await elapse(timedelta(seconds=1))
    assert ((await call).status, (await call).error[0]) == (504, "deadline_exceeded")


@pytest.mark.parametrize("query", [None, {"encoding": "proto", "message": ""}])
async def test_a_call_ends_with_its_caller(query: Mapping[str, str] | None) -> None:
    """A page that is closed leaves no work behind."""
    gate, gone = _Gate(waits=True), asyncio.Event()
    call = asyncio.create_task(_called({}, b"", query, gate, gone))
    await settled()
    assert gate.waiting == 1
    gone.set()
    with pytest.raises(CallerGone):
        await call
    assert gate.waiting == 0


QUERY = {"connect": "v1", "encoding": "json", "message": '"hello"'}


@pytest.mark.parametrize(
    "query",
    [
        QUERY,
        {**QUERY, "message": "ImhlbGxvIg==", "base64": "1"},
        {**QUERY, "message": "ImhlbGxvIg", "base64": "1"},
        {**QUERY, "message": "ICJoZWxsbyI", "base64": "1"},
        {**QUERY, "message": "ICAiaGVsbG8i", "base64": "1"},
        {**QUERY, **{f"p{number}": "" for number in range(17)}},
        {**QUERY, "compression": "identity"},
        {"encoding": "json", "message": '"hello"'},
    ],
)
async def test_a_message_may_stand_in_the_query(query: Mapping[str, str]) -> None:
    """As it is, or in base64 with and without its padding. No browser keeps the answer, which is of one caller."""
    answer = await _called({}, query=query)
    assert (answer.status, json.loads(answer.body)) == (200, "hello")
    assert answer.headers["cache-control"] == "no-store"


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
