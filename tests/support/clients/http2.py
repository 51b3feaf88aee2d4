"""A small client of HTTP/2, which shows what a browser hides: resets, windows, and many streams on one connection."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)


@dataclass
class Http2Answer:
    """What has come of one answer."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    has_ended: bool = False
    reset_by: int | None = None

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(self.headers[":status"])


class Http2Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes an open connection; its owner closes it."""
        self._reader, self.writer = reader, writer
        self.http2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.http2.initiate_connection()
        self.answers: dict[int, Http2Answer] = {}
        self.ended_by: int | None = None
        """The code with which the server ended the connection."""
        self.acknowledges = True
        """Whether what came opens the windows again."""

    def begin(self, path: str, body: bytes, headers: Mapping[str, str], *, verb: str = "POST", end: bool = True) -> int:
        """Sends a request. Returns the number of its stream."""
        stream = self.http2.get_next_available_stream_id()
        pseudo = {":method": verb, ":path": path, ":scheme": "http", ":authority": "localhost"}
        self.http2.send_headers(stream, list({**pseudo, **headers}.items()), end_stream=end and not body)
        if body:
            self.http2.send_data(stream, body, end_stream=end)
        self.answers[stream] = Http2Answer()
        self.flush()
        return stream

    def flush(self) -> None:
        """Writes what is ready."""
        self.writer.write(self.http2.data_to_send())

    async def read_some(self) -> bool:
        """Takes what comes next. Returns False when the server has closed the connection."""
        data = await self._reader.read(65_536)
        if not data:
            return False
        for event in self.http2.receive_data(data):
            match event:
                case ResponseReceived():
                    self.answers[event.stream_id or 0].headers = {str(k): str(v) for k, v in event.headers or ()}
                case DataReceived():
                    self.answers[event.stream_id or 0].body += event.data or b""
                    if self.acknowledges:
                        self.http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id or 0)
                case StreamEnded():
                    self.answers[event.stream_id or 0].has_ended = True
                case StreamReset():
                    self.answers[event.stream_id or 0].reset_by = int(event.error_code)
                case ConnectionTerminated():
                    self.ended_by = int(event.error_code)
        self.flush()
        return True

    async def answer(self, stream: int) -> Http2Answer:
        """Returns a whole answer, or what came of one that was reset."""
        answer = self.answers[stream]
        while not answer.has_ended and answer.reset_by is None:
            assert await self.read_some()
        return answer


@asynccontextmanager
async def http2_client(url: str, context: ssl.SSLContext | None = None) -> AsyncIterator[Http2Client]:
    """Opens a connection: in the clear, or by TLS with a context that asks for h2."""
    host, _, port = url.rpartition("//")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    client = Http2Client(reader, writer)
    client.flush()
    try:
        yield client
    finally:
        writer.transport.abort()
