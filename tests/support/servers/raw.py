"""A local TCP server that answers every request with the bytes that a test decides, HTTP or not."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Self

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Takes a connection and does with it what it wants; the connection is closed afterwards."""


class RawServer:
    """Listens on a free port while its context is entered."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()
        self.connections = 0
        """That came so far."""
        self.left = asyncio.Event()
        """Set when a client has closed its connection, or the talk has ended."""

    @property
    def base_url(self) -> str:
        """Address for `ProviderSettings.base_url`."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}/v1"

    async def __aenter__(self) -> Self:
        """Listens."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends all connections."""
        assert self._server is not None
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        self.connections += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._talk(reader, writer)
        finally:
            self._talks.discard(task)
            self.left.set()
            writer.transport.abort()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """Reads one request with its body; returns its head."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            await reader.readexactly(int(value))
    return head


def sending(*pieces: bytes, forever: bytes = b"") -> Talk:
    """Returns a talk that reads a request, sends some bytes, and others until the client leaves."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        while forever:
            writer.write(forever)
            await writer.drain()
            await asyncio.sleep(0)

    return talk
