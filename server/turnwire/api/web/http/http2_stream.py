"""One request of HTTP/2 and its answer."""

import asyncio
import contextlib
from collections.abc import MutableMapping
from typing import Any, Protocol

from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from turnwire.api.web.http.limits import STALL_SECONDS

_CHUNK_BYTES = 65_536
"""What of an answer is given to the connection at a time: others of the connection get their turn after it."""


class StreamOwner(Protocol):
    """The connection of a stream."""

    def flush(self) -> None:
        """Writes the frames that are ready."""
        ...

    def flush_soon(self) -> None:
        """Writes them once the present work is done."""
        ...

    async def writable(self) -> None:
        """Returns when there is room for more."""
        ...

    def ended(self, stream: "Http2Stream", /) -> None:
        """Forgets a stream."""
        ...


class Http2Stream:
    """Gives a request to the application as ASGI does, and takes its answer."""

    def __init__(self, stream_id: int, http2: H2Connection, owner: StreamOwner) -> None:
        """Takes the number of the stream, the engine, and the connection."""
        self.stream_id = stream_id
        self._http2, self._owner = http2, owner
        self._body = bytearray()
        self._unread = 0
        """Bytes of the window that the body takes until it is read."""
        self._has_ended = False
        """Whether the whole body has come."""
        self._is_told = False
        """Whether the application has the whole body."""
        self.is_lost = False
        """Whether the client is gone, or has reset the stream."""
        self._is_answered = False
        self._came = asyncio.Event()
        self._window = asyncio.Event()

    def take(self, data: bytes, window_bytes: int) -> None:
        """Takes a piece of the body."""
        if self._is_answered:
            self._http2.acknowledge_received_data(window_bytes, self.stream_id)
            return
        self._body += data
        self._unread += window_bytes
        self._came.set()

    def take_end(self) -> None:
        """Takes the end of the body."""
        self._has_ended = True
        self._came.set()

    def widen(self) -> None:
        """Looks at the windows again."""
        self._window.set()

    def lose(self) -> None:
        """Takes that the client is gone."""
        self.is_lost = True
        self._came.set()
        self._window.set()

    def close(self) -> None:
        """Ends the stream when the application has returned."""
        if not self.is_lost and not (self._is_answered and self._has_ended):
            code = ErrorCodes.NO_ERROR if self._is_answered else ErrorCodes.INTERNAL_ERROR
            with contextlib.suppress(ProtocolError):
                self._http2.reset_stream(self.stream_id, code)
        self._give_back()  # what nobody read, else its bytes are lost to the other requests of the connection
        self._owner.ended(self)

    async def receive(self) -> MutableMapping[str, Any]:
        """Returns the next piece of the body, or that the client is gone or has the whole answer."""
        while not self.is_lost and not self._is_answered:
            if self._body or (self._has_ended and not self._is_told):
                return self._piece()
            self._came.clear()
            await self._came.wait()
        return {"type": "http.disconnect"}

    def _piece(self) -> MutableMapping[str, Any]:
        data, self._body = bytes(self._body), bytearray()
        self._give_back()
        self._is_told = self._has_ended
        return {"type": "http.request", "body": data, "more_body": not self._has_ended}

    def _give_back(self) -> None:
        """Lets the client send as much as the body took."""
        if self._unread:
            with contextlib.suppress(ProtocolError):
                self._http2.acknowledge_received_data(self._unread, self.stream_id)
            self._unread = 0
            self._owner.flush_soon()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Writes a piece of the answer; returns when there is room for the next. Nothing is written to nobody."""
        if self.is_lost or self._is_answered:
            return
        try:
            if message["type"] == "http.response.start":
                status = (b":status", str(message["status"]).encode())
                self._http2.send_headers(self.stream_id, [status, *message["headers"]])
                self._owner.flush_soon()
            else:
                await self._write(message.get("body", b""), last=not message.get("more_body", False))
        except ProtocolError:  # the stream was reset meanwhile
            self.lose()

    async def _write(self, data: bytes, *, last: bool) -> None:
        rest = memoryview(data)
        while rest or last:
            await self._owner.writable()
            if self.is_lost:
                return
            size = min(len(rest), self._http2.local_flow_control_window(self.stream_id), _CHUNK_BYTES)
            if rest and size <= 0:
                await self._wider()
                continue
            size = min(size, self._http2.max_outbound_frame_size)
            is_end = last and size == len(rest)
            self._http2.send_data(self.stream_id, bytes(rest[:size]), end_stream=is_end)
            rest = rest[size:]
            if is_end:
                self._is_answered = True
                self._came.set()
            self._owner.flush()
            if is_end:
                return

    async def _wider(self) -> None:
        """Returns when the windows may have grown; ends the stream of a client that does not open them."""
        self._window.clear()
        try:
            async with asyncio.timeout(STALL_SECONDS):
                await self._window.wait()
        except TimeoutError:
            with contextlib.suppress(ProtocolError):
                self._http2.reset_stream(self.stream_id, ErrorCodes.CANCEL)
            self._owner.flush()
            self.lose()
