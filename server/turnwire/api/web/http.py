"""HTTP/1.1 by uvicorn and h11, without connections and messages that hold the listener up.

uvicorn counts connections when they have sent a request: silent ones would take all files of the process. h11 takes
40 µs for each chunk of a body and 10 µs for each header: nothing for messages as clients send them. In chunks of one
byte, the 256 KiB that may come together would hold the event loop for two seconds.
"""

import asyncio
import re
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from turnwire.api.admission import reads

MAX_HEAD_BYTES = 32_768
"""Maximum size of the first line and the headers of a request. A credential has 8 KiB at most; gRPC takes 16 KiB in
all. A call by GET has its message in the first line."""

HEAD_SECONDS = 10.0
"""Longest time that the head of a request may take from its first byte, or from the beginning of the connection."""

_PIECE_BYTES = 16_384
"""Bytes read from the connection at a time: h11 checks the size of a head while it is incomplete, so a complete one is
no larger than both together."""

MAX_HEAD_LINES = 200
"""Maximum lines of a head, and of the trailers of a body. h11 reads them before anybody is admitted: the 12,000 that
fit into the bytes of a head hold the event loop for 15 milliseconds. Browsers behind proxies send about 50."""

MIN_CHUNK_BYTES = 64
"""Minimum average size of the chunks of one body. Clients send kilobytes in a chunk."""

MAX_SMALL_CHUNKS = 64
"""Chunks of a body that may be smaller all the same: an envelope's head often has a chunk of its own."""


_CHUNK_SIZE = re.compile(rb"(?:\r?\n)?([0-9a-fA-F]{1,20})[^0-9a-fA-F]")
"""The size of a chunk, after the end of the one before it."""


class _Connection(h11.Connection):
    """A connection of h11 that counts the lines of its heads, and the chunks of its body."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self._chunks = self._bytes = 0
        """Chunks and bytes of the current body."""
        self._awaits_size = self._awaits_trailers = False
        """Whether the size of a chunk comes next; whether the last chunk has come."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Returns what the client has sent next. Raises h11.RemoteProtocolError."""
        if self._awaits_size and (size := _CHUNK_SIZE.match(self.trailing_data[0])):
            self._awaits_size, self._awaits_trailers = False, not size[1].strip(b"0")
        if self.their_state is h11.IDLE or self._awaits_trailers:
            self._check_lines()
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
            self._awaits_size = any(name == b"transfer-encoding" for name, _ in event.headers)
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_end
            self._bytes += len(event.data)
            self._awaits_size = event.chunk_end
            if self._chunks > MAX_SMALL_CHUNKS and self._bytes < self._chunks * MIN_CHUNK_BYTES:
                raise h11.RemoteProtocolError("the chunks of the body are too small")
        elif isinstance(event, h11.EndOfMessage):
            self._awaits_trailers = False
        return event

    def _check_lines(self) -> None:
        """Raises h11.RemoteProtocolError when too many lines wait to be read at once: an empty one ends them."""
        lines = self.trailing_data[0].split(b"\n", MAX_HEAD_LINES)
        if len(lines) > MAX_HEAD_LINES and {b"", b"\r"}.isdisjoint(lines[1:-1]):  # the first may be the end of a chunk
            raise h11.RemoteProtocolError("the head has too many lines")


class Http(H11Protocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Takes what uvicorn gives to each connection."""
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _Connection()
        self._late: asyncio.TimerHandle | None = None
        """Runs while a head is waited for, or the rest of a body that was answered before its end; between two
        requests uvicorn waits with its own, which ends with the next byte."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes the connection, unless there are too many."""
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self.connections.discard(self)  # with it counted, uvicorn would refuse the requests of the others
            transport.abort()
        else:
            self._late = self.loop.call_later(HEAD_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Reads what has come."""
        for start in range(0, len(data), _PIECE_BYTES):
            if not self.transport.is_closing():
                super().data_received(data[start : start + _PIECE_BYTES])
        if self.conn.our_state is h11.DONE:
            return  # it was the rest of a body
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def on_response_complete(self) -> None:
        """Begins to wait for the next request, or for the rest of this one."""
        super().on_response_complete()
        if self.conn.our_state is h11.DONE and not self.transport.is_closing():
            self._stop_waiting()
            self._late = self.loop.call_later(reads.RECEIVE_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends what the connection had."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
