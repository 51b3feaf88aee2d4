"""One HTTP request and its answer, as ASGI delivers them, with bounds in size."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

from h11 import LocalProtocolError

from turnwire.api.admission.requests import CallerGone
from turnwire.api.web.encoding.compression import TooLarge
from turnwire.api.web.shared_bytes import SharedBytes
from turnwire.domain.networks import network_of_peer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Iterable[tuple[str, str]]

PIECE_BYTES = 256 * 1024
"""Bytes of a response that are given to the connection at a time. The connection keeps as many of a response that is
not read, besides the rest that waits here."""

OFFLOADED_JOIN_BYTES = 2**20
"""Size from which a body is joined on a worker thread: 14 MiB take up to 60 milliseconds where memory is slow."""

_NO_CONTENT = 204


def shared_bodies(max_bytes: int) -> SharedBytes:
    """Returns what counts the bodies that are being read by one listener."""
    return SharedBytes("limits.max_bodies_bytes", max_bytes, "too many large requests arrive at the same time")


class Exchange:
    """A request that is read once, and an answer that is written once."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, bodies: SharedBytes) -> None:
        """Takes what ASGI gives to an application, and what all bodies share."""
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = _joined(scope["headers"])
        self.extra_headers: Headers = ()
        """Headers of every answer of this exchange, such as those of CORS."""
        self.is_started = False
        """Whether the status and headers have been written."""
        self.is_gone = False
        """Whether the client has left; known while `until_gone` runs."""
        self._receive = receive
        self._send = send
        self._bodies = bodies
        self._is_read = asyncio.Event()
        """Whether nothing of the body is waited for any more."""

    def header(self, name: str) -> str | None:
        """Returns a header by its name in lower case; repeated ones are joined by commas."""
        return self.headers.get(name)

    def connection(self) -> str:
        """Returns the address of the client with the port."""
        client = self.scope.get("client")
        return f"{client[0]}:{client[1]}" if client else ""

    def announced_bytes(self) -> int:
        """Returns the size of the body as its head says it; 0 if it does not. More than that does not come."""
        announced = self.headers.get("content-length", "")
        return int(announced) if announced.isdecimal() else 0

    async def body(self, max_bytes: int) -> bytes:
        """Returns the whole body of the request. How long it may take is for the caller to bound.

        Raises:
            TooLarge: it has more than `max_bytes`. The rest is not read.
            TooManyCalls: too much is being read.
            CallerGone: the client left.
        """
        chunks: list[bytes] = []
        try:
            async with self._bodies.lease(network_of_peer(self.connection())) as lease:
                while True:
                    event = await self._receive()
                    if event["type"] == "http.disconnect":
                        self.is_gone = True
                        raise CallerGone
                    chunk: bytes = event.get("body", b"")
                    lease.grow(len(chunk))
                    if lease.size > max_bytes:
                        raise TooLarge
                    chunks.append(chunk)
                    if not event.get("more_body", False):
                        break
                if lease.size >= OFFLOADED_JOIN_BYTES:  # another thread joins them while the event loop goes on
                    return await asyncio.to_thread(b"".join, chunks)
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        finally:
            self._is_read.set()

    async def until_gone(self) -> None:
        """Returns when the client has left after its body was read. Safe to cancel."""
        await self._is_read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True

    async def answer(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Writes a whole answer. Raises CallerGone."""
        length = () if status == _NO_CONTENT else (("content-length", str(len(body))),)
        await self.start(status, (*headers, *length))
        await self._write(body, last=True)

    async def start(self, status: int, headers: Headers) -> None:
        """Writes the status and the headers. Raises CallerGone."""
        self.is_started = True
        sent = [  # blanks at the ends of a value are none of its own
            (name.encode("latin-1"), value.encode("latin-1", "replace").strip())
            for name, value in (*headers, *self.extra_headers)
        ]
        await self._put({"type": "http.response.start", "status": status, "headers": sent})

    async def write(self, chunk: bytes, *, last: bool = False) -> None:
        """Writes a piece of the body; returns when the next may be written. Raises CallerGone."""
        if self.is_gone:
            raise CallerGone
        await self._write(chunk, last=last)

    async def _write(self, data: bytes, *, last: bool) -> None:
        """Writes in pieces: the connection takes whatever it is given, and lets the next one wait until it is read."""
        end = max(len(data) - 1, 0) // PIECE_BYTES * PIECE_BYTES
        for start in range(0, end, PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            await self._put({"type": "http.response.body", "body": piece, "more_body": True})
        await self._put({"type": "http.response.body", "body": data[end:], "more_body": not last})

    async def _put(self, message: MutableMapping[str, Any]) -> None:
        """Gives a message to uvicorn. Raises CallerGone."""
        try:
            await self._send(message)
        except LocalProtocolError:  # the rest of the body was no HTTP, and uvicorn has answered that itself
            self.is_gone = True
            raise CallerGone from None


def _joined(headers: Iterable[tuple[bytes, bytes]]) -> Mapping[str, str]:
    joined: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined
