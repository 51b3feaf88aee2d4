"""A connection of HTTP/2 before a peer that sends anything."""

import asyncio
from collections.abc import MutableMapping
from typing import Any, cast

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ResponseReceived
from h2.settings import SettingCodes, Settings
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.api.web.exchange import Receive, Scope, Send
from turnwire.api.web.http.http2 import PREFACE, Http2
from turnwire.api.web.http.limits import Connections


class Wire:
    """A transport that keeps what was written."""

    def __init__(self) -> None:
        """Is open."""
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        """Keeps it."""
        self.written += data

    def close(self) -> None:
        """Writes nothing more."""
        self.is_closed = True

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


def connected() -> tuple[Http2, Wire, set[asyncio.Task[None]]]:
    """Returns a new connection, its wire, and the calls that it begins."""
    tasks: set[asyncio.Task[None]] = set()
    connection = Http2(answer, Connections(10), {}, tasks, asyncio.get_running_loop())
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
