"""A connection of HTTP/1.1 before a peer that sends anything."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.config import Config
from uvicorn.server import ServerState

from tests.support.fakes.loop import elapse
from turnwire.api.web.exchange import Receive, Scope, Send
from turnwire.api.web.http.http1 import Http1
from turnwire.api.web.http.limits import STALL_SECONDS, Connections

STALL = timedelta(seconds=STALL_SECONDS)


class Wire:
    """A transport that keeps what was written."""

    def __init__(self) -> None:
        """Is open."""
        self.writes: list[bytes] = []
        self.is_closed = self.is_aborted = False

    def write(self, data: bytes) -> None:
        """Keeps it."""
        self.writes.append(data)

    def close(self) -> None:
        """Writes nothing more."""
        self.is_closed = True

    def abort(self) -> None:
        """Is closed at once."""
        self.is_closed = self.is_aborted = True

    def is_closing(self) -> bool:
        """Returns whether it was closed."""
        return self.is_closed

    def get_extra_info(self, _name: str) -> None:
        """Knows nothing."""

    def pause_reading(self) -> None:
        """Does nothing."""

    resume_reading = pause_reading


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers when the body has come."""
    body = b""
    while (event := await receive()).get("more_body"):
        body += event["body"]
    if event["type"] != "http.disconnect":
        status = 200 if scope["method"] == "GET" or body + event["body"] == b"hi" else 400
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok", "more_body": False})


def connected() -> tuple[Http1, Wire, ServerState]:
    """Returns a new connection, its wire, and what has its calls."""
    config = Config(cast(Any, answer), interface="asgi3", http=Http1, ws="none", lifespan="off", log_config=None)
    config.load()
    state, wire = ServerState(), Wire()
    connection = Http1(config, state, {}, asyncio.get_running_loop(), all_connections=Connections(10))
    connection.connection_made(cast(asyncio.Transport, wire))
    return connection, wire, state


async def test_head_and_body_leave_together() -> None:
    """A short answer is one packet: two would wake the client twice."""
    connection, wire, state = connected()
    connection.data_received(b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi")
    await asyncio.gather(*state.tasks)
    await asyncio.sleep(0)
    (written,) = wire.writes
    assert written.startswith(b"HTTP/1.1 200 OK\r\n") and written.endswith(b"\r\n\r\nok")
    connection.connection_lost(None)


@pytest.mark.parametrize("size", [1, 1000])
async def test_a_wish_for_another_protocol_loses_no_body(size: int) -> None:
    """Clients ask for HTTP/2 with their first request; it is answered in HTTP/1.1, and so is the next one."""
    connection, wire, state = connected()
    upgrade = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"
    request = b"POST /a HTTP/1.1\r\nhost: a\r\n%scontent-length: 2\r\n\r\nhi"
    said = request % upgrade + request % b""
    for start in range(0, len(said), size):
        connection.data_received(said[start : start + size])
    while state.tasks:
        await asyncio.gather(*state.tasks)
    await asyncio.sleep(0)
    assert b"".join(wire.writes).count(b"200 OK") == 2 and not wire.is_closed
    connection.connection_lost(None)


async def test_nothing_is_tunnelled() -> None:
    """The listener is no proxy."""
    connection, wire, _ = connected()
    connection.data_received(b"CONNECT example.com:443 HTTP/1.1\r\nhost: example.com:443\r\n\r\n")
    assert wire.is_closed
    assert wire.writes[0].startswith(b"HTTP/1.1 405 ")
    connection.connection_lost(None)


async def test_wishes_for_other_protocols_have_a_bound() -> None:
    """Thousands in one piece would hold the event loop."""
    connection, wire, state = connected()
    connection.data_received(b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n" * 1000)
    assert wire.is_closed
    connection.connection_lost(None)
    await asyncio.gather(*state.tasks)


async def test_requests_that_come_together_are_answered_in_order() -> None:
    """Pipelining: the second one waits for the first."""
    connection, wire, state = connected()
    connection.data_received(b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n" * 3)
    while state.tasks:
        await asyncio.gather(*state.tasks)
    await asyncio.sleep(0)
    assert b"".join(wire.writes).count(b"200 OK") == 3
    connection.connection_lost(None)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=5),
    st.lists(st.integers(1, 30), max_size=5),
)
async def test_nothing_that_is_sent_raises(changes: list[tuple[int, int]], cuts: list[int]) -> None:
    """Requests that are almost right are answered or end the connection; the server sees no exception."""
    connection, _, state = connected()
    said = bytearray(
        b"POST /a?b HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"
    )
    for place, value in changes:
        said[place % len(said)] = value
    rest = bytes(said)
    for cut in (*cuts, len(rest)):
        connection.data_received(rest[:cut])
        rest = rest[cut:]
    await asyncio.sleep(0)
    connection.connection_lost(None)
    await asyncio.gather(*state.tasks)


CHUNKED = b"POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n"


async def test_endless_trailers_close_the_connection() -> None:
    """The parser keeps them whole, and no bound of a head or a body counts them."""
    connection, wire, state = connected()
    connection.data_received(CHUNKED + b"0\r\nx: ")
    for _ in range(40):
        connection.data_received(b"a" * 1000)
    assert wire.is_closed
    connection.connection_lost(None)
    await asyncio.gather(*state.tasks)


async def test_trailers_do_not_become_headers() -> None:
    """A proxy that takes credentials out of headers leaves trailers as they are."""
    connection, _wire, state = connected()
    connection.data_received(CHUNKED + b"0\r\n")
    connection.data_received(b"turnwire-tenant: b\r\nauthorization: Bearer x\r\n\r\n")
    await asyncio.gather(*state.tasks)
    assert [name for name, _ in connection.headers] == [b"host", b"transfer-encoding"]
    connection.connection_lost(None)


async def test_requests_ahead_of_the_last_one_end_with_the_connection() -> None:
    """A stream before a request that waits for its turn would run for ever."""
    connection, _wire, state = connected()
    connection.data_received(b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nh")
    await asyncio.sleep(0)
    connection.cycle.more_body = False  # its body has come, and it goes on
    running = connection.cycle
    waiting = asyncio.create_task(asyncio.wait_for(running.receive(), 1))
    connection.parser.feed_data(b"iGET /b HTTP/1.1\r\nhost: a\r\n\r\n")
    connection.connection_lost(None)
    assert running.disconnected
    await waiting
    await asyncio.gather(*state.tasks)


async def test_thousands_of_requests_in_one_piece_close_the_connection() -> None:
    """Behind an answer that nobody reads they would fill the memory: 40 MB of a quarter of a megabyte."""
    connection, wire, state = connected()
    connection.data_received(b"GET / HTTP/1.1\r\n\r\n" * 14_000)
    assert wire.is_closed and len(connection.pipeline) <= 100
    connection.connection_lost(None)
    await asyncio.gather(*state.tasks)


@pytest.mark.parametrize("nonsense", [b"no HTTP\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"x" * 40_000 + b"\r\n\r\n"])
async def test_nothing_is_written_into_an_answer(nonsense: bytes) -> None:
    """A refusal would be read as the answer of the request before, or as its content: the connection is closed."""
    connection, wire, state = connected()
    connection.data_received(b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi")
    connection.data_received(nonsense)
    assert wire.is_closed and wire.writes == []
    connection.connection_lost(None)
    await asyncio.gather(*state.tasks)


async def test_a_peer_that_reads_nothing_is_left() -> None:
    """After a time; one that goes on reading stays."""
    connection, wire, _ = connected()
    connection.pause_writing()
    connection.resume_writing()
    await elapse(STALL)
    assert not wire.is_aborted
    connection.pause_writing()
    await elapse(STALL)
    assert wire.is_aborted
    connection.connection_lost(None)
