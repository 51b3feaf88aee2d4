"""A proxy before PostgreSQL that cuts the connection of a server while it commits.

It understands as much of the protocol (version 3) as it takes to find the COMMIT of a transaction that writes.
"""

import asyncio
import contextlib
import struct
from enum import Enum, auto
from pathlib import Path
from typing import Self


class Cut(Enum):
    """When a connection ends."""

    BEFORE = auto()
    """The COMMIT was sent, and does not reach the database."""
    AFTER = auto()
    """The database has carried it out, and its answer does not come."""


class PostgresProxy:
    """Listens on a port of this machine for one database. Use it as an async context manager."""

    def __init__(self, folder: Path, database: str) -> None:
        """Takes the folder of the database server's socket, and the database."""
        self._socket = folder / ".s.PGSQL.5432"
        self._database = database
        self._listener: asyncio.Server | None = None
        self.url = ""
        """Address of the database through the proxy."""
        self.cut: Cut | None = None
        """Fault of the next COMMIT of a transaction that writes the mark; None again when it has come."""
        self.mark = b""
        """Bytes that a statement of the transaction has among its values."""
        self.is_cut = asyncio.Event()
        """Set when a connection was cut."""

    async def __aenter__(self) -> Self:
        """Begins to listen."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        options = "sslmode=disable&gssencmode=disable"  # so that the first message is that of the protocol
        self.url = f"postgresql://turnwire@127.0.0.1:{port}/{self._database}?{options}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends to listen; connections end with those who use them."""
        assert self._listener is not None
        self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            answers, requests = await asyncio.open_unix_connection(str(self._socket))
            connection = _Connection(self, writer)
            answering = asyncio.create_task(connection.send_answers_on(answers))
            try:
                await connection.send_requests_on(reader, requests)
            finally:
                answering.cancel()
                requests.close()
        writer.close()


class _Connection:
    """One connection of the server."""

    def __init__(self, proxy: PostgresProxy, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._writer = writer
        self._statements: dict[bytes, bytes] = {}
        """Prepared statements by their names."""
        self._writes = False
        """Whether its transactions write: such a one looks at its own number."""
        self._is_marked = False
        """Whether the transaction has the mark."""
        self._withholds = False

    async def send_requests_on(self, reader: asyncio.StreamReader, requests: asyncio.StreamWriter) -> None:
        """Sends on what the server sends, until the connection ends or is cut."""
        size = await reader.readexactly(4)
        requests.write(size + await reader.readexactly(struct.unpack("!i", size)[0] - 4))
        while True:
            head = await reader.readexactly(5)
            body = await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
            statement = self._statement(head[:1], body)
            self._writes |= b"pg_current_xact_id" in statement
            self._is_marked |= self._proxy.cut is not None and self._proxy.mark in body
            if self._writes and statement == b"COMMIT":
                if self._is_marked and self._proxy.cut is not None:
                    cut, self._proxy.cut = self._proxy.cut, None
                    if cut is Cut.BEFORE:
                        self._proxy.is_cut.set()
                        return
                    self._withholds = True
                self._is_marked = False
            requests.write(head + body)
            await requests.drain()

    async def send_answers_on(self, answers: asyncio.StreamReader) -> None:
        """Sends on what the database answers, until that is withheld: then cuts once it has committed."""
        with contextlib.suppress(OSError):
            while data := await answers.read(65_536):
                if not self._withholds:
                    self._writer.write(data)
                    await self._writer.drain()
                elif b"COMMIT\0" in data:
                    self._proxy.is_cut.set()
                    break
        self._writer.close()

    def _statement(self, kind: bytes, body: bytes) -> bytes:
        """Returns the statement that a message has carried out; nothing for one that has none."""
        if kind == b"Q":
            return body.rstrip(b"\0")
        first, _, rest = body.partition(b"\0")
        if kind == b"P":
            self._statements[first] = rest.partition(b"\0")[0]
        return self._statements.get(rest.partition(b"\0")[0], b"") if kind == b"B" else b""
