"""HTTP/2 by hand: frames that no library would send, on connections that read as little as they like."""

import asyncio
import contextlib
import struct
import sys
from collections.abc import AsyncIterator, Iterable
from typing import Self

from bench.attacks.attack import Seen

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
UNKNOWN = 0xBB

END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4

MAX_FRAME = 16_384

LARGEST_WINDOW = 2**31 - 1 - 65_535


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Returns a frame."""
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def headers(fields: Iterable[tuple[str, str]]) -> bytes:
    """Returns a block of headers that leaves nothing in the tables of either side."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def call(path: str, content_type: str = "application/grpc", more: Iterable[tuple[str, str]] = ()) -> bytes:
    """Returns the headers of a call."""
    pseudo = ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"))
    return headers((*pseudo, ("te", "trailers"), ("content-type", content_type), *more))


def message(data: bytes, *, flags: int = 0, announced: int | None = None) -> bytes:
    """Returns a message of gRPC, or of Connect, with its head."""
    return bytes((flags,)) + (len(data) if announced is None else announced).to_bytes(4, "big") + data


def data_frames(stream: int, data: bytes, *, end: bool = False) -> bytes:
    """Returns bytes as frames of DATA."""
    pieces = [data[at : at + MAX_FRAME] for at in range(0, len(data), MAX_FRAME)] or [b""]
    flags = [0] * (len(pieces) - 1) + [END_STREAM if end else 0]
    return b"".join(frame(DATA, flag, stream, piece) for flag, piece in zip(flags, pieces, strict=True))


PLAIN_HEADERS = (1).to_bytes(2, "big") + bytes(4) + (0xFE03).to_bytes(2, "big") + (1).to_bytes(4, "big")
"""Settings: no table of headers, and binary values as they are, so that a status can be read in its frame (gRPC's
`GRPC_ALLOW_TRUE_BINARY_METADATA`)."""


class Wire:
    """One connection. What comes is read and forgotten, except acknowledgements of settings, which are answered."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen | None = None) -> None:
        """Use `wire`."""
        self._reader, self.writer = reader, writer
        self._seen = seen
        self.window = 65_535
        """Bytes of DATA that the server takes on the connection."""
        self.windows: dict[int, int] = {}
        """And on each stream, beyond the initial one."""
        self.initial_window = 65_535
        self.max_streams = 2**31
        self._first = asyncio.Lock()
        """Held by the stream whose turn it is when the window of the connection grows."""
        self.moved = asyncio.Event()
        """Set when a window has grown, and when a stream or the connection has ended."""
        self.is_closed = False
        self.ended_by: int | None = None
        """The code of GOAWAY."""
        self.resets = 0
        self.ended = 0
        """Number of streams that the server has ended or reset."""
        self.gone = set[int]()
        """Their ids."""
        self._ends: dict[int, asyncio.Future[None]] = {}
        """Resolved at the end of a stream, by its id."""

    async def send(self, data: bytes) -> None:
        """Writes; returns when there is room for more. Raises ConnectionError."""
        if self.is_closed:
            raise ConnectionResetError
        self.writer.write(data)
        await self.writer.drain()

    async def send_body(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Writes DATA as the windows allow, until the server has ended the stream. Raises ConnectionError."""
        rest = memoryview(data)
        while rest:
            if stream in self.gone:
                return
            room = min(self.initial_window + self.windows.get(stream, 0), MAX_FRAME, len(rest))
            if room <= 0:
                await self._until_moved()
                continue
            if self.window <= 0:
                async with self._first:  # or each update would wake all streams
                    while self.window <= 0:
                        await self._until_moved()
            room = min(room, self.window)
            if room <= 0:  # another stream was quicker
                continue
            self.window -= room
            self.windows[stream] = self.windows.get(stream, 0) - room
            is_last = end and room == len(rest)
            await self.send(frame(DATA, END_STREAM if is_last else 0, stream, bytes(rest[:room])))
            rest = rest[room:]

    async def read(self, *, acknowledges: bool = True) -> None:
        """Reads until the connection ends."""
        try:
            while True:
                head = await self._reader.readexactly(9)
                payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                stream = int.from_bytes(head[5:9], "big") & 0x7FFFFFFF
                self._note(head[3], head[4], stream, payload, acknowledges=acknowledges)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.is_closed = True
            self.moved.set()
            for end in self._ends.values():
                if not end.done():
                    end.set_exception(ConnectionResetError())
            self._ends.clear()

    def _note(self, kind: int, flags: int, stream: int, payload: bytes, *, acknowledges: bool) -> None:
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack(">HI", payload[at : at + 6])
                if key == 4:
                    self.initial_window = value
                elif key == 3:
                    self.max_streams = value
            self.writer.write(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK and acknowledges:
            self.writer.write(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            size = int.from_bytes(payload, "big")
            if stream:
                self.windows[stream] = self.windows.get(stream, 0) + size
            else:
                self.window += size
            self.moved.set()
        elif kind == RST_STREAM:
            self.resets += 1
            self._end(stream)
        elif kind == 7:
            self.ended_by = int.from_bytes(payload[4:8], "big")
        elif kind in (DATA, HEADERS) and flags & END_STREAM:
            if self._seen is not None:
                self._seen.note(payload)
            self._end(stream)

    def _end(self, stream: int) -> None:
        self.ended += 1
        self.gone.add(stream)
        self.moved.set()
        if (end := self._ends.pop(stream, None)) is not None and not end.done():
            end.set_result(None)

    async def until_ended(self, stream: int) -> None:
        """Returns when the server has ended a stream. Raises ConnectionError. One waits for each stream."""
        if stream not in self.gone:
            if self.is_closed:
                raise ConnectionResetError
            end = self._ends[stream] = asyncio.get_running_loop().create_future()
            await end

    async def _until_moved(self) -> None:
        self.moved.clear()
        if self.is_closed:
            raise ConnectionResetError
        await self.moved.wait()

    async def __aenter__(self) -> Self:
        """Returns itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the connection at once."""
        self.writer.transport.abort()


ATTACKER = ("127.0.0.2", 0) if sys.platform == "linux" else None
"""From where attacks come: addresses share the server, and neighbours have another one."""


@contextlib.asynccontextmanager
async def wire(
    address: tuple[str, int],
    settings: bytes = b"",
    *,
    reads: bool = True,
    limit: int = 2**16,
    seen: Seen | None = None,
    source: tuple[str, int] | None = ATTACKER,
) -> AsyncIterator[Wire]:
    """Opens a connection, and closes it afterwards.

    Args:
        address: The server.
        settings: Payload of the first frame of settings.
        reads: Whether anything is read at all.
        limit: Bytes that are read ahead.
        seen: Gets the statuses with which calls end.
        source: Address and port of this end.
    """
    reader, writer = await asyncio.open_connection(*address, limit=limit, local_addr=source)
    one = Wire(reader, writer, seen)
    writer.write(PREFACE + frame(SETTINGS, 0, 0, settings + PLAIN_HEADERS))
    reading = asyncio.create_task(one.read()) if reads else None
    try:
        yield one
    finally:
        if reading is not None:
            reading.cancel()
        writer.transport.abort()


def _text(text: str) -> bytes:
    data = text.encode("latin-1")
    size = len(data)
    if size < 127:
        return bytes((size,)) + data
    head, size = b"\x7f", size - 127
    while size >= 128:
        head += bytes((size % 128 + 128,))
        size //= 128
    return head + bytes((size,)) + data
