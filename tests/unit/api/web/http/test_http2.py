"""A connection of HTTP/2 before a peer that sends anything."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import timedelta
from typing import Any, cast

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ResponseReceived, StreamReset
from h2.settings import SettingCodes, Settings
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.support.fakes.loop import elapse, settled
from turnwire.api.web.exchange import Receive, Scope, Send
from turnwire.api.web.http import http2_stream
from turnwire.api.web.http.http2 import (
    CONNECTION_WINDOW_BYTES,
    IDLE_DATA_BYTES,
    MAX_IDLE_FRAMES,
    PREFACE,
    STREAM_WINDOW_BYTES,
    Http2,
)
from turnwire.api.web.http.limits import STALL_SECONDS, Connections

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

STALL = timedelta(seconds=STALL_SECONDS)


class Wire:
    """A transport that keeps what was written."""

    def __init__(self) -> None:
        """Is open."""
        self.written = b""
        self.is_closed = self.is_aborted = False
        self.is_reading = True

    def write(self, data: bytes) -> None:
        """Keeps it."""
        self.written += data

    def close(self) -> None:
        """Writes nothing more."""
        self.is_closed = True

    def abort(self) -> None:
        """Is closed at once."""
        self.is_closed = self.is_aborted = True

    def pause_reading(self) -> None:
        """Takes nothing more."""
        self.is_reading = False

    def resume_reading(self) -> None:
        """Goes on."""
        self.is_reading = True

    def is_closing(self) -> bool:
        """Returns whether it was closed."""
        return self.is_closed

    def get_extra_info(self, _name: str) -> None:
        """Knows nothing."""


async def answer(_scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body and answers its length."""
    size = 0
    while True:
        event: MutableMapping[str, Any] = await receive()
        if event["type"] == "http.disconnect":
            return
        size += len(event["body"])
        if not event["more_body"]:
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode(), "more_body": False})


def connected(application: Application = answer) -> tuple[Http2, Wire, set[asyncio.Task[None]]]:
    """Returns a new connection, its wire, and the calls that it begins."""
    tasks: set[asyncio.Task[None]] = set()
    connection = Http2(application, Connections(10), {}, tasks, asyncio.get_running_loop())
    wire = Wire()
    connection.connection_made(cast(asyncio.Transport, wire))
    return connection, wire, tasks


def spoken() -> bytes:
    """Returns what a right client sends: two requests, with and without a body."""
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    for stream in (1, 3):
        pseudo = [(":method", "POST"), (":path", "/a"), (":scheme", "http"), (":authority", "localhost")]
        client.send_headers(stream, pseudo, end_stream=stream == 3)
    client.send_data(1, b"body", end_stream=True)
    client.ping(b"12345678")
    return client.data_to_send()


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_pieces_of_any_size_are_understood(size: int) -> None:
    """Frames come as the network cuts them."""
    connection, wire, tasks = connected()
    said = spoken()
    for start in range(0, len(said), size):
        connection.data_received(said[start : start + size])
    await asyncio.gather(*tasks)
    assert b"4" in wire.written and not wire.is_closed
    connection.connection_lost(None)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6), st.binary(max_size=60))
async def test_nothing_that_is_sent_raises(changes: list[tuple[int, int]], more: bytes) -> None:
    """Frames that are almost right are answered or end the connection; the server sees no exception."""
    connection, _, tasks = connected()
    said = bytearray(spoken())
    for place, value in changes:
        said[len(PREFACE) + place % (len(said) - len(PREFACE))] = value
    connection.data_received(bytes(said) + more)
    await asyncio.sleep(0)
    connection.connection_lost(None)
    await asyncio.gather(*tasks)


async def test_a_request_without_a_path_is_refused() -> None:
    """CONNECT has none."""
    connection, wire, tasks = connected()
    client = H2Connection(H2Configuration(client_side=True, validate_outbound_headers=False))
    client.initiate_connection()
    client.send_headers(1, [(":method", "CONNECT"), (":authority", "localhost")], end_stream=True)
    connection.data_received(client.data_to_send())
    await asyncio.gather(*tasks)
    assert wire.written
    connection.connection_lost(None)


async def test_no_request_begins_after_the_shutdown() -> None:
    """What runs is answered first; then the connection is closed."""
    connection, wire, tasks = connected()
    connection.data_received(spoken())
    connection.shutdown()
    assert not wire.is_closed
    await asyncio.gather(*tasks)
    assert wire.is_closed


async def test_a_client_does_not_choose_how_much_is_remembered() -> None:
    """Headers of answers are looked up in what was sent before: a large table costs memory, and each answer time."""
    connection, wire, tasks = connected()
    client = H2Connection(H2Configuration(client_side=True))
    client.local_settings = Settings(client=True, initial_values={SettingCodes.HEADER_TABLE_SIZE: 2**31})
    client.decoder.max_allowed_table_size = 2**31
    client.initiate_connection()
    pseudo = [(":method", "POST"), (":path", "/a"), (":scheme", "http"), (":authority", "localhost")]
    client.send_headers(1, pseudo, end_stream=True)
    connection.data_received(client.data_to_send())
    await asyncio.gather(*tasks)
    events = client.receive_data(wire.written)
    assert any(isinstance(event, ResponseReceived) for event in events)
    assert client.decoder.header_table_size <= 4096
    connection.connection_lost(None)


GET = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "localhost")]

_FRAMES = {
    "pings": b"\0\0\x08\x06\0\0\0\0\0" + bytes(8),
    "settings": b"\0\0\0\x04\0\0\0\0\0",
    "priorities": b"\0\0\x05\x02\0\0\0\0\x07\0\0\0\0\x10",
    "unknown": b"\0\0\0\xbb\0\0\0\0\0",
    "windows": b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01",
}


@pytest.mark.parametrize("kind", _FRAMES)
async def test_frames_that_bring_nothing_end_the_connection(kind: str) -> None:
    """A quarter of a megabyte of them is read in slices, and not to its end."""
    connection, wire, _ = connected()
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    with capture_logs() as lines:
        connection.data_received(client.data_to_send() + _FRAMES[kind] * (262_144 // len(_FRAMES[kind])))
        assert not wire.is_closed and not wire.is_reading
        while not wire.is_closed:
            await asyncio.sleep(0)
    assert b"\0\0\0\x0b" in wire.written[-8:]  # ENHANCE_YOUR_CALM
    assert [(line["event"], line["listener"]) for line in lines] == [("peer_cut_off", "web")]
    connection.connection_lost(None)


async def test_a_peer_that_brings_something_may_ping() -> None:
    """Whoever has requests answered is not cut off for the frames between them."""
    connection, wire, tasks = connected()
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    for stream in range(1, 4 * MAX_IDLE_FRAMES // 10, 2):
        client.send_headers(stream, GET, end_stream=True)
        for _ in range(10):
            client.ping(bytes(8))
        connection.data_received(client.data_to_send())
        await asyncio.gather(*tasks)
    assert not wire.is_closed
    connection.connection_lost(None)


async def test_long_data_is_read_in_slices_and_whole() -> None:
    """In the order in which it came, also when more comes meanwhile; nothing is taken from the network before."""
    connection, wire, tasks = connected()
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.send_headers(1, [(":method", "POST"), *GET[1:]])
    for _ in range(6):
        client.send_data(1, bytes(10_000))
    client.end_stream(1)
    data = client.data_to_send()
    connection.data_received(data[:30_000])
    assert not wire.is_reading
    connection.data_received(data[30_000:])
    while not wire.is_reading:
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert b"60000" in wire.written
    connection.connection_lost(None)


async def test_a_peer_that_reads_nothing_is_left() -> None:
    """After a time; nothing of what it sends is read meanwhile."""
    connection, wire, _ = connected()
    connection.pause_writing()
    assert not wire.is_reading
    connection.resume_writing()
    assert wire.is_reading
    await elapse(STALL)
    assert not wire.is_aborted
    connection.pause_writing()
    await elapse(STALL)
    assert wire.is_aborted
    connection.connection_lost(None)


async def test_a_window_that_nobody_opens_ends_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection and its other streams go on."""
    monkeypatch.setattr(http2_stream, "STALL_SECONDS", 0.05)

    async def long(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(100_000), "more_body": False})

    connection, wire, tasks = connected(long)
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.send_headers(1, GET, end_stream=True)
    connection.data_received(client.data_to_send())
    await asyncio.gather(*tasks)
    events = client.receive_data(wire.written)
    assert [event.error_code for event in events if isinstance(event, StreamReset)] == [8]  # CANCEL
    assert not wire.is_closed
    connection.connection_lost(None)


@pytest.mark.parametrize(("size", "is_cut_off"), [(0, True), (IDLE_DATA_BYTES - 1, True), (IDLE_DATA_BYTES, False)])
async def test_a_body_in_tiny_pieces_ends_the_connection(size: int, is_cut_off: bool) -> None:
    """Each costs a task's turn; larger pieces may come as often as the client likes."""
    connection, wire, _ = connected()
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.send_headers(1, [(":method", "POST"), *GET[1:]])
    for _ in range(2 * MAX_IDLE_FRAMES):
        client.send_data(1, bytes(size))
        connection.data_received(client.data_to_send())
    assert wire.is_closed == is_cut_off
    connection.connection_lost(None)


class Peer:
    """A client of a connection."""

    def __init__(self, application: Application) -> None:
        """Connects."""
        self.connection, self.wire, self.tasks = connected(application)
        self._taken = 0
        self.client = H2Connection(H2Configuration(client_side=True))
        self.client.initiate_connection()

    async def exchange(self) -> None:
        """Lets both sides read all that the other says."""
        self.connection.data_received(self.client.data_to_send())
        await settled()
        while not self.wire.is_reading:
            await asyncio.sleep(0)
        await settled()
        self.client.receive_data(self.wire.written[self._taken :])
        self._taken = len(self.wire.written)

    async def posts(self, stream: int, size: int) -> None:
        """Begins a request and sends so many bytes of its body."""
        self.client.send_headers(stream, [(":method", "POST"), *GET[1:]])
        await self.sends(stream, size)

    async def sends(self, stream: int, size: int) -> None:
        """Sends a piece of a body, in frames of the usual size."""
        while size:
            piece = min(size, self.client.max_outbound_frame_size)
            self.client.send_data(stream, bytes(piece))
            size -= piece
        await self.exchange()


class _Unreading:
    """Does not look at the body."""

    def __init__(self, *, answers: bool) -> None:
        """Answers, or returns without an answer; the application of the web page does not, but one may fail."""
        self._answers = answers
        self.may_return = asyncio.Event()

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Carries out a call, and returns when it may."""
        if self._answers:
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            assert await receive() == {"type": "http.disconnect"}
        await self.may_return.wait()


@pytest.mark.parametrize("end", ["answer", "reset", "failure"])
async def test_bodies_that_nobody_reads_leave_their_room_to_others(end: str) -> None:
    """However their requests end, a connection with many of them goes on: the client may send each time."""
    application = _Unreading(answers=end == "answer")
    peer = Peer(application)
    await peer.exchange()
    for stream in range(1, 61, 2):
        application.may_return.clear()
        await peer.posts(stream, 60_000)
        if end == "reset":
            peer.client.reset_stream(stream)
            await peer.exchange()
        application.may_return.set()
        await asyncio.gather(*peer.tasks)
        await peer.exchange()
    assert peer.client.outbound_flow_control_window > CONNECTION_WINDOW_BYTES // 4
    peer.connection.connection_lost(None)


async def test_what_comes_behind_the_answer_leaves_its_room_to_others() -> None:
    """While the application still runs, a client may send on; nothing of it is kept."""
    application = _Unreading(answers=True)
    peer = Peer(application)
    await peer.exchange()
    for stream in range(1, 61, 2):
        await peer.posts(stream, 1)
        await peer.sends(stream, 60_000)
    assert peer.client.outbound_flow_control_window > CONNECTION_WINDOW_BYTES // 4
    application.may_return.set()
    await asyncio.gather(*peer.tasks)
    peer.connection.connection_lost(None)


async def test_a_body_waits_for_who_reads_it() -> None:
    """Its client may send as much as a window, and more once that is read; other requests have room beside it."""
    may_read = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await may_read.wait()
        await answer(scope, receive, send)

    peer = Peer(slow)
    await peer.exchange()
    assert peer.client.outbound_flow_control_window == CONNECTION_WINDOW_BYTES
    await peer.posts(1, STREAM_WINDOW_BYTES)
    await peer.exchange()
    assert peer.client.local_flow_control_window(1) == 0
    assert peer.client.outbound_flow_control_window == CONNECTION_WINDOW_BYTES - STREAM_WINDOW_BYTES
    may_read.set()
    await peer.exchange()
    assert peer.client.local_flow_control_window(1) >= STREAM_WINDOW_BYTES // 2
    peer.client.end_stream(1)
    await peer.exchange()
    await asyncio.gather(*peer.tasks)
    assert str(STREAM_WINDOW_BYTES).encode() in peer.wire.written
    peer.connection.connection_lost(None)
