"""Bad input and bad manners at the web listener: each gets an error of its protocol, and has a bound."""

import asyncio
import base64
import contextlib
import gzip
import json
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from structlog.testing import capture_logs

from opencode.event.event_pb2 import WatchEventsRequest
from tests.support.clients.web import WebClient, web_client
from tests.support.servers.running import connect, running_server
from turnwire.api.admission import reads
from turnwire.api.web import http
from turnwire.api.web import server as web_server
from turnwire.api.web.encoding.envelopes import envelope
from turnwire.app import Server
from turnwire.domain.limits import Limits

LIMIT = 65_536
TOML = f"""
[server]
max_message_bytes = {LIMIT}
[limits]
max_message_bytes = 32768
[web]
listen = "127.0.0.1:0"
max_connections = 20
"""
SESSIONS = "/opencode.session.SessionService"
WATCH = "/opencode.event.EventService/WatchEvents"
JSON = {"content_type": "application/json"}
CONNECT = {"content_type": "application/connect+proto"}


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server with small limits."""
    async with running_server(tmp_path_factory.mktemp("limits"), TOML) as running:
        yield running


@pytest.fixture
async def web(server: Server) -> AsyncIterator[WebClient]:
    """A client of the web listener; no call may leave a trace of an unforeseen error, or a session."""
    async with connect(server.address) as client, web_client(server.web_address) as opened:
        before = [one.id for one in (await client.sessions.ListSessions()).sessions]
        with capture_logs() as lines:
            yield opened
        assert [line for line in lines if line["log_level"] == "error"] == []
        assert [one.id for one in (await client.sessions.ListSessions()).sessions] == before


async def raw(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Opens a connection that speaks whatever a test writes."""
    host, _, port = server.web_address.rpartition("//")[2].rpartition(":")
    return await asyncio.open_connection(host, int(port))


NONSENSE: Mapping[str, tuple[str, bytes, dict[str, str], int, str]] = {
    "no JSON": ("/CreateSession", b"{", JSON, 400, "invalid_argument"),
    "JSON of another form": ("/CreateSession", b"[1]", JSON, 400, "invalid_argument"),
    "a field of another type": ("/CreateSession", b'{"title": {}}', JSON, 400, "invalid_argument"),
    "deep JSON": ("/CreateSession", b"[" * 60_000, JSON, 400, "invalid_argument"),
    "no UTF-8": ("/CreateSession", b'{"title": "\xff"}', JSON, 400, "invalid_argument"),
    "half a letter": ("/CreateSession", b'{"title": "\\ud800"}', JSON, 400, "invalid_argument"),
    "a number too long": ("/GetSession", b'{"sessionId": ' + b"9" * 5000 + b"}", JSON, 400, "invalid_argument"),
    "no protobuf": ("/CreateSession", b"\xff\xff", {"content_type": "application/proto"}, 400, "invalid_argument"),
    "no gzip": ("/CreateSession", b"no", {**JSON, "content_encoding": "gzip"}, 400, "invalid_argument"),
    "half a gzip": (
        "/CreateSession",
        gzip.compress(b"{}")[:-4],
        {**JSON, "content_encoding": "gzip"},
        400,
        "invalid_argument",
    ),
    "a bomb": (
        "/CreateSession",
        gzip.compress(b" " * 50_000_000),
        {**JSON, "content_encoding": "gzip"},
        429,
        "resource_exhausted",
    ),
    "too large": ("/CreateSession", b" " * (LIMIT + 1), JSON, 429, "resource_exhausted"),
    "another version": ("/CreateSession", b"{}", {**JSON, "connect_protocol_version": "9"}, 400, "invalid_argument"),
    "no method": ("/Nothing", b"{}", JSON, 404, "unimplemented"),
}


@pytest.mark.matrix
@pytest.mark.parametrize("what", NONSENSE)
async def test_nonsense_gets_an_error_of_the_protocol(web: WebClient, what: str) -> None:
    """It stores nothing, and leaves no traceback."""
    path, body, headers, status, code = NONSENSE[what]
    answer = await web.send(SESSIONS + path, body, **headers)
    assert (answer.status, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "unimplemented"),
        (envelope(0, b"") * 2, "unimplemented"),
        (b"\0\0\0", "invalid_argument"),
        (b"\0\0\0\0\x09x", "invalid_argument"),
        (b"\0\xff\xff\xff\xff", "invalid_argument"),
        (envelope(1, b"x"), "internal"),
        (envelope(4, b""), "invalid_argument"),
        (envelope(0, b"\xff"), "invalid_argument"),
        (envelope(0, b" " * (LIMIT + 1)), "resource_exhausted"),
    ],
)
async def test_broken_envelopes_get_a_last_envelope(web: WebClient, body: bytes, code: str) -> None:
    """A stream's request that is none gets an error where a stream has it."""
    answer = await web.send(WATCH, body, **CONNECT)
    assert (answer.status, answer.body[0]) == (200, 2)
    assert json.loads(answer.body[5:])["error"]["code"] == code


async def test_wrong_types_and_verbs_are_told(web: WebClient) -> None:
    """The answer names what would be right, in a header for programs and in a line for people."""
    wrong = await web.send(f"{SESSIONS}/CreateSession", b"{}", content_type="text/plain")
    assert (wrong.status, "application/json" in wrong.headers["accept-post"]) == (415, True)
    assert b"application/json" in wrong.body
    stream = await web.send(WATCH, b"{}", **JSON)
    assert (stream.status, "application/connect+json" in stream.headers["accept-post"]) == (415, True)
    verb = await web.send(f"{SESSIONS}/CreateSession", b"{}", verb="PUT", **JSON)
    assert (verb.status, verb.headers["allow"], verb.body) == (405, "POST", b"this method is called by POST\n")
    head = await web.send(f"{SESSIONS}/CreateSession", verb="HEAD")
    assert (head.status, head.body) == (405, b"")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "encoding=xml&message=",
        "encoding=json",
        "encoding=json&base64=1&message=!",
        "encoding=json&message=%ff",
        "&".join(f"a{number}=1" for number in range(100)),
        "connect=v9&encoding=json&message=%7B%7D",
    ],
)
async def test_a_broken_query_is_told(web: WebClient, query: str) -> None:
    """A GET without a right message gets the error of the protocol."""
    answer = await web.send(f"{SESSIONS}/ListSessions?{query}", verb="GET")
    assert (answer.status, answer.json()["code"]) == (400, "invalid_argument")


@pytest.mark.parametrize(
    "said", [b"", b"POST / HTTP/1.1\r\nx: ", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET"]
)
async def test_a_slow_head_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """A client that sends a letter now and then does not hold its connection, nor does one that sends nothing."""
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.3)
    async with running_server(tmp_path, TOML) as server:
        reader, writer = await raw(server)
        writer.write(said)
        ended = asyncio.create_task(reader.read())
        while not ended.done():
            await asyncio.wait((ended,), timeout=0.1)
            writer.write(b"x" if said else b"")
        writer.transport.abort()
        await asyncio.gather(ended, return_exceptions=True)


@pytest.mark.parametrize("said", [f"POST {SESSIONS}/CreateSession", "GET /healthz", "GET /"])
async def test_the_rest_of_an_answered_body_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """A client that is answered before its request's end, and sends a byte now and then, holds no connection."""
    async with running_server(tmp_path, TOML) as server:
        monkeypatch.setattr(reads, "RECEIVE_SECONDS", 0.3)
        reader, writer = await raw(server)
        writer.write(f"{said} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n".encode())
        assert await reader.readuntil(b"\r\n\r\n")
        ended = asyncio.create_task(reader.read())
        async with asyncio.timeout(10):
            while not ended.done():
                writer.write(b"x")
                await asyncio.wait((ended,), timeout=0.1)
        writer.transport.abort()
        await asyncio.gather(ended, return_exceptions=True)


async def test_connections_over_the_number_cost_the_others_nothing(tmp_path: Path) -> None:
    """A connection is answered in every moment in which further ones come and are closed."""
    async with running_server(tmp_path, TOML) as server:
        host, _, port = server.web_address.rpartition("//")[2].rpartition(":")
        held = [await raw(server) for _ in range(20)]
        reader, writer = held[0]
        for rounds in range(12):
            more = [socket.create_connection((host, int(port))) for _ in range(40)]
            for _ in range(rounds):
                await asyncio.sleep(0)
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b" 200 " in await reader.readuntil(b"\r\n")
            await reader.readuntil(b"ok\n")
            for one in more:
                one.close()
        for _, one in held:
            one.transport.abort()


async def test_a_long_head_is_refused(server: Server) -> None:
    """Neither one header without end nor many short ones fill the memory."""
    for head in (b"x: " + b"x" * 40_000, b"x: y\r\n" * 8_000, b"x: y\r\n" * 20_000 + b"\r\n"):
        reader, writer = await raw(server)
        writer.write(b"POST / HTTP/1.1\r\nhost: localhost\r\n" + head)
        assert (await reader.read()).split(b" ")[1] == b"400"
        writer.transport.abort()


async def test_a_body_without_end_is_refused_and_not_kept(server: Server) -> None:
    """The answer comes at the limit; what follows is dropped."""
    reader, writer = await raw(server)
    writer.write(f"POST {SESSIONS}/CreateSession HTTP/1.1\r\nhost: localhost\r\n".encode())
    writer.write(b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    answer = asyncio.create_task(reader.readuntil(b"\r\n"))
    while not answer.done():
        writer.write(b"4000\r\n" + b" " * 0x4000 + b"\r\n")
        await asyncio.wait((answer,), timeout=0.01)
    assert b" 429 " in answer.result()
    assert await reader.readuntil(b"resource_exhausted")
    writer.transport.abort()


CHUNKED = "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"


async def test_a_body_in_tiny_chunks_is_cut_off(server: Server) -> None:
    """Each costs the event loop as much as a large one: seconds for those that come together."""
    reader, writer = await raw(server)
    writer.write(f"POST {SESSIONS}/CreateSession HTTP/1.1\r\nhost: localhost\r\n{CHUNKED}".encode())
    writer.write(b"1\r\n \r\n" * 10_000)
    assert b" 400 " in await reader.readuntil(b"\r\n")
    writer.transport.abort()


async def test_a_broken_body_is_no_error_of_the_server(server: Server) -> None:
    """Also not of one whose client waits until it may send it: its call is not carried out, and the log has no word."""
    with capture_logs() as lines:
        reader, writer = await raw(server)
        writer.write(f"POST {SESSIONS}/CreateSession HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n".encode())
        writer.write(CHUNKED.encode() + b"no chunk\r\n")
        assert b" 400 " in await reader.readuntil(b"\r\n")
        while server.overload.reads.count:
            await asyncio.sleep(0.01)
        writer.transport.abort()
    assert [line for line in lines if line["log_level"] == "error"] == []


@pytest.mark.parametrize(
    "rest",
    [
        CHUNKED.encode() + b"".join(b"%x\r\n%s\r\n" % (1, bytes((one,))) for one in b'{"title": "a"}') + b"0\r\n\r\n",
        CHUNKED.encode() + b"2711\r\n" + b"\r\n" * 5_000 + b"{\r\n1\r\n}\r\n0\r\n\r\n",
        b"content-type: application/json\r\ncontent-length: 10002\r\n\r\n" + b"\r\n" * 5_000 + b"{}",
    ],
    ids=["few chunks", "lines in a chunk", "lines"],
)
async def test_a_body_of_short_lines_is_read(server: Server, rest: bytes) -> None:
    """Lines of the body's own are none of HTTP; and some clients send a few small chunks."""
    reader, writer = await raw(server)
    writer.write(f"POST {SESSIONS}/CreateSession HTTP/1.1\r\nhost: localhost\r\n".encode() + rest)
    assert b" 200 " in await reader.readuntil(b"\r\n")
    writer.transport.abort()


def unfinished(size: int) -> bytes:
    """Returns a request whose body lacks its last byte."""
    head = f"POST {SESSIONS}/CreateSession HTTP/1.1\r\nhost: localhost\r\ncontent-length: {size}\r\n"
    return f"{head}content-type: application/json\r\n\r\n".encode() + b" " * (size - 1)


async def limit_reached(reader: asyncio.StreamReader) -> Mapping[str, str]:
    """Returns the facts of a refusal by a limit, which says when to try again."""
    assert b" 429 " in await reader.readuntil(b"\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    [size] = [line.split(b":")[1] for line in head.lower().splitlines() if line.startswith(b"content-length:")]
    error = json.loads(await reader.readexactly(int(size)))
    assert error["code"] == "resource_exhausted"
    details = {one["type"]: base64.b64decode(one["value"] + "==") for one in error["details"]}
    assert "google.rpc.RetryInfo" in details
    found = ErrorInfo.FromString(details["google.rpc.ErrorInfo"])
    assert found.reason == "CONCURRENCY_LIMIT"
    return found.metadata


async def test_a_slow_body_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that stops in its middle does not hold what came of it; the limit is that of gRPC."""
    monkeypatch.setattr(reads, "RECEIVE_SECONDS", 0.2)
    reader, writer = await raw(server)
    writer.write(unfinished(9))
    facts = await limit_reached(reader)
    assert (facts["limit"], facts["limitValue"]) == ("RECEIVE_SECONDS", "0.2")
    writer.transport.abort()


async def test_bodies_that_come_slowly_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All together; it is named, and there is room again when they are gone."""
    monkeypatch.setattr(Limits, "max_bodies_bytes", 2 * LIMIT)
    async with running_server(tmp_path, TOML) as server:
        slow = [await raw(server) for _ in range(2)]
        for _, writer in slow:
            writer.write(unfinished(LIMIT))
        while server.overload.reads.count < len(slow):
            await asyncio.sleep(0.01)
        reader, writer = await raw(server)
        writer.write(unfinished(LIMIT))
        facts = await limit_reached(reader)
        assert (facts["limit"], facts["limitValue"]) == ("limits.max_bodies_bytes", str(2 * LIMIT))
        for one in (writer, *(slow_writer for _, slow_writer in slow)):
            one.transport.abort()
        while server.overload.reads.count:
            await asyncio.sleep(0.01)
        reader, writer = await raw(server)
        writer.write(unfinished(LIMIT) + b"{")
        assert b" 400 " in await reader.readuntil(b"\r\n")
        writer.transport.abort()


@pytest.mark.parametrize(
    ("path", "content_type", "answer"),
    [
        (f"{SESSIONS}/CreateSession", "application/json", b"resource_exhausted"),
        (f"{SESSIONS}/CreateSession", "application/grpc-web", b"grpc-status: 8"),
        (f"{SESSIONS}/CreateSession", "application/grpc-web-text", base64.b64encode(b"rpc-status: 8\r\n")),
        (WATCH, "application/connect+proto", b"resource_exhausted"),
    ],
)
async def test_a_body_that_says_it_is_too_large_waits_for_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch, path: str, content_type: str, answer: bytes
) -> None:
    """Few are read at a time, and what waits for that keeps its connection."""

    async def wait(*_: object) -> bytes:
        await asyncio.Event().wait()
        return b""

    monkeypatch.setattr(server.overload.reads, "read", wait)
    reader, writer = await raw(server)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\n"
    writer.write(f"{head}content-length: {10 * LIMIT}\r\n\r\n".encode())
    async with asyncio.timeout(5):
        assert await reader.readuntil(answer)
    writer.transport.abort()


async def test_further_connections_are_refused(server: Server) -> None:
    """They are closed before they say anything; when some of those that are there have gone, others come."""
    opened = [await raw(server) for _ in range(20)]
    for _ in range(5):
        reader, writer = await raw(server)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.transport.abort()
    for _, one in opened:
        one.transport.abort()
    async with web_client(server.web_address) as web:
        while (await web.send("/", verb="GET")).status != 200:
            pass


async def test_an_idle_connection_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its last answer, not before its next request."""
    monkeypatch.setattr(web_server, "IDLE_SECONDS", 1)
    async with running_server(tmp_path, TOML) as server:
        reader, writer = await raw(server)
        for _ in range(2):
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b" 200 " in await reader.readuntil(b"ok\n")
        assert await reader.read() == b""
        writer.transport.abort()


async def test_a_client_that_vanishes_ends_its_watch(server: Server) -> None:
    """A browser that goes to sleep or away leaves nothing behind."""
    reader, writer = await raw(server)
    body = envelope(0, WatchEventsRequest().SerializeToString())
    head = f"POST {WATCH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/connect+proto\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    assert b" 200 " in await reader.readuntil(b"\r\n")
    assert server.readings().watchers == 1
    writer.transport.abort()
    while server.readings().watchers:
        await asyncio.sleep(0.01)


async def test_uvicorn_is_silent(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Its warnings about bad requests, of which anybody can send many, do not reach the log."""
    with caplog.at_level(logging.INFO):
        reader, writer = await raw(server)
        writer.write(b"no HTTP\r\n\r\n")
        assert b" 400 " in await reader.read()
        writer.transport.abort()
    assert caplog.records == []


async def test_calls_that_reach_no_method_are_told_within_a_limit(server: Server) -> None:
    """A few lines tell of those who ask for what does not exist, or in another way, and nothing that was sent."""
    wrong = [
        (f"{SESSIONS}/secret-Nothing", {"content_type": "application/json"}),
        (f"{SESSIONS}/CreateSession", {"content_type": "text/plain"}),
        (f"{SESSIONS}/CreateSession", {**JSON, "origin": "https://secret.example"}),
    ]
    with capture_logs() as lines:
        async with web_client(server.web_address) as web:
            for path, headers in wrong * 10:
                await web.send(path, b"{}", **headers)
    told = [line for line in lines if line["event"] == "caller_refused"]
    assert {line["code"] for line in told} == {"UNIMPLEMENTED", "PERMISSION_DENIED"}
    assert {line["method"] for line in told} == {"none"} and "secret" not in str(told)
    assert len(told) < 30
